"""The cost of metering: `python -m bench.metering [--quick] [--load NAME]... [--processes N] [--slices N]`.

First the bench times sessions without sockets, with and without a meter in turn. Then loads run through a Sluice with and without metering,
see `bench.metering.slices`. At last it writes a trace and measures its files. The last line says whether the goals are met; the exit code
is 0 either way.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

from bench.cost.cost import LOADS
from bench.harness.engine import Engine
from bench.metering.slices import OFF, ON, OTHER_OFF, Slices, compared, measured
from bench.metering.trace import Shape, decide
from bench.metering.trace import write as write_trace
from bench.micro_session import LOADS as SESSION_LOADS
from bench.micro_session import no_collection, prepared

EVENTS = 1_000_000
BYTES_MAX = 8.0
LOOP_US_MAX = 0.5
LOSS_PERCENT_MAX = 2.0
NAMES = ("produce-200B-depth1", "produce-200B-depth16", "newest-fetch-4KB")
SESSIONS = {
    "one Produce at a time": ("Produce v7, 200 B", 1),
    "sixteen": ("Produce v7, 200 B", 16),
    "one Fetch": ("Fetch v18, 4 KiB", 1),
}
ROUNDS, ROUND_REQUESTS = 1_000, 256
CONNECTIONS = 8
PROCESSES, SLICES = 3, 400
QUICK_PROCESSES, QUICK_SLICES = 2, 150


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both figures."""
    options = _options(arguments)
    own = loop_cost_us()
    print(f"a session, per request (goal {LOOP_US_MAX} us): " + ", ".join(f"{name} {us:+.3f} us" for name, us in own.items()), flush=True)
    losses = _throughput(options)
    worst = max(losses.values(), default=0.0)
    sizes = bytes_per_event()
    print(f"bytes per decision, {EVENTS:,} decisions: " + ", ".join(f"{name} {size:.2f}" for name, size in sizes.items()))
    verdict = "ok" if max(own.values()) <= LOOP_US_MAX and worst <= LOSS_PERCENT_MAX and sizes["dense"] <= BYTES_MAX else "missed"
    print(f"goals {LOOP_US_MAX} us, {LOSS_PERCENT_MAX} %, {BYTES_MAX} bytes: {verdict}")
    return 0


def loop_cost_us() -> dict[str, float]:
    """Return the additional microseconds of a request and its answer in a session with a meter: decision, usage and hand-over, without
    a writer.
    """
    return {name: _more_us(load, depth) for name, (load, depth) in SESSIONS.items()}


def _more_us(load: str, depth: int) -> float:
    off, on = (prepared(SESSION_LOADS[load], CONNECTIONS, metered=metered, depth=depth) for metered in (False, True))
    with no_collection():
        return median(on(ROUND_REQUESTS) - off(ROUND_REQUESTS) for _ in range(ROUNDS))


def bytes_per_event() -> dict[str, float]:
    """Return the bytes of finished files (Parquet and manifests) per decision: at the density of 10 million an hour, and at a tenth of
    it.
    """
    shapes = {"dense": Shape(EVENTS, seconds=360), "sparse": Shape(EVENTS, seconds=3_600)}
    found: dict[str, float] = {}
    for name, shape in shapes.items():
        with tempfile.TemporaryDirectory() as folder:
            directory = write_trace(Path(folder), shape, decide(shape))
            size = sum(path.stat().st_size for path in directory.rglob("*") if path.suffix in (".parquet", ".json"))
            found[name] = size / shape.events
    return found


def _throughput(options: argparse.Namespace) -> dict[str, float]:
    """Measure the throughput that metering costs the loop, in percent, by load.

    A loop that is never idle serves 1 / (its CPU time per request), so throughput falls as that time rises.
    """
    engine = Engine(python_only=False)
    losses: dict[str, float] = {}
    try:
        for load in (load for load in LOADS if load.name in options.load):
            print(f"{load.name}: {load.what}", flush=True)
            losses[load.name] = _reported(measured(engine, load, options.processes, options.slices))
    finally:
        engine.close()
    return losses


def _reported(slices: Slices) -> float:
    loss = compared(slices.loop_us, ON, OFF, OTHER_OFF)
    off_us, on_us = median(slices.loop_us[OFF]), median(slices.loop_us[ON])
    print(
        f"  loop          {off_us:.2f} -> {on_us:.2f} us/request: {loss}, median of {len(slices.loop_us[ON]):,} slices between two others"
    )
    print(f"  off twice     {compared(slices.loop_us, OTHER_OFF, OFF)}")
    seen = compared(slices.per_second, ON, OFF, OTHER_OFF)
    print(f"  seen          {median(slices.per_second[OFF]):,.0f} requests/s, with metering {seen}")
    print(f"  other threads {mean(slices.others_us[OFF]):.2f} -> {mean(slices.others_us[ON]):.2f} us/request, the writer's too", flush=True)
    return loss.percent


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.metering", description="What metering costs, on against off.")
    parser.add_argument("--load", action="append", choices=NAMES)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--processes", type=int, help="number of processes, in sequence")
    parser.add_argument("--slices", type=int, help="slices of each process with metering, and as many without")
    options = parser.parse_args(arguments)
    options.load = options.load or NAMES
    options.processes = options.processes or (QUICK_PROCESSES if options.quick else PROCESSES)
    options.slices = options.slices or (QUICK_SLICES if options.quick else SLICES)
    return options


if __name__ == "__main__":
    sys.exit(main())
