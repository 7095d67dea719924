"""CPU of a request under a schedule with room in its burst over that with a window: whole processes, in alternating pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench.harness.engine import Engine
from bench.harness.frames import fetch_request
from bench.paced.real import Way
from bench.workers.cost import Demand, Side, compare, small_produce

CONNECTIONS: Final = 8
GOAL: Final = 1.02
DEMANDS: Final = (
    ("Produce of 200 B", small_produce(CONNECTIONS, 0)),
    ("Fetch", Demand(fetch_request(11), CONNECTIONS, 0)),
)


def cpu_lines(*, starts: int, pairs: int, seconds: float) -> Iterator[str]:
    """Yield the table in Markdown; a goal is missed only if the whole interval is above it."""
    yield "| request, one in flight | CPU, schedule / window (median) | 95 % interval | pairs | goal |"
    yield "|---|--:|--:|--:|---|"
    engine = Engine()
    try:
        paced, window = ([["--config", str(Way(pacing).write_configuration(engine.folder))]] for pacing in ("paced", "window"))
        for name, demand in DEMANDS:
            ratio = compare(engine, Side([1], demand, paced), Side([1], demand, window), starts=starts, pairs=pairs, seconds=seconds).ratio
            goal = "miss" if ratio.low > GOAL else "ok"
            yield f"| {name} | {ratio.middle:.3f} | {ratio.low:.3f} - {ratio.high:.3f} | {starts * pairs} | {goal} |"
    finally:
        engine.close()
