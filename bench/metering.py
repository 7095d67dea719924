"""What metering costs: `python -m bench.metering [--quick] [--runs N] [--seconds S]`.

What a session without sockets takes longer is timed first; then loads go through two Sluices in turn, with metering and without, and the
medians of the runs are compared; then a trace is written and its files are measured. The last line says whether the goals hold; the exit
code is 0 either way.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench import micro_session
from bench.arms import Arm, start_sluice
from bench.cost import LOADS, CostLoad
from bench.engine import Engine, cpu_seconds
from bench.frames import Template
from bench.metering_trace import Shape, decide
from bench.metering_trace import write as write_trace
from bench.micro_session import measure

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
MICRO_ROUNDS = 5
CONNECTIONS = 8
SECONDS, WARM_SECONDS, RUNS = 4.0, 1.5, 6
QUICK_SECONDS, QUICK_RUNS = 2.0, 4


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
    """Microseconds more that a request and its answer take in a session with a meter: deciding, usage, handing over; no writer."""
    return {name: _more_us(micro_session.LOADS[load], depth) for name, (load, depth) in SESSIONS.items()}


def _more_us(load: tuple[Template, Template], depth: int) -> float:
    rounds = [[measure(load, CONNECTIONS, metered=metered, depth=depth) for metered in (False, True)] for _ in range(MICRO_ROUNDS)]
    off, on = map(min, zip(*rounds, strict=True))
    return on - off


def bytes_per_event() -> dict[str, float]:
    """Bytes of finished files (Parquet and manifests) for a decision: at the density of 10 million in an hour, and at a tenth of it."""
    shapes = {"dense": Shape(EVENTS, seconds=360), "sparse": Shape(EVENTS, seconds=3_600)}
    found: dict[str, float] = {}
    for name, shape in shapes.items():
        with tempfile.TemporaryDirectory() as folder:
            directory = write_trace(Path(folder), shape, decide(shape))
            size = sum(path.stat().st_size for path in directory.rglob("*") if path.suffix in (".parquet", ".json"))
            found[name] = size / shape.events
    return found


@dataclass
class _Runs:
    """Of one arm: microseconds of the loop's thread and of the whole process per request, requests per second, and per read of a socket."""

    loop_us: list[float] = field(default_factory=list)
    process_us: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)
    per_read: list[float] = field(default_factory=list)


def _throughput(options: argparse.Namespace) -> dict[str, float]:
    """What the loop has less to give with metering on, in percent, by load.

    A loop that is never idle serves 1 / (its CPU time per request): what that grows by is what throughput loses. The requests per second
    that were seen are printed beside it; on a machine that others use too they say more about those.
    """
    engine = Engine(python_only=False)
    losses: dict[str, float] = {}
    try:
        for load in (load for load in LOADS if load.name in options.load):
            print(f"{load.name}: {load.what}", flush=True)
            losses[load.name] = _told(load, _measured(engine, load, options))
    finally:
        engine.close()
    return losses


def _measured(engine: Engine, load: CostLoad, options: argparse.Namespace) -> dict[str, _Runs]:
    stub, stub_port = engine.stub(load.fetch_record_bytes)
    arms: dict[str, Arm] = {}
    runs = {"off": _Runs(), "on": _Runs()}
    try:
        arms["off"] = start_sluice(stub_port, engine.folder)
        arms["on"] = start_sluice(stub_port, engine.folder, flags=["--metering", str(engine.folder / f"metering-{load.name}")])
        for turn in range(options.runs):
            for name in ("off", "on") if turn % 2 == 0 else ("on", "off"):
                _one_run(engine, load, arms[name], runs[name], options.seconds)
    finally:
        for arm in arms.values():
            arm.stop()
        stub.stop()
    return runs


def _one_run(engine: Engine, load: CostLoad, arm: Arm, runs: _Runs, seconds: float) -> None:
    running = engine.load(load.request, arm.port, conns=load.conns, depth=load.depth)
    try:
        time.sleep(WARM_SECONDS)
        reads, loop_s, process_s, done, start = _reads(arm), _loop_seconds(arm), cpu_seconds(arm.pids()), running.done(), time.monotonic()
        time.sleep(seconds)
        loop_s, process_s = _loop_seconds(arm) - loop_s, cpu_seconds(arm.pids()) - process_s
        done, elapsed, reads = running.done() - done, time.monotonic() - start, _reads(arm) - reads
    finally:
        running.stop()
    runs.per_read.append(2 * done / reads)
    runs.loop_us.append(loop_s / done * 1e6)
    runs.process_us.append(process_s / done * 1e6)
    runs.per_second.append(done / elapsed)


def _loop_seconds(arm: Arm) -> float:
    """CPU time of the thread that the loop runs in."""
    pid = arm.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def _reads(arm: Arm) -> int:
    """How often it has read: from clients and from brokers, nearly always."""
    lines = Path(f"/proc/{arm.process.pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("syscr:"))


def _told(load: CostLoad, runs: dict[str, _Runs]) -> float:
    off, on = runs["off"], runs["on"]
    loss = 100.0 * (median(on.loop_us) / median(off.loop_us) - 1)
    print(f"  loop          {median(off.loop_us):.2f} -> {median(on.loop_us):.2f} us/request: {loss:+.1f} %")
    print(f"  whole process {median(off.process_us):.2f} -> {median(on.process_us):.2f} us/request, with the writer's thread")
    print(f"  seen          {median(off.per_second):,.0f} -> {median(on.per_second):,.0f} requests/s", flush=True)
    print(f"  in one read   {median(off.per_read):.1f} -> {median(on.per_read):.1f} requests or answers", flush=True)
    return loss


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.metering", description="What metering costs, on against off.")
    parser.add_argument("--load", action="append", choices=NAMES)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--runs", type=int)
    options = parser.parse_args(arguments)
    options.load = options.load or NAMES
    options.seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    options.runs = options.runs or (QUICK_RUNS if options.quick else RUNS)
    return options


if __name__ == "__main__":
    sys.exit(main())
