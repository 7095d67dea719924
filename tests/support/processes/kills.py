"""Kills Sluice repeatedly under traffic, then checks the records at the broker and the decisions in the files."""

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.manifest import find_manifests, problems_of
from pipeline.validation.local import validate
from proxy.metering.repair import repair
from tests.support.clients import confluent
from tests.support.clients.recorder import IDEMPOTENT, RecordingProducer, as_stored
from tests.support.processes.counted_sluice import COUNT, counted
from tests.support.processes.ledger import Ledger
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

PARTITIONS = 3
FREE, HELD = "free", "held"
HELD_BYTES_PER_SECOND = 40_000
BODY_BYTES = 64
BURST, BURST_S = 10, 0.01
WAITING_MAX = 1_000
WINDOWS = 3
KILL_AFTER_S_MAX = 0.4
ANSWER_S_MAX = 60
RECONNECT = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100}
EXACT_LEVEL, DEFAULT_LEVEL = "trace", "packed"
MODES = ("mute", "delay")


@dataclass
class Stretch:
    """The result of a series of kills: all fields but the first eight must be 0 or empty.

    Attributes:
        in_flight: records without an answer at the times of the kills.
        decisions: decisions that the files hold or count as lost; `dropped` were lost, `noted` were counted beside the meter (level
            `trace`) or read from /metrics before the kill (level `packed`, where that is a lower bound).
        uncounted: the difference between decisions in `noted` and in the files.
    """

    seed: int
    mode: str
    level: str
    kills: int = 0
    acknowledged: int = 0
    in_flight: int = 0
    decisions: int = 0
    noted: int = 0
    dropped: int = 0
    problems: dict[str, int] = field(default_factory=dict)
    failed_sends: int = 0
    uncounted: int = 0
    metering_problems: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether nothing is lost, duplicated, out of order or uncounted."""
        return not (self.problems or self.failed_sends or self.uncounted or self.metering_problems)


class Traffic:
    """Two idempotent producers that continue while Sluice is killed and restarted: one without a quota, one far over it."""

    def __init__(self, bootstrap: str, topic: str, *, burst: int = BURST, pause_s: float = BURST_S) -> None:
        self.ledger = Ledger()
        self._burst, self._pause_s = burst, pause_s
        settings = IDEMPOTENT | RECONNECT
        self.producers = [
            RecordingProducer(self.ledger, bootstrap, topic, PARTITIONS, {**settings, "client.id": name}, number)
            for number, name in enumerate((FREE, HELD), start=1)
        ]

    @property
    def acknowledged(self) -> int:
        return sum(len(producer.acknowledged) for producer in self.producers)

    @property
    def in_flight(self) -> int:
        return sum(producer.waiting() for producer in self.producers)

    def go_on(self, seconds: float) -> None:
        """Send for a while."""
        end = time.monotonic() + seconds
        while True:
            for producer in self.producers:
                if producer.waiting() < WAITING_MAX:
                    producer.send([BODY_BYTES] * self._burst)
                producer.poll(0)
            if time.monotonic() >= end:
                return
            self.producers[0].poll(self._pause_s)

    def until_answered(self) -> None:
        """Send until the producer without a quota gets another answer."""
        before, deadline = len(self.producers[0].acknowledged), time.monotonic() + ANSWER_S_MAX
        while len(self.producers[0].acknowledged) == before:
            self.go_on(self._pause_s)
            assert time.monotonic() < deadline, "no answer through a Sluice that is ready"


@contextmanager
def killable(upstream: str, directory: Path, mode: str, level: str, name: str) -> Iterator[Callable[[Path], SluiceProcess]]:
    """Return a function that starts a Sluice on the same ports each time, with metering in `directory`; its argument is the file of the
    count.
    """
    quotas = write_quotas(directory / "quotas.toml", [{"client-id": HELD, "producer_byte_rate": HELD_BYTES_PER_SECOND}])
    config = directory / "sluice.toml"
    config.write_text(f'[quotas]\nwindow_num = {WINDOWS}\n[metering]\ndir = "metering"\nproxy_id = "edge-1"\nlevel = "{level}"\n')
    sluice = SluiceProcess(
        upstream,
        quotas=quotas,
        enforcement=mode,
        arguments=("--config", str(config)),
        name=name,
        module="tests.support.processes.counted_sluice",
    )

    def start(path: Path) -> SluiceProcess:
        sluice.environment[COUNT] = str(path)
        sluice.start()
        return sluice

    try:
        yield start
    finally:
        sluice.kill()


def kill_often(upstream: str, topic: str, directory: Path, kills: int, seed: int, *, name: str = "sluice-killed") -> Stretch:
    """Kill Sluice repeatedly in front of a real broker, check records and decisions, and return the result.

    Args:
        topic: an empty topic with `PARTITIONS` partitions.
        directory: an empty folder for settings, metering and counts.
        seed: seed of the times of the kills, the mode and the level of metering.
    """
    dice = random.Random(seed)
    stretch = Stretch(seed, MODES[seed % 2], (EXACT_LEVEL, DEFAULT_LEVEL)[seed // 2 % 2])
    counts = [directory / f"count-{number}" for number in range(kills + 1)]
    seen: list[int] = []
    with killable(upstream, directory, stretch.mode, stretch.level, name) as start:
        sluice = start(counts[0])
        traffic = Traffic(sluice.bootstrap, topic)
        for path in counts[1:]:
            traffic.until_answered()
            traffic.go_on(dice.uniform(0, KILL_AFTER_S_MAX))
            if stretch.level == DEFAULT_LEVEL:
                seen.append(_decisions_seen(sluice))
            stretch.in_flight += traffic.in_flight
            sluice.send(signal.SIGKILL)
            sluice.wait()
            stretch.kills += 1
            traffic.go_on(0)
            sluice = start(path)
        stretch.failed_sends = unsent(traffic)
        sluice.stop()
    stored = as_stored(confluent.read_all(upstream, topic, PARTITIONS))
    acknowledged = [entry for producer in traffic.producers for entry in producer.acknowledged]
    stretch.acknowledged = len(acknowledged)
    stretch.problems = traffic.ledger.judge(acknowledged, stored).problems()
    _settle_decisions(stretch, directory / "metering", counts, seen)
    return stretch


def _decisions_seen(sluice: SluiceProcess) -> int:
    """Return a lower bound of the decisions: those that were written, or those with a wait."""
    written = sluice.metric("kafka_sluice_metering_decisions_total")
    return int(max(written, sluice.metric("kafka_quota_throttled_requests_total")))


def unsent(traffic: Traffic) -> int:
    """Wait for the last answers; return how many records failed or have no answer."""
    deadline = time.monotonic() + 2 * ANSWER_S_MAX
    while traffic.in_flight and time.monotonic() < deadline:
        for producer in traffic.producers:
            producer.poll(0.05)
    return traffic.in_flight + sum(len(producer.failed) for producer in traffic.producers)


def _settle_decisions(stretch: Stretch, directory: Path, counts: list[Path], seen: list[int]) -> None:
    stretch.metering_problems += repair(directory).problems
    manifests = find_manifests(directory)
    stretch.metering_problems += [problem for one in manifests for problem in problems_of(directory, one)]
    verdict = validate(directory)
    stretch.metering_problems += [f"{kind}: {count}" for kind, count in verdict.kinds().items()]
    accounted: dict[str, int] = {}
    for one in manifests:
        accounted[one.run_id] = max(accounted.get(one.run_id, 0), one.last_seq + 1)
    for number, path in enumerate(counts):
        run_id, noted = counted(path)
        was_killed = number < len(counts) - 1
        found = accounted.get(run_id, 0)
        if stretch.level == DEFAULT_LEVEL:
            noted = seen[number] if was_killed else 0
            stretch.uncounted += max(noted - found, 0)
        else:
            stretch.uncounted += max(noted - found, found - noted - was_killed, 0)
        stretch.noted += noted
    stretch.decisions = sum(accounted.values())
    stretch.dropped = sum(one.dropped_decisions for one in manifests)
    held = verdict.decisions + verdict.unjudged + verdict.dropped
    stretch.uncounted += abs(stretch.decisions - held)
