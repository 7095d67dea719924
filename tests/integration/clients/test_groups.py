"""Consumer groups through Sluice: members share the partitions, take over from each other, and continue at the committed offsets."""

import itertools
import time

import pytest
from confluent_kafka import Consumer

from tests.integration.conftest import Route
from tests.support.clients import confluent
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import run_share_consumer, set_group_config

pytestmark = pytest.mark.kafka
PARTITIONS = 6
HANG_SECONDS = 60
PLACES = [
    pytest.param(("kraft_route", "classic"), id="kafka-4.3.1-classic"),
    pytest.param(("kraft_route", "consumer"), id="kafka-4.3.1-consumer"),
    pytest.param(("zookeeper_route", "classic"), id="kafka-3.9.1-zookeeper-classic"),
]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> tuple[Route, str]:
    """Return each broker with each group protocol that it supports; "consumer" is the protocol of KIP-848."""
    name, protocol = request.param
    return request.getfixturevalue(name), protocol


def _member(route: Route, topic: str, protocol: str) -> Consumer:
    settings = {"bootstrap.servers": route.bootstrap, "group.id": f"group-of-{topic}", "group.protocol": protocol}
    heartbeat = {"heartbeat.interval.ms": 300} if protocol == "classic" else {}  # KIP-848: the broker sets it
    member = Consumer({**settings, **heartbeat, "auto.offset.reset": "earliest", "enable.auto.commit": False, **confluent.QUIET})
    member.subscribe([topic])
    return member


def _poll_until_shared(members: list[Consumer]) -> None:
    """Poll until each partition has exactly one owner and each member owns some."""
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        for member in members:
            member.poll(0.1)
        owned = [sorted(partition.partition for partition in member.assignment()) for member in members]
        if all(owned) and sorted(itertools.chain(*owned)) == list(range(PARTITIONS)):
            return
        assert time.monotonic() < deadline, f"assignments: {owned}"


def _read_and_commit(member: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    deadline = time.monotonic() + HANG_SECONDS
    while len(values) < count:
        values += [message.value() for message in member.consume(count - len(values), timeout=0.5) if not message.error()]
        assert time.monotonic() < deadline, f"{len(values)} of {count}"
    member.commit(asynchronous=False)
    return values


def test_members_share_and_take_over(place: tuple[Route, str]) -> None:
    """Two members share six partitions, and when one leaves, the other gets all of them."""
    route, protocol = place
    topic = route.new_topic(f"shared-{protocol}", PARTITIONS)
    first, second = (_member(route, topic, protocol) for _ in range(2))
    _poll_until_shared([first, second])
    second.close()
    _poll_until_shared([first])
    first.close()


def test_the_next_member_goes_on_at_the_committed_offsets(place: tuple[Route, str]) -> None:
    """A new member reads from the committed offsets: no record is read twice and none is skipped."""
    route, protocol = place
    topic = route.new_topic(f"committed-{protocol}", PARTITIONS)
    values = [f"value-{number}".encode() for number in range(600)]
    confluent.produce(route.direct, topic, values)
    read: list[bytes] = []
    for _ in range(2):
        member = _member(route, topic, protocol)
        read += _read_and_commit(member, 300)
        member.close()
    assert sorted(read) == sorted(values)


def test_share_group(kraft_route: Route, tools: JavaTools) -> None:
    """A share group (KIP-932) reads every record through Sluice."""
    topic = kraft_route.new_topic("share", partitions=2)
    group = f"share-group-of-{topic}"
    set_group_config(tools, kraft_route.direct, group, {"share.auto.offset.reset": "earliest"})
    confluent.produce(kraft_route.direct, topic, [b"value"] * 1_000)
    assert run_share_consumer(tools, kraft_route.bootstrap, topic, 1_000, group=group) == 1_000
