"""Fleets of real processes at a real broker, and loads on them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Self

from bench.harness.arms import Arm, start_sluice
from bench.harness.engine import Engine
from bench.harness.raw_client import Passed, Place, preload, saturate
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import create_topic

BOUND: Final = 1_000_000
KINDS: Final = ("produce", "fetch")
PRODUCE_BYTES: Final = 100_000
CONNECTIONS: Final = 16
MOVE_S: Final = 10.0
BURST_S: Final = 15
"""Slightly more than the quota's window: figures leave out the burst of the first ten seconds."""
WORST_S: Final = 10
LONG_RUN_GOAL: Final = 0.03
WORST_GOAL: Final = 1.05
FAIRNESS_GOAL: Final = 0.95
_PRELOADED: Final = (320, 100_000)


@dataclass
class Cell:
    """One load on one fleet; `members` is 1 for a process without a fleet.

    Attributes:
        passed: by member.
        lag_ms: the highest lag of the bus that a member reported.
    """

    kind: str
    load: str
    members: int
    passed: list[Passed]
    seconds: float
    lag_ms: float | None

    def rate(self, after: float, until: float) -> float:
        """Return the rate of all members over the bound."""
        return sum(one.rate(after, until) for one in self.passed) / BOUND

    @property
    def long_run(self) -> float:
        """rate / bound after the burst."""
        return self.rate(BURST_S, self.seconds)

    @property
    def worst(self) -> float:
        """rate / bound in the 10 s after the burst in which most passed."""
        return max(self.rate(end - WORST_S, end) for end in range(BURST_S + WORST_S, int(self.seconds) + 1))

    @property
    def fairness(self) -> float:
        """Jain's index of the bytes of the members after the burst."""
        shares = [one.rate(BURST_S, self.seconds) for one in self.passed]
        return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))

    def figures(self) -> dict[str, Any]:
        """Return the figures for the JSON report."""
        names = ("kind", "load", "members", "seconds", "lag_ms", "long_run", "worst", "fairness")
        return {name: getattr(self, name) for name in names}


class Fleets:
    """A broker, one Sluice without a fleet, and fleets of these sizes; a context manager.

    Args:
        sizes: numbers of members.
        fetch_bytes: the most that a fetch may return.
    """

    def __init__(self, sizes: Sequence[int], fetch_bytes: int) -> None:
        self._sizes = sizes
        self._bytes = {"produce": PRODUCE_BYTES, "fetch": fetch_bytes}
        self._stack = ExitStack()
        self._arms: dict[int, list[Arm]] = {}

    def __enter__(self) -> Self:
        engine = Engine()
        self._stack.callback(engine.close)
        cluster = self._stack.enter_context(KafkaCluster(KRAFT, name="fleet", settings={"log.retention.bytes": 2_000_000_000}))
        self._port = int(cluster.bootstrap.rsplit(":", 1)[1])
        with JavaTools(KRAFT) as tools:
            for kind in KINDS:
                create_topic(tools, cluster.bootstrap, f"fleet-{kind}")
        asyncio.run(preload(self._port, "fleet-fetch", *_PRELOADED))
        secret = engine.folder / "secret"
        secret.write_text(secrets.token_hex(32))
        secret.chmod(0o600)
        for size in (1, *self._sizes):
            self._arms[size] = [self._member(engine, size, number) for number in range(size)]
        return self

    def _member(self, engine: Engine, size: int, number: int) -> Arm:
        flags = ["--enforcement", "mute"]
        if size > 1:
            config = engine.folder / f"fleet-{size}-{number}.toml"
            config.write_text(f'[fleet]\nname = "fleet-{size}"\ntopic = "__fleet_{size}"\nmember = "m{number}"\nsecret_file = "secret"\n')
            flags += ["--config", str(config)]
        arm = start_sluice(self._port, engine.folder, produce=BOUND, fetch=BOUND, flags=flags)
        self._stack.callback(arm.stop)
        return arm

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    async def run(self, kind: str, load: str, seconds: float) -> list[Cell]:
        """Run one load at all fleets at the same time."""
        return await asyncio.gather(*(self._run(size, kind, load, seconds) for size in self._arms))

    async def _run(self, size: int, kind: str, load: str, seconds: float) -> Cell:
        arms = self._arms[size]
        places = [Place(arm.port, f"{kind}-{load}-{size}", f"fleet-{kind}", self._bytes[kind]) for arm in arms]
        if load == "moving":
            passed = await _moving(kind, places, seconds)
        else:
            counts = [CONNECTIONS // size] * size if load == "even" else [CONNECTIONS - size + 1] + [1] * (size - 1)
            runs = (saturate(kind, place, count, seconds) for place, count in zip(places, counts, strict=True))
            passed = list(await asyncio.gather(*runs))
        lags = [await asyncio.to_thread(arm.metric, "kafka_sluice_fleet_lag_seconds") for arm in arms] if size > 1 else []
        return Cell(kind, load, size, passed, seconds, max(lags, default=0.0) * 1_000 or None)


async def _moving(kind: str, places: Sequence[Place], seconds: float) -> list[Passed]:
    """Let all clients be at one member for 10 s, then at the next one; connections stay open for that time only."""
    passed = [Passed() for _ in places]
    start = passed[0].start
    at = 0
    while (left := seconds - at * MOVE_S) > 0:
        number = at % len(places)
        found = await saturate(kind, places[number], CONNECTIONS, min(MOVE_S, left))
        shift = found.start - start
        passed[number].samples += [(at_s + shift, size, throttle_ms) for at_s, size, throttle_ms in found.samples]
        at += 1
    return passed


def lines_of(cells: Sequence[Cell]) -> list[str]:
    """Return all cells in Markdown, each fleet beside the process without one."""
    lines = [
        "| load | members | rate / bound | over one process | worst 10 s | over one process | Jain's index | lag of the bus | |",
        "|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    alone = {(cell.kind, cell.load): cell for cell in cells if cell.members == 1}
    for cell in cells:
        one = alone[cell.kind, cell.load]
        figures = f"| {cell.kind}, {cell.load} | {cell.members} | {cell.long_run:.3f} "
        if cell is one:
            lines.append(f"{figures}| | {cell.worst:.3f} | | | | |")
            continue
        long_run, worst = cell.long_run / one.long_run, cell.worst / one.worst
        is_fair = cell.load != "even" or cell.fairness >= FAIRNESS_GOAL
        is_met = abs(long_run - 1) <= LONG_RUN_GOAL and worst <= WORST_GOAL and is_fair
        lag = "" if cell.lag_ms is None else f"{cell.lag_ms:.0f} ms"
        lines.append(
            f"{figures}| {long_run:.3f} | {cell.worst:.3f} | {worst:.3f} | {cell.fairness:.3f} | {lag} | {'ok' if is_met else 'miss'} |"
        )
    return lines
