"""A request quota near zero removes no member from its group, however long the quota windows are."""

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.clients import confluent
from tests.support.clients.group_member import GroupMember
from tests.support.clients.topics import new_topic
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.java_member import JavaMember
from tests.support.kafka.java_tools import JavaTools
from tests.support.places import temporary_directory
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

pytestmark = pytest.mark.kafka
HANG_SECONDS = 60
PERCENT = 0.002
WINDOW_S = 30
SESSION_S = 6
"""The smallest session timeout that a broker accepts by default."""
WATCHED_S = 2.2 * SESSION_S
PARTITIONS = 2
SETTINGS: dict[str, str | int] = {"session.timeout.ms": SESSION_S * 1_000, "heartbeat.interval.ms": SESSION_S * 300}
MODES = ["delay", "mute"]


@dataclass
class Group:
    """Two members that read a topic through a Sluice in one mode."""

    name: str
    members: Sequence[JavaMember | GroupMember]

    @property
    def is_shared(self) -> bool:
        """Whether both members own one partition each."""
        owned = [member.owned() for member in self.members]
        return all(owned) and sorted(itertools.chain(*owned)) == list(range(PARTITIONS))

    @property
    def assignments(self) -> int:
        """How often partitions were assigned."""
        return sum(member.assignments for member in self.members)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder for quotas, settings and event files."""
    with temporary_directory("throttled-members") as directory:
        yield directory


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def start(upstream: str, mode: str, folder: Path) -> SluiceProcess:
    """Start a Sluice in a mode, with long windows and no quota."""
    (folder / "sluice.toml").write_text(f"[quotas]\nwindow_num = 2\nwindow_size_seconds = {WINDOW_S}\n")
    quotas = write_quotas(folder / f"{mode}.toml", [])
    return SluiceProcess(
        upstream, quotas=quotas, enforcement=mode, arguments=["--config", str(folder / "sluice.toml")], name=f"sluice-members-{mode}"
    )


def java_group(stack: ExitStack, tools: JavaTools, sluice: SluiceProcess, topic: str, name: str) -> Group:
    """Two Java consumers."""
    settings = {**SETTINGS, "group.id": name, "client.id": name}
    return Group(name, [stack.enter_context(JavaMember(tools, sluice.bootstrap, topic, settings)) for _ in range(2)])


def librdkafka_group(stack: ExitStack, sluice: SluiceProcess, topic: str, name: str, folder: Path) -> Group:
    """Two librdkafka consumers, each in its own process."""
    settings = {**SETTINGS, "client.id": name}
    members = [GroupMember(sluice.bootstrap, topic, name, folder / f"{name}-{number}", settings) for number in range(2)]
    return Group(name, [stack.enter_context(member) for member in members])


def longest_throttle_ms(sluice: SluiceProcess) -> int:
    """Return the longest throttle time among the request-time verdicts that /quotas still shows."""
    groups = json.loads(sluice.get("/quotas")[1])["groups"]
    verdicts = [verdict for group in groups if group["quota_type"] == "Request" for verdict in group["verdicts"]]
    return max((verdict["throttle_ms"] for verdict in verdicts), default=0)


def members_of(admin: AdminClient, groups: list[Group]) -> dict[str, set[str]]:
    """Return the members of the groups, as the broker reports them."""
    found = admin.describe_consumer_groups([group.name for group in groups])
    return {name: {member.member_id for member in described.result(HANG_SECONDS).members} for name, described in found.items()}


def test_members_stay_members(kraft: KafkaCluster, tools: JavaTools, folder: Path) -> None:
    """While throttle times exceed the session timeout, for more than twice that timeout, no member leaves and no rebalance occurs."""
    with ExitStack() as stack:
        sluices = {mode: stack.enter_context(start(kraft.bootstrap, mode, folder)) for mode in MODES}
        groups = []
        for mode, sluice in sluices.items():
            topic = new_topic(kraft.bootstrap, f"members-{mode}", partitions=PARTITIONS)
            confluent.produce(kraft.bootstrap, topic, itertools.repeat(bytes(100), 1_000))
            groups.append(java_group(stack, tools, sluice, topic, f"java-{mode}"))
            groups.append(librdkafka_group(stack, sluice, topic, f"librdkafka-{mode}", folder))
        until(lambda: all(group.is_shared for group in groups), "the members never shared")
        for mode in MODES:
            write_quotas(folder / f"{mode}.toml", [{"client-id": "<default>", "request_percentage": PERCENT}])
        until(lambda: min(map(longest_throttle_ms, sluices.values())) > SESSION_S * 1_000, "no client was throttled hard")
        admin = AdminClient({"bootstrap.servers": kraft.bootstrap})
        before, assignments = members_of(admin, groups), [group.assignments for group in groups]
        assert all(len(members) == 2 for members in before.values())
        end = time.monotonic() + WATCHED_S
        while time.monotonic() < end:
            assert members_of(admin, groups) == before
            time.sleep(0.5)
        assert [group.assignments for group in groups] == assignments
