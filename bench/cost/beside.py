"""CPU of a request in this checkout over that in another one: the rows of the cost table in alternating pairs.

Both Sluices run at the same time and get one slice of load each in turn, every second time in the opposite order. A figure is the median of
the ratios of neighbouring slices, with its interval. All processes of a start have the same memory layout, and the next start has another
one.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.cost.cost import CostLoad, measure_slice
from bench.cost.intervals import Interval, median_interval
from bench.harness.arms import Arm, start_sluice
from bench.harness.engine import ROOT, Engine

STARTS = 4
LIMIT = 1.03


@dataclass
class BesideRow:
    """One load: CPU microseconds per request of each slice, in order."""

    load: CostLoad
    here_us: list[float] = field(default_factory=list)
    there_us: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> Interval:
        """Return this checkout's figure over the other's."""
        return median_interval([here / there for here, there in zip(self.here_us, self.there_us, strict=True)])

    @property
    def is_slower(self) -> bool:
        """Whether the whole interval is above the limit."""
        return self.ratio.low > LIMIT


def measure_beside(
    engine: Engine, load: CostLoad, other: Path, *, pairs: int, seconds: float, warm_seconds: float, say: Callable[[str], None]
) -> BesideRow:
    """Measure one load in `pairs` pairs, divided over some starts of both Sluices.

    Args:
        engine: the peers of both Sluices.
        load: a row of the cost table.
        other: a checkout of the same command line; it runs with this one's interpreter and libraries.
        pairs: the number of pairs, at least one for each start.
        seconds: the length of one slice.
        warm_seconds: warm-up before the first slice of a start, and before each slice.
        say: is called with a line for each start.
    """
    row = BesideRow(load)
    for seed in range(1, STARTS + 1):
        with ExitStack() as stack:
            stub, stub_port = engine.stub(load.fetch_record_bytes)
            stack.callback(stub.stop)
            here, there = (_started(engine, stack, stub_port, checkout, seed) for checkout in (ROOT, other))
            for arm in (here, there):
                measure_slice(engine, load, arm, warm_seconds, warm_seconds)  # the first slice of a process is slower than later ones
            for turn in range(pairs * seed // STARTS - pairs * (seed - 1) // STARTS):
                order = (here, there) if turn % 2 == 0 else (there, here)
                us = {id(arm): measure_slice(engine, load, arm, seconds, warm_seconds)[0] for arm in order}
                row.here_us.append(us[id(here)])
                row.there_us.append(us[id(there)])
        say(f"  start {seed}/{STARTS}: {row.ratio.middle:.3f} of the other's CPU")
    return row


def _started(engine: Engine, stack: ExitStack, stub_port: int, checkout: Path, seed: int) -> Arm:
    arm = start_sluice(stub_port, engine.folder, seed=seed, checkout=checkout)
    stack.callback(arm.stop)
    return arm


def beside_lines(rows: Sequence[BesideRow]) -> list[str]:
    """Return the table in Markdown."""
    lines = [f"| load | CPU here / there (median) | 95 % interval | pairs | at most {LIMIT:.2f} |", "|---|--:|--:|--:|---|"]
    for row in rows:
        ratio, verdict = row.ratio, "slower" if row.is_slower else "ok"
        title = f"{row.load.name} ({row.load.what})"
        lines.append(f"| {title} | {ratio.middle:.3f} | {ratio.low:.3f} - {ratio.high:.3f} | {len(row.here_us)} | {verdict} |")
    return lines
