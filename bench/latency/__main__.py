"""The latency that a proxy adds, compared with the bare pump and HAProxy: python -m bench.latency [--runs N] [--seconds S] [--arm NAME]...

A Produce with 200 B of records, paced: 1,000 and 10,000 requests/s over 1 and 64 connections. The latency of a request is the time from
when it was due, not from when it was sent, to its answer, so that a stall counts for every request that was due in it. `direct` is the load
without a proxy; the proxy adds what is above its figures. All run in turn, and the medians of the runs are printed.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from statistics import median

from bench.cost.cost import SMALL_RECORD_BYTES
from bench.harness.arms import Arm, start_direct, starters
from bench.harness.engine import Engine
from bench.harness.frames import produce_request
from bench.harness.report import machine_lines

LOADS = [(1_000, 1), (1_000, 64), (10_000, 1), (10_000, 64)]
PERCENTILES = (50.0, 99.0, 99.9)
COUNTERS = 1 << 16
IN_FLIGHT_MAX = 1_024
WARM_SECONDS = 0.5
Figures = tuple[float, ...]


def percentiles_us(counts: Sequence[int]) -> Figures:
    """Return the percentiles of latencies that are counted by microseconds."""
    found: list[float] = []
    total, passed, left = sum(counts), 0, list(PERCENTILES)
    for us, count in enumerate(counts):
        passed += count
        while left and passed * 100 >= left[0] * total:
            found.append(us)
            left.pop(0)
    return tuple(found)


def measure(engine: Engine, arm: Arm, rate: int, conns: int, seconds: float) -> Figures:
    """Return the percentiles of one run."""
    request = produce_request(7, filler=SMALL_RECORD_BYTES)
    load = engine.load(request, arm.port, conns=conns, depth=IN_FLIGHT_MAX, rate=rate, latencies=COUNTERS)
    try:
        time.sleep(WARM_SECONDS)
        before, done = list(load.latencies()), load.done()
        time.sleep(seconds)
        counts = [after - early for after, early in zip(load.latencies(), before, strict=True)]
        if load.done() - done < 0.9 * rate * seconds:
            raise RuntimeError(f"{arm.name} answered {(load.done() - done) / seconds:,.0f} requests/s of {rate:,}")
        return percentiles_us(counts)
    finally:
        load.stop()


def line_of(name: str, rate: int, conns: int, runs: list[Figures], direct: list[Figures]) -> str:
    """Return one line of the table: medians, and what is above those of `direct`."""
    if not runs:
        return f"| {rate:,}/s, {conns} connections | {name} | failed | | | | | |"
    shown = [median(run[at] for run in runs) for at in range(len(PERCENTILES))]
    above = [mine - median(run[at] for run in direct) for at, mine in enumerate(shown)] if direct and name != "direct" else []
    added = [f"{us:,.0f}" for us in above] or [""] * len(PERCENTILES)
    return f"| {rate:,}/s, {conns} connections | {name} | {' | '.join([*(f'{us:,.0f}' for us in shown), *added])} |"


def main() -> int:
    """Print a table of microseconds."""
    options = _options()
    engine = Engine()
    if engine.name != "C":
        print("bench.latency needs a C compiler: the load generator in Python is slower than what it would measure", file=sys.stderr)
        return 2
    found, missing = starters()
    found = {"direct": start_direct} | {name: start for name, start in found.items() if not options.arm or name in options.arm}
    stub, port = engine.stub(1)
    arms: dict[str, Arm] = {}
    try:
        for name, start in found.items():
            arms[name] = start(port, engine.folder)
        print("\n".join([*machine_lines(), *(f"- not installed here, so not measured: {name}" for name in missing)]))
        print("\n| load | proxy | p50 us | p99 us | p99.9 us | added p50 | p99 | p99.9 |\n|---|---|--:|--:|--:|--:|--:|--:|")
        for rate, conns in LOADS:
            runs: dict[str, list[Figures]] = {name: [] for name in arms}
            for turn in range(options.runs):
                for name in list(arms)[:: 1 if turn % 2 == 0 else -1]:
                    try:
                        runs[name].append(measure(engine, arms[name], rate, conns, options.seconds))
                    except RuntimeError as error:
                        print(f"- problem: {error}", file=sys.stderr)
            for name in arms:
                print(line_of(name, rate, conns, runs[name], runs["direct"]), flush=True)
    finally:
        for arm in arms.values():
            arm.stop()
        stub.stop()
        engine.close()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.latency", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs per proxy and load")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one run")
    parser.add_argument("--arm", action="append", help="only this proxy (repeatable)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
