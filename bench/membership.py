"""Members of consumer groups with a request quota near zero: do they stay members?

python -m bench.membership [--seconds 120] [--window 1 30]... [--client NAME]... [--enforcer broker mute delay] [--no-write]

Groups have two members of Java 4.3.1 (both group protocols), Java 3.9.1 and librdkafka, with a session timeout of 10 s and a heartbeat
every 3 s. When all members share their topics, each group gets a quota of 0.01 % of a thread, from the broker itself, from Sluice in mute
or from Sluice in delay: nearly every request is over it. From then on no client joins or leaves, so the quota is the cause of every
rebalance and of every member that the broker removes; the goal for Sluice is none. Kafka throttles for at most one quota window, so the
window is the longest time that heartbeats may be delayed: 1 s is the default. Needs a JDK and Maven.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

from bench.harness.engine import ROOT
from bench.harness.report import Report, machine_lines
from tests.support.clients import confluent
from tests.support.clients.group_member import GroupMember
from tests.support.clients.topics import new_topic
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT, ZOOKEEPER
from tests.support.kafka.java_member import JavaMember
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import set_client_quota
from tests.support.places import temporary_directory
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

JAVA = {"java-4.3.1": KRAFT, "java-4.3.1 consumer protocol": KRAFT, "java-3.9.1": ZOOKEEPER}
CLIENTS = [*JAVA, "librdkafka"]
BROKER = "broker"
ENFORCERS = [BROKER, "mute", "delay"]
WINDOWS_S = [1, 30]
SESSION_MS = 10_000
HEARTBEAT_MS = 3_000
PERCENT = 0.01
MEMBERS = 2
PARTITIONS = 4
RECORDS, RECORD_BYTES = 20_000, 1_000
JOIN_SECONDS_MAX = 180.0
LOOK_SECONDS = 0.5
LOOK_SECONDS_MAX = 20
BROKER_SETTINGS = {
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
}


class Member(Protocol):
    """The interface of a member of either kind."""

    def owned(self) -> list[int]:
        """Its partitions."""

    @property
    def assignments(self) -> int:
        """How often partitions were assigned to it."""

    @property
    def slowest_heartbeat_ms(self) -> int:
        """The longest time that its coordinator took for an answer."""


@dataclass
class Cell:
    """One kind of client under one enforcer."""

    client: str
    enforcer: str
    window_s: int
    members: Sequence[Member] = field(default_factory=list)
    rebalances: int = 0
    ids: set[str] = field(default_factory=set)
    lost: int = 0
    slowest_ms: int = 0

    @property
    def name(self) -> str:
        """Return its client-id, which is also its group."""
        return f"{self.client}-{self.enforcer}-{self.window_s}".replace(" ", "-")

    @property
    def is_shared(self) -> bool:
        """Whether each partition has one owner and each member owns some."""
        owned = [member.owned() for member in self.members]
        return all(owned) and sorted(itertools.chain(*owned)) == list(range(PARTITIONS))

    def count(self) -> int:
        """Count how often its members were assigned partitions up to now."""
        return max(member.assignments for member in self.members)

    def look(self, description: ConsumerGroupDescription) -> None:
        """Read the members that the broker reports."""
        ids = {member.member_id for member in description.members}
        self.lost += len(self.ids - ids)
        self.ids = ids

    @property
    def verdict(self) -> str:
        """Compare with the goal; the broker is the reference."""
        if self.enforcer == BROKER:
            return ""
        return "miss" if self.rebalances or self.lost else "ok"

    def line(self) -> str:
        """Return the row of the table."""
        counts = f"{self.rebalances} | {self.lost} | {self.slowest_ms:,.0f}"
        return f"| {self.window_s} s | {self.client} | {self.enforcer} | {counts} | {self.verdict} |"


HEAD = [
    "| window | client | enforcer | rebalances | members expired | slowest answer of the coordinator, ms | |",
    "|---|---|---|--:|--:|--:|---|",
]


def run(cells: list[Cell], window_s: int, seconds: float, folder: Path) -> None:
    """Run all cells of one window length at once, and fill in their results."""
    settings = BROKER_SETTINGS | {"quota.window.size.seconds": str(window_s), "quota.window.num": str(window_num(window_s))}
    with ExitStack() as stack:
        cluster = stack.enter_context(KafkaCluster(KRAFT, name=f"membership-{window_s}", settings=settings))
        versions = {KRAFT, *(JAVA[cell.client] for cell in cells if cell.client in JAVA)}
        tools = {version: stack.enter_context(JavaTools(version)) for version in versions}
        quotas = {mode: write_quotas(folder / f"{mode}.toml", []) for mode in {cell.enforcer for cell in cells} - {BROKER}}
        bootstraps = {BROKER: cluster.bootstrap}
        for mode, path in quotas.items():
            bootstraps[mode] = stack.enter_context(start_sluice(cluster.bootstrap, mode, window_s, path)).bootstrap
        for cell in cells:
            topic = new_topic(cluster.bootstrap, cell.name, partitions=PARTITIONS)
            confluent.produce(cluster.bootstrap, topic, itertools.repeat(bytes(RECORD_BYTES), RECORDS))
            cell.members = [_member(cell, number, stack, tools, bootstraps[cell.enforcer], topic, folder) for number in range(MEMBERS)]
        _wait_until_shared(cells)
        for path in quotas.values():
            write_quotas(path, [{"client-id": "<default>", "request_percentage": PERCENT}])
        for cell in cells:
            if cell.enforcer == BROKER:
                set_client_quota(tools[KRAFT], cluster.bootstrap, cell.name, request_percentage=PERCENT)
        _watch(cells, cluster.bootstrap, seconds)


def window_num(window_s: int) -> int:
    """Return Kafka's default number of samples, or two for a long window: otherwise the quota of five minutes would pass at once."""
    return 11 if window_s == 1 else 2


