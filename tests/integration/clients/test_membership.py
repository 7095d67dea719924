"""R6: a consumer group under a low quota keeps its members, offsets and records while members die and join and Sluice restarts."""

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from tests.support.clients import confluent
from tests.support.clients.group_member import GroupMember
from tests.support.clients.topics import new_topic
from tests.support.kafka.broker import KafkaCluster
from tests.support.places import temporary_directory
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

pytestmark = pytest.mark.kafka
HANG_SECONDS = 60
PARTITIONS = 6
CLIENT_ID = "members"
UTILIZATION = "kafka_quota_utilization_ratio"
WINDOW_S = 11
SESSION_MS = 6_000
"""The smallest session timeout that a broker accepts by default."""
RECORD_BYTES, RECORDS = 10_000, 6_000
BYTES_PER_SECOND = 2_000_000
COORDINATOR_MS_MAX = 2_000
"""Far above the time of a heartbeat, far below the wait of a fetch of this group."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder for the members' event files and the quota file."""
    with temporary_directory("membership") as directory:
        yield directory


class Offsets:
    """The committed offsets of a group, read directly from the broker; no offset may decrease."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._group = group
        self.committed: dict[int, int] = {}

    def look(self) -> dict[int, int]:
        """Read the offsets and compare them with the previous ones."""
        found = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self._group)])[self._group].result(HANG_SECONDS)
        for partition in found.topic_partitions:
            assert partition.offset >= self.committed.get(partition.partition, 0), "committed offsets went back"
            self.committed[partition.partition] = partition.offset
        return self.committed


def until(condition: Callable[[], bool], offsets: Offsets, what: str) -> None:
    """Wait for a condition, and check the offsets meanwhile."""
    deadline = time.monotonic() + HANG_SECONDS
    while not condition():
        offsets.look()
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def is_shared(members: list[GroupMember]) -> bool:
    """Whether each partition has one owner and each member owns some."""
    owned = [member.owned() for member in members]
    return all(owned) and sorted(itertools.chain(*owned)) == list(range(PARTITIONS))


def test_r6_a_throttled_group_loses_nothing(kraft: KafkaCluster, folder: Path) -> None:
    """While a throttled group loses a member, gains one, and Sluice restarts, every record is read, committed offsets only grow, and no
    other rebalance occurs.
    """
    topic, group = new_topic(kraft.bootstrap, "r6", partitions=PARTITIONS), "r6"
    confluent.produce(kraft.bootstrap, topic, itertools.repeat(bytes(RECORD_BYTES), RECORDS))
    offsets = Offsets(kraft.bootstrap, group)
    numbers = itertools.count(1)
    settings = {"client.id": CLIENT_ID, "session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500, "fetch.message.max.bytes": 200_000}
    quotas = write_quotas(folder / "quotas.toml", [{"client-id": CLIENT_ID, "consumer_byte_rate": BYTES_PER_SECOND}])

    with SluiceProcess(kraft.bootstrap, quotas=quotas, name="sluice-r6") as sluice:

        def member() -> GroupMember:
            return GroupMember(sluice.bootstrap, topic, group, folder / f"member-{next(numbers)}", settings)

        started = time.monotonic()
        with member() as first, member() as second, member() as third:
            until(lambda: is_shared([first, second, third]), offsets, "three members never shared")
            before = len(first.events("rebalanced"))
            until(lambda: sluice.metric(UTILIZATION, quota_type="Fetch") > 0.9, offsets, "no client was held")
            third.kill()
            until(lambda: is_shared([first, second]), offsets, "two members never shared")
            assert sluice.stop() == 0
            sluice.start()
            with member() as fourth:
                until(lambda: is_shared([first, second, fourth]), offsets, "three members never shared again")
                until(lambda: sum(offsets.committed.values()) == RECORDS, offsets, "not all was read and committed")
                assert len(first.events("rebalanced")) - before <= 3, "one killed, one came, and one more"
                free_bytes = 2 * WINDOW_S * BYTES_PER_SECOND  # once at the start and once after the restart
                assert time.monotonic() - started > (RECORDS * RECORD_BYTES - free_bytes) / BYTES_PER_SECOND
                members = [first, second, third, fourth]
                read = set().union(*(one.read_offsets() for one in members))
                ends = offsets.committed
                assert read == {(partition, offset) for partition, end in ends.items() for offset in range(end)}
                slowest = max(event["rtt_max_ms"] for one in members for event in one.events("coordinator"))
                assert slowest < COORDINATOR_MS_MAX, "a muted fetch held up the coordinator's connection"
