"""Faults of a fleet of three at a real broker: members are restarted in turn, killed and stopped, the hub is killed, the topic is deleted.

Two idempotent producers send through each member: one without a quota, and one of a client-id that all members share, far over its quota.
At the end the records at the broker are compared with the acknowledged ones. The most bytes of the shared client-id in 10 s are divided by
those of one process under the same load, to which nothing happens.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient

from bench.kills.of_workers import BROKERS_TIME, PROBLEMS
from tests.support.clients import confluent
from tests.support.clients.recorder import as_stored
from tests.support.clients.topics import new_topic
from tests.support.fleet.fleet_process import FleetProcess, eventually
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT
from tests.support.places import temporary_directory
from tests.support.processes.kills import BURST_S, HELD, HELD_BYTES_PER_SECOND, PARTITIONS, Traffic, unsent
from tests.support.processes.sluice_process import SluiceProcess, write_quotas
from tests.support.processes.sluice_workers import hubs_of, workers_of
from tests.support.processes.worker_kills import HELD_NUMBER, SPAN_MS, most_in_a_span

MEMBERS: Final = 3
NOTHING: Final = "nothing"
QUIET_S: Final = 45
BEGIN_S: Final = 15
"""Time before the first fault: the first window of the quota and its burst."""
STOP_S: Final = 30
BETWEEN_S: Final = 5
WORST_MAX: Final = 1.1


@dataclass
class FaultResult:
    """The result of one fault, repeated some times.

    Attributes:
        members: 1: one process without a fleet.
        problems: records lost, twice, out of order or corrupt.
        failed_sends: records without an answer at the end.
        worst_bytes: most bytes of the shared client-id that the broker stored in 10 s, after the first window.
    """

    fault: str
    members: int
    times: int = 0
    acknowledged: int = 0
    problems: dict[str, int] = field(default_factory=dict)
    failed_sends: int = 0
    worst_bytes: int = 0

    @property
    def worst(self) -> float:
        """The most bytes in 10 s over the bound."""
        return self.worst_bytes / (HELD_BYTES_PER_SECOND * SPAN_MS / 1_000)


class Members:
    """Running members, or one process without a fleet, with their traffic."""

    def __init__(self, upstream: str, topic: str, directory: Path, members: int, dice: random.Random) -> None:
        self.dice = dice
        self.fleet_topic = f"__{topic}_fleet"
        self.upstream = upstream
        quotas = write_quotas(directory / "quotas.toml", [{"client-id": HELD, "producer_byte_rate": HELD_BYTES_PER_SECOND}])
        secret = directory / "secret"
        secret.write_text(secrets.token_hex(32))
        secret.chmod(0o600)
        self.sluices: list[SluiceProcess] = []
        for number in range(members):
            arguments: tuple[str, ...] = ()
            if members > 1:
                config = directory / f"member-{number}.toml"
                config.write_text(
                    f'runtime_dir = "{directory}/run-{number}"\n'
                    f'[fleet]\nname = "faults"\ntopic = "{self.fleet_topic}"\nmember = "m{number}"\n'
                    'secret_file = "secret"\n'
                )
                arguments = ("--config", str(config))
            name = f"sluice-fleet-faults-{number}"
            self.sluices.append(SluiceProcess(upstream, quotas=quotas, enforcement="mute", arguments=arguments, name=name))
        self.traffics: list[Traffic] = []
        self._topic = topic

    def start(self) -> None:
        """Start all members, wait until they hear each other, and begin to send."""
        for sluice in self.sluices:
            sluice.start()
        self.until_joined()
        of_each = MEMBERS // len(self.sluices)  # one process has the clients of all members
        self.traffics = [Traffic(sluice.bootstrap, self._topic) for sluice in self.sluices for _ in range(of_each)]

    def until_joined(self) -> None:
        """Wait until each member hears all others."""
        if len(self.sluices) > 1:
            pages = [FleetProcess(sluice) for sluice in self.sluices]
            eventually(lambda: all(len(heard_by(page)) == len(pages) for page in pages))

    def go_on(self, seconds: float) -> None:
        """Send through all members for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for traffic in self.traffics:
                traffic.go_on(0)
            time.sleep(BURST_S)

    def kill(self) -> None:
        """End everything."""
        for sluice in self.sluices:
            sluice.kill()


def heard_by(member: FleetProcess) -> set[str]:
    """Return the names of the members that one hears now, with itself."""
    return {one["member"] for one in member.fleet()["members"] if one["silent_ms"] < 3_000}


def _restart_all(members: Members) -> None:
    for sluice in members.sluices:
        sluice.send(signal.SIGTERM)
        while sluice.exit_code is None:
            members.go_on(0.05)
        sluice.start()
        members.go_on(BETWEEN_S)