def start_sluice(upstream: str, mode: str, window_s: int, quotas: Path) -> SluiceProcess:
    """Start Sluice with the broker's window."""
    config = quotas.with_name(f"{mode}-sluice.toml")
    config.write_text(f"[quotas]\nwindow_num = {window_num(window_s)}\nwindow_size_seconds = {window_s}\n")
    name = f"membership-{mode}-{window_s}"
    return SluiceProcess(upstream, quotas=quotas, enforcement=mode, arguments=["--config", str(config)], name=name)


def _member(cell: Cell, number: int, stack: ExitStack, tools: dict[str, JavaTools], bootstrap: str, topic: str, folder: Path) -> Member:
    settings: dict[str, str | int] = {"client.id": cell.name, "group.id": cell.name}
    if cell.client.endswith("consumer protocol"):
        return stack.enter_context(JavaMember(tools[KRAFT], bootstrap, topic, {**settings, "group.protocol": "consumer"}))
    settings |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
    if cell.client in JAVA:
        return stack.enter_context(JavaMember(tools[JAVA[cell.client]], bootstrap, topic, settings))
    out = folder / f"{cell.name}-{number}"
    return stack.enter_context(GroupMember(bootstrap, topic, cell.name, out, settings))


def _wait_until_shared(cells: list[Cell]) -> None:
    deadline = time.monotonic() + JOIN_SECONDS_MAX
    while not all(cell.is_shared for cell in cells):
        if time.monotonic() > deadline:
            raise RuntimeError(f"not shared: {[cell.name for cell in cells if not cell.is_shared]}")
        time.sleep(LOOK_SECONDS)


def _watch(cells: list[Cell], bootstrap: str, seconds: float) -> None:
    """Watch the members, and the members that the broker reports, for `seconds`."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    before = [cell.count() for cell in cells]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for group, found in admin.describe_consumer_groups([cell.name for cell in cells]).items():
            next(cell for cell in cells if cell.name == group).look(found.result(LOOK_SECONDS_MAX))
        time.sleep(LOOK_SECONDS)
    for cell, count in zip(cells, before, strict=True):
        cell.rebalances = cell.count() - count
        cell.slowest_ms = max(member.slowest_heartbeat_ms for member in cell.members)


def main() -> int:
    """Run what was asked for; return 1 when a goal was missed."""
    options = _options()
    cells: list[Cell] = []
    for window_s in options.window:
        some = [Cell(client, enforcer, window_s) for client in options.client for enforcer in options.enforcer]
        with temporary_directory("membership") as folder:
            run(some, window_s, options.seconds, folder)
        print("\n".join([*HEAD, *[cell.line() for cell in some]]), flush=True)
        cells += some
    report = Report("membership")
    report.add(
        *machine_lines(),
        f"- Apache Kafka {KRAFT}; {MEMBERS} members a group, session timeout {SESSION_MS // 1_000} s,"
        f" heartbeats {HEARTBEAT_MS // 1_000} s apart;"
        f" request_percentage {PERCENT}; {options.seconds:g} s",
        "",
        *HEAD,
        *[cell.line() for cell in cells],
    )
    report.data["cells"] = [
        {"client": cell.client, "enforcer": cell.enforcer, "window_s": cell.window_s}
        | {"rebalances": cell.rebalances, "expired": cell.lost, "slowest_ms": cell.slowest_ms, "verdict": cell.verdict}
        for cell in cells
    ]
    if not options.no_write:
        report.write(options.out)
    return int(any(cell.verdict.startswith("miss") for cell in cells))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.membership", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--window", type=int, nargs="+", default=WINDOWS_S)
    parser.add_argument("--client", nargs="+", choices=CLIENTS, default=CLIENTS)
    parser.add_argument("--enforcer", nargs="+", choices=ENFORCERS, default=ENFORCERS)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "clients")
    parser.add_argument("--no-write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
