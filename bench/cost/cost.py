"""CPU time of the proxy's process per request, relative to the bare pump.

Every load runs through all proxies in turn (ABAB...), so that other load of the machine affects all of them alike, and the median of the
runs counts. The peers of the proxy are a stub broker and a load generator that use little CPU themselves.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.harness.arms import Arm, Starter
from bench.harness.engine import Engine, cpu_seconds
from bench.harness.frames import Template, api_versions_request, fetch_request, metadata_request, produce_request

KIB, MIB = 1 << 10, 1 << 20
SMALL_RECORD_BYTES = 200


@dataclass(frozen=True, slots=True)
class CostLoad:
    """One row of the cost table."""

    name: str
    goal: float | None
    request: Template | Sequence[Template]
    conns: int = 8
    depth: int = 1
    rate: float = 0.0
    churn: bool = False
    fetch_record_bytes: int = 1
    runs: int = 5
    quick_runs: int = 3

    @property
    def what(self) -> str:
        """Return the row as text."""
        if self.churn and self.rate:
            return f"{self.rate:,.0f} new connections/s, two requests each"
        pace = f"{self.rate:,.0f} requests/s in all" if self.rate else f"{self.depth} in flight"
        return f"{self.conns:,} connections, " + ("one request each" if self.churn else pace)


LOADS = [
    CostLoad("produce-200B-depth1", 1.10, produce_request(7, filler=SMALL_RECORD_BYTES)),
    CostLoad("produce-200B-depth16", 1.60, produce_request(7, filler=SMALL_RECORD_BYTES), depth=16),
    CostLoad("produce-1MB", 1.02, produce_request(7, filler=MIB), runs=16, quick_runs=6),
    CostLoad("fetch-1MB", 1.04, fetch_request(11), fetch_record_bytes=MIB, runs=16, quick_runs=6),
    CostLoad("conns-1000", 1.25, produce_request(7, filler=SMALL_RECORD_BYTES), conns=1_000, rate=2_000),
    CostLoad("churn", 1.60, api_versions_request(3), conns=32, churn=True),
    CostLoad(
        "churn-500-a-second",
        1.40,
        [api_versions_request(3), metadata_request(12), produce_request(7, filler=SMALL_RECORD_BYTES)],
        conns=256,
        rate=500,
        churn=True,
    ),
    CostLoad("churn-8", None, api_versions_request(3), churn=True),
    CostLoad("churn-128", None, api_versions_request(3), conns=128, churn=True),
    CostLoad("newest-produce-200B", 1.50, produce_request(13, filler=SMALL_RECORD_BYTES)),
    CostLoad("newest-fetch-4KB", 1.50, fetch_request(18), fetch_record_bytes=4 * KIB),
    CostLoad("newest-fetch-1MB", 1.50, fetch_request(18), fetch_record_bytes=MIB, runs=16, quick_runs=6),
]


@dataclass
class Cost:
    """The runs of one load through one proxy: microseconds of CPU per request, and requests per second."""

    microseconds: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)


@dataclass
class CostRow:
    """One load with all its proxies."""

    load: CostLoad
    costs: dict[str, Cost]
    problems: list[str] = field(default_factory=list)

    def ratio(self, name: str) -> float | None:
        """Return the median cost over the pump's median cost."""
        if not self.costs[name].microseconds or not self.costs["pump"].microseconds:
            return None
        return median(self.costs[name].microseconds) / median(self.costs["pump"].microseconds)


def measure_cost(
    engine: Engine,
    load: CostLoad,
    starters: dict[str, Starter],
    *,
    seconds: float,
    warm_seconds: float,
    runs: int,
    say: Callable[[str], None],
) -> CostRow:
    """Run one load `runs` times through each proxy, in turn."""
    row = CostRow(load, {name: Cost() for name in starters})
    stub, stub_port = engine.stub(load.fetch_record_bytes)
    arms: dict[str, Arm] = {}
    try:
        for name, start in starters.items():
            arms[name] = start(stub_port, engine.folder)
        for turn in range(runs):
            for name in _order(list(arms), turn):
                _one_run(engine, load, arms[name], row, seconds, warm_seconds)
            say(f"  run {turn + 1}/{runs}: " + ", ".join(_latest(row, name) for name in arms))
    finally:
        for arm in arms.values():
            arm.stop()
        stub.stop()
    return row


def _order(names: list[str], turn: int) -> list[str]:
    """Return the order of a turn: every second one is reversed."""
    return names if turn % 2 == 0 else names[::-1]


def _latest(row: CostRow, name: str) -> str:
    costs = row.costs[name].microseconds
    return f"{name} {costs[-1]:.2f} us" if costs else f"{name} failed"


def _one_run(engine: Engine, load: CostLoad, arm: Arm, row: CostRow, seconds: float, warm_seconds: float) -> None:
    try:
        us, per_second = measure_slice(engine, load, arm, seconds, warm_seconds)
    except (RuntimeError, OSError) as error:
        row.problems.append(f"{arm.name}: {error}")
        return
    row.costs[arm.name].microseconds.append(us)
    row.costs[arm.name].per_second.append(per_second)


def measure_slice(engine: Engine, load: CostLoad, arm: Arm, seconds: float, warm_seconds: float) -> tuple[float, float]:
    """Send one load through one proxy for `seconds`, after `warm_seconds`.

    Returns:
        CPU microseconds per request, and requests per second.

    Raises:
        RuntimeError: no request was answered, or the load generator ended.
    """
    pids = arm.pids()
    running = engine.load(load.request, arm.port, conns=load.conns, depth=load.depth, rate=load.rate, churn=load.churn)
    try:
        time.sleep(warm_seconds)
        cpu, done, start = cpu_seconds(pids), running.done(), time.monotonic()
        time.sleep(seconds)
        cpu, done, elapsed = cpu_seconds(pids) - cpu, running.done() - done, time.monotonic() - start
    finally:
        running.stop()
    if not done:
        raise RuntimeError("no request was answered")
    return cpu / done * 1e6, done / elapsed


def row_lines(rows: Sequence[CostRow]) -> list[str]:
    """Return the cost table in Markdown."""
    lines = [
        "| load | proxy | CPU us/request (median) | lowest - highest | requests/s | x pump | goal | |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        for name, cost in row.costs.items():
            lines.append(_row_line(row, name, cost))
    return lines


def _row_line(row: CostRow, name: str, cost: Cost) -> str:
    title = f"{row.load.name} ({row.load.what})"
    if not cost.microseconds:
        return f"| {title} | {name} | failed | | | | | |"
    us = cost.microseconds
    ratio = row.ratio(name)
    shown = "" if ratio is None else f"{ratio:.2f}"
    judged = row.load.goal if name == "sluice" else None
    goal, verdict = ("", "") if judged is None else (f"<= {judged:.2f}", verdict_of(ratio, judged))
    spread = f"{min(us):.2f} - {max(us):.2f}"
    return f"| {title} | {name} | {median(us):.2f} | {spread} | {median(cost.per_second):,.0f} | {shown} | {goal} | {verdict} |"


def verdict_of(figure: float | None, goal: float) -> str:
    """Return "ok" or "miss"."""
    return "miss" if figure is None or figure > goal else "ok"