def _kill_member(members: Members) -> None:
    sluice = members.dice.choice(members.sluices)
    for pid in [sluice.pid, *workers_of(sluice), *hubs_of(sluice.pid)]:
        os.kill(pid, signal.SIGKILL)
    sluice.wait()
    members.go_on(BETWEEN_S)
    sluice.start()


def _kill_hub(members: Members) -> None:
    for pid in hubs_of(members.dice.choice(members.sluices).pid):
        os.kill(pid, signal.SIGKILL)


def _stop_member(members: Members) -> None:
    sluice = members.dice.choice(members.sluices)
    pids = [sluice.pid, *workers_of(sluice), *hubs_of(sluice.pid)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    members.go_on(STOP_S)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def _delete_topic(members: Members) -> None:
    admin = AdminClient({"bootstrap.servers": members.upstream})
    for future in admin.delete_topics([members.fleet_topic]).values():
        future.result(timeout=30)


FAULTS: Final[dict[str, Callable[[Members], None]]] = {
    "rolling restart": _restart_all,
    "member killed": _kill_member,
    "hub killed": _kill_hub,
    "member stopped": _stop_member,
    "topic deleted": _delete_topic,
}


def faults(names: Sequence[str], rounds: int) -> list[FaultResult]:
    """Return the results of one process and of a fleet without a fault, then of each fault."""
    found: list[FaultResult] = []
    with KafkaCluster(KRAFT, name="fleet-faults") as kafka:
        for members, name in [(1, NOTHING), (MEMBERS, NOTHING), *((MEMBERS, name) for name in names)]:
            began = time.monotonic()
            found.append(_one(kafka.bootstrap, name, members, rounds))
            print(f"{name}, {members} members, {time.monotonic() - began:.0f} s: {found[-1]}", flush=True)
    return found


def _one(upstream: str, fault: str, count: int, rounds: int) -> FaultResult:
    result = FaultResult(fault, count)
    with temporary_directory("fleet-faults") as directory, ExitStack() as stack:
        topic = new_topic(upstream, "faults", partitions=PARTITIONS, config=BROKERS_TIME)
        members = Members(upstream, topic, directory, count, random.Random(1))
        stack.callback(members.kill)
        members.start()
        members.go_on(BEGIN_S)
        if fault == NOTHING:
            members.go_on(QUIET_S)
        else:
            for _ in range(rounds):
                FAULTS[fault](members)
                members.go_on(BETWEEN_S)
                members.until_joined()
                result.times += 1
            members.go_on(BEGIN_S)
        result.failed_sends = sum(map(unsent, members.traffics))
        _judge(result, members, upstream, topic)
        for producer in (producer for traffic in members.traffics for producer in traffic.producers):
            producer.close()
        for sluice in members.sluices:
            sluice.stop()
    return result


def _judge(result: FaultResult, members: Members, upstream: str, topic: str) -> None:
    """Compare what the broker has stored with what was acknowledged; each member's producers have a ledger of their own."""
    messages = confluent.read_all(upstream, topic, PARTITIONS)
    held: list[tuple[int, int]] = []
    for traffic in members.traffics:
        its = [(message, entry) for message in messages if (entry := traffic.ledger.read(message.value())) is not None]
        acknowledged = [entry for producer in traffic.producers for entry in producer.acknowledged]
        result.acknowledged += len(acknowledged)
        for problem, number in traffic.ledger.judge(acknowledged, as_stored([message for message, _ in its])).problems().items():
            result.problems[problem] = result.problems.get(problem, 0) + number
        held += [(message.timestamp()[1], len(message.value())) for message, entry in its if entry.producer == HELD_NUMBER]
    result.worst_bytes = most_in_a_span(held)


def lines_of(results: Sequence[FaultResult]) -> list[str]:
    """Return the results in Markdown."""
    alone = next(one for one in results if one.members == 1)
    lines = [
        "| fault | members | times | records acknowledged | lost | twice | out of order | corrupt | failed sends | worst 10 s / bound "
        "| over one process | |",
        "|---|" + "--:|" * 10 + "---|",
    ]
    for one in results:
        ratio = one.worst / alone.worst
        is_good = not one.problems and not one.failed_sends and ratio <= WORST_MAX
        figures = [one.members, one.times, one.acknowledged, *(one.problems.get(problem, 0) for problem in PROBLEMS), one.failed_sends]
        numbers = " | ".join(f"{figure:,}" for figure in figures)
        lines.append(f"| {one.fault} | {numbers} | {one.worst:.3f} | {ratio:.3f} | {'ok' if is_good else 'miss'} |")
    return lines
