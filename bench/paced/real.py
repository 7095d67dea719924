"""Clients at a real broker, limited by Kafka's window and by a schedule at the same time, each in a Sluice of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from bench.harness.arms import Arm, start_sluice
from bench.harness.engine import Engine
from bench.harness.raw_client import Passed, Place, Wire, preload, produce_frame, saturate
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import create_topic

BOUND: Final = 2_000_000
STEADY_S: Final = 10
"""Figures begin at this second."""
WAIT_S_MAX: Final = 20.0
"""Loads whose connections x request / bound is longer are left out: their clients would give up."""
PRELOADED: Final = (1_600, 100_000)
"""Batches in the topic of the fetchers, and the bytes of each: more than one fetcher gets within 60 s, since it would wait at the end."""
WANTED: Final = 1.5
"""What clients of the latency rows send, over the bound."""


class Way(NamedTuple):
    """How a bound is enforced: by which pacing, in how many workers, and in how many members of a fleet that share it."""

    pacing: str
    workers: int = 1
    members: int = 1

    @property
    def name(self) -> str:
        """The way in a table."""
        parts = [self.pacing, f"{self.workers} workers" * (self.workers > 1), f"{self.members} proxies" * (self.members > 1)]
        return ", ".join(part for part in parts if part)

    def write_configuration(self, folder: Path) -> Path:
        """Write the configuration that all members have."""
        path = folder / f"{self.pacing}-{self.workers}-{self.members}.toml"
        tables = [f"workers = {self.workers}", "[quotas]", f'pacing = "{self.pacing}"']
        if self.members > 1:
            bus, secret = folder / f"bus-{path.stem}", folder / "secret"
            bus.mkdir(mode=0o700)
            secret.write_text("a secret that only this bench uses, which is long enough\n")
            secret.chmod(0o600)
            tables += ["[fleet]", 'name = "paced"', f'secret_file = "{secret}"', f'directory = "{bus}"']
        path.write_text("\n".join([*tables, ""]))
        return path


WAYS: Final = (Way("window"), Way("paced"))


class Load(NamedTuple):
    """Connections with one request in flight each."""

    kind: str
    connections: int
    size: int

    @property
    def name(self) -> str:
        """The load in a table."""
        return f"{self.kind}, {self.connections} x {self.size // 1_000:,} kB"


SIZES: Final = (16_000, 100_000, 1_000_000)
CONNECTIONS: Final = (1, 16, 64, 256)
EVERY: Final = [Load(kind, count, size) for kind in ("produce", "fetch") for count in CONNECTIONS for size in SIZES]
LOADS: Final = [load for load in EVERY if load.kind == "fetch" or load.connections * load.size / BOUND <= WAIT_S_MAX]
LATENCY_LOADS: Final = [Load("produce", 1, 100_000), Load("produce", 16, 100_000), Load("produce", 16, 16_000)]


class Flow(NamedTuple):
    """Figures of a load from second 10 on.

    Attributes:
        long_run: bytes over bound x time.
        seconds_even: part of the seconds with 0.9 to 1.1 of the bound.
        worst_second: bytes of the second with the most, over the bound.
        gap_p99_ms, gap_max_ms: time between two answers.
        disconnects: connections that were lost.
    """

    long_run: float
    seconds_even: float
    worst_second: float
    gap_p99_ms: float
    gap_max_ms: float
    disconnects: int


def flow_of(passed: Passed, seconds: int) -> Flow:
    """Return the figures of what passed."""
    per_second = [0] * seconds
    for at, size, _ in passed.samples:
        if at < seconds:
            per_second[int(at)] += size
    rates = [size / BOUND for size in per_second[STEADY_S:]]
    times = sorted(at for at, _, _ in passed.samples if STEADY_S <= at < seconds)
    return Flow(sum(rates) / len(rates), evenness(rates), max(rates), *gaps_ms(times, seconds), passed.disconnects)


def evenness(rates: Sequence[float]) -> float:
    """Return the part of the seconds with 0.9 to 1.1 of the bound; `rates` are those of the seconds, over the bound."""
    return sum(0.9 <= rate <= 1.1 for rate in rates) / len(rates)


def gaps_ms(times: Sequence[float], seconds: int) -> tuple[float, float]:
    """Return the 99th percentile and the longest of the gaps between answers from second 10 on, of which `times` are the seconds."""
    gaps = sorted(later - earlier for earlier, later in pairwise([STEADY_S, *times, seconds]))
    return _quantile(gaps, 0.99) * 1e3, gaps[-1] * 1e3


def _quantile(values: Sequence[float], part: float) -> float:
    return values[min(len(values) - 1, int(part * len(values)))]


@dataclass
class Latencies:
    """Time from request to answer of each request from second 10 on."""

    seconds: list[float] = field(default_factory=list)

    def quantile_ms(self, part: float) -> float:
        """Return a quantile in milliseconds."""
        return _quantile(sorted(self.seconds), part) * 1e3


def together(parts: Iterable[Passed]) -> Passed:
    """Return what passed at all members."""
    whole = Passed()
    for part in parts:
        whole.samples += part.samples
        whole.disconnects += part.disconnects
    return whole


class RealBroker:
    """A broker with a Sluice, or a fleet of them, for each way. A context manager."""

    def __init__(self, ways: Sequence[Way] = WAYS) -> None:
        self._ways = ways
        self._stack = ExitStack()
        self._arms: dict[Way, list[Arm]] = {}

    def __enter__(self) -> RealBroker:
        with self._stack as stack:
            engine = Engine()
            stack.callback(engine.close)
            cluster = stack.enter_context(KafkaCluster(KRAFT, name="paced", settings={"log.retention.bytes": 2_000_000_000}))
            port = int(cluster.bootstrap.rsplit(":", 1)[1])
            with JavaTools(KRAFT) as tools:
                for kind in ("produce", "fetch"):
                    create_topic(tools, cluster.bootstrap, f"paced-{kind}")
            for way in self._ways:
                flags = ["--config", str(way.write_configuration(engine.folder))]
                self._arms[way] = []
                for _ in range(way.members):
                    self._arms[way].append(start_sluice(port, engine.folder, produce=BOUND, fetch=BOUND, flags=flags))
                    stack.callback(self._arms[way][-1].stop)
            asyncio.run(preload(port, "paced-fetch", *PRELOADED))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def flow(self, load: Load, seconds: int) -> dict[Way, Flow]:
        """Run a load in all ways at once, with a group for each."""
        return asyncio.run(self._flow(load, seconds))

    async def _flow(self, load: Load, seconds: int) -> dict[Way, Flow]:
        passed = await asyncio.gather(*(self._saturate(way, load, seconds) for way in self._ways))
        return {way: flow_of(one, seconds) for way, one in zip(self._ways, passed, strict=True)}

    async def _saturate(self, way: Way, load: Load, seconds: int) -> Passed:
        """Run the connections of a load, an equal number at each member."""
        places = self._places(way, load, "flow")
        return together(await asyncio.gather(*(saturate(load.kind, place, load.connections // way.members, seconds) for place in places)))

    def latencies(self, load: Load, seconds: int) -> dict[Way, Latencies]:
        """Run producers that send 1.5 times the bound, in all ways at once; their requests are 0 to 1 in flight on each connection."""
        return asyncio.run(self._latencies(load, seconds))

    async def _latencies(self, load: Load, seconds: int) -> dict[Way, Latencies]:
        found = {way: Latencies() for way in self._ways}
        places = [(self._places(way, load, "latency")[0], found[way]) for way in self._ways for _ in range(load.connections)]
        await asyncio.gather(*(_produce_at(place, load, seconds, latencies) for place, latencies in places))
        return found

    def _places(self, way: Way, load: Load, what: str) -> list[Place]:
        client_id = f"{what}-{load.kind}-{load.connections}-{load.size}"
        return [Place(arm.port, client_id, f"paced-{load.kind}", load.size) for arm in self._arms[way]]


async def _produce_at(place: Place, load: Load, seconds: int, latencies: Latencies) -> None:
    """Send requests at 1.5 times the bound over all connections; a late request is sent at once, and none is made up for."""
    wire, frame, begin = await Wire.open(place.port), produce_frame(place), time.monotonic()
    interval, due = load.connections * load.size / BOUND / WANTED, begin
    while (now := time.monotonic()) < begin + seconds:
        due = max(due + interval, now)
        await asyncio.sleep(due - now)
        sent = time.monotonic()
        await wire.ask(frame)
        if sent >= begin + STEADY_S:
            latencies.seconds.append(time.monotonic() - sent)
    wire.close()


def real_lines(seconds: int, loads: Sequence[Load] = LOADS) -> Iterator[str]:
    """Yield the tables in Markdown."""
    low, high = 0.98, 1.02
    yield "| load | pacing | long run | seconds at 0.9 to 1.1 | worst second | gap p99, max | disconnects | goal |"
    yield "|---|---|--:|--:|--:|--:|--:|---|"
    with RealBroker() as broker:
        for load in loads:
            for way, flow in broker.flow(load, seconds).items():
                goal = "" if way.pacing == "window" else "ok" if low <= flow.long_run <= high and flow.seconds_even >= 0.95 else "miss"
                figures = f"{flow.long_run:.3f} | {flow.seconds_even:.0%} | {flow.worst_second:.2f}"
                gaps = f"{flow.gap_p99_ms:,.0f}, {flow.gap_max_ms:,.0f} ms"
                yield f"| {load.name} | {way.name} | {figures} | {gaps} | {flow.disconnects} | {goal} |"
        yield ""
        yield "| load at 1.5 times the bound | window: p50, p99 | paced: p50, p99 | goal |"
        yield "|---|--:|--:|---|"
        for load in LATENCY_LOADS:
            found = broker.latencies(load, seconds)
            window, paced = ([found[way].quantile_ms(part) for part in (0.5, 0.99)] for way in WAYS)
            goal = "" if load.size < 100_000 else "ok" if paced[1] <= window[1] / 3 else "miss"
            yield f"| {load.name} | {window[0]:,.0f}, {window[1]:,.0f} ms | {paced[0]:,.0f}, {paced[1]:,.0f} ms | {goal} |"


PROCESS_LOADS: Final = (
    *(Load("produce", count, size) for count, size in ((16, 16_000), (16, 100_000), (64, 100_000))),
    *(Load("fetch", count, size) for count, size in ((16, 100_000), (64, 100_000))),
)


def process_lines(seconds: int, ways: Sequence[Way]) -> Iterator[str]:
    """Yield the table of several processes that enforce one schedule: within 3 % of the bound in the long run."""
    yield "| load | pacing | long run | seconds at 0.9 to 1.1 | worst second | gap p99, max | disconnects | goal |"
    yield "|---|---|--:|--:|--:|--:|--:|---|"
    with RealBroker(ways) as broker:
        for load in PROCESS_LOADS:
            for way, flow in broker.flow(load, seconds).items():
                figures = f"{flow.long_run:.3f} | {flow.seconds_even:.0%} | {flow.worst_second:.2f}"
                gaps = f"{flow.gap_p99_ms:,.0f}, {flow.gap_max_ms:,.0f} ms"
                goal = "ok" if 0.97 <= flow.long_run <= 1.03 else "miss"
                yield f"| {load.name} | {way.name} | {figures} | {gaps} | {flow.disconnects} | {goal} |"
