"""What metering costs: `python -m bench.metering [--quick] [--pairs N] [--runs N] [--seconds S]`.

What a session without sockets takes longer is timed first; then loads go through Sluices in turn, with metering and without, some pairs of
them one after the other; then a trace is written and its files are measured. The last line says whether the goals hold; the exit code is 0
either way.

Two processes that do the same differ by some percent, and what else goes on in the machine takes tens of percent from one second to the
next and never gives any. So the two of a pair are laid out alike in memory, pairs differently, turns are short and many, and the lower
quartiles of all of an arm's turns are compared.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median, quantiles

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
CUTIME, TICKS = 13, os.sysconf("SC_CLK_TCK")  # its place behind the command, which ends with the last bracket
CONNECTIONS = 8
SECONDS, WARM_SECONDS = 0.6, 0.25
PAIRS, RUNS = 8, 12
QUICK_PAIRS, QUICK_RUNS = 2, 10


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
    """Of one arm: microseconds of the loop's thread and of its process per request, requests per second, and per read of a socket.

    Attributes:
        requests: of all turns and what came before they were measured.
        children_s: CPU time of the converters that ended meanwhile.
    """

    loop_us: list[list[float]] = field(default_factory=list)  # by process
    process_us: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)
    per_read: list[float] = field(default_factory=list)
    requests: int = 0
    children_s: float = 0.0

    @property
    def quartile_us(self) -> float:
        """Of the loop's thread, a quarter of the turns took less."""
        return _lower_quartile([us for turns in self.loop_us for us in turns])

    @property
    def spread_percent(self) -> float:
        """How far processes of this one arm lie apart, by the same measure."""
        quartiles = [_lower_quartile(turns) for turns in self.loop_us]
        return 100.0 * (max(quartiles) / min(quartiles) - 1)


def _upper_quartile(values: Sequence[float]) -> float:
    return -_lower_quartile([-value for value in values])


def _lower_quartile(values: Sequence[float]) -> float:
    quartile: float = quantiles(values, n=4, method="inclusive")[0]
    return quartile


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
    runs = {"off": _Runs(), "on": _Runs()}
    try:
        for pair in range(options.pairs):
            _one_pair(engine, load, stub_port, runs, options, pair)
    finally:
        stub.stop()
    return runs


def _one_pair(engine: Engine, load: CostLoad, stub_port: int, runs: dict[str, _Runs], options: argparse.Namespace, seed: int) -> None:
    directory = engine.folder / f"metering-{load.name}-{seed}"
    arms: dict[str, Arm] = {}
    try:
        arms["off"] = start_sluice(stub_port, engine.folder, seed=seed)
        arms["on"] = start_sluice(stub_port, engine.folder, flags=["--metering", str(directory)], seed=seed)
        for its in runs.values():
            its.loop_us.append([])
        for turn in range(options.runs):
            for name in ("off", "on") if turn % 2 == 0 else ("on", "off"):
                _one_run(engine, load, arms[name], runs[name], options.seconds)
        for name, arm in arms.items():
            runs[name].children_s += _children_seconds(arm)
    finally:
        for arm in arms.values():
            arm.stop()


def _one_run(engine: Engine, load: CostLoad, arm: Arm, runs: _Runs, seconds: float) -> None:
    running = engine.load(load.request, arm.port, conns=load.conns, depth=load.depth)
    try:
        time.sleep(WARM_SECONDS)
        own = [arm.process.pid]
        reads, loop_s, process_s, done, start = _reads(arm), _loop_seconds(arm), cpu_seconds(own), running.done(), time.monotonic()
        time.sleep(seconds)
        loop_s, process_s = _loop_seconds(arm) - loop_s, cpu_seconds(own) - process_s
        done, elapsed, reads = running.done() - done, time.monotonic() - start, _reads(arm) - reads
    finally:
        runs.requests += running.done()
        running.stop()
    runs.per_read.append(2 * done / reads)
    runs.loop_us[-1].append(loop_s / done * 1e6)
    runs.process_us.append(process_s / done * 1e6)
    runs.per_second.append(done / elapsed)


def _loop_seconds(arm: Arm) -> float:
    """CPU time of the thread that the loop runs in."""
    pid = arm.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def _children_seconds(arm: Arm) -> float:
    """CPU time of the children that it has waited for."""
    fields = Path(f"/proc/{arm.process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[CUTIME : CUTIME + 2]) / TICKS


def _reads(arm: Arm) -> int:
    """How often it has read: from clients and from brokers, nearly always."""
    lines = Path(f"/proc/{arm.process.pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("syscr:"))


def _told(load: CostLoad, runs: dict[str, _Runs]) -> float:
    off, on = runs["off"], runs["on"]
    loss = 100.0 * (on.quartile_us / off.quartile_us - 1)
    print(f"  loop          {off.quartile_us:.2f} -> {on.quartile_us:.2f} us/request: {loss:+.1f} %")
    print(f"  alike         processes of one arm lie {off.spread_percent:.1f} and {on.spread_percent:.1f} % apart")
    print(f"  process       {mean(off.process_us):.2f} -> {mean(on.process_us):.2f} us/request, with the writer, mean of all turns")
    print(f"  converter     {on.children_s / on.requests * 1e6:.2f} us/request, of other cores, when nobody else wants them")
    print(f"  seen          {_upper_quartile(off.per_second):,.0f} -> {_upper_quartile(on.per_second):,.0f} requests/s", flush=True)
    print(f"  in one read   {median(off.per_read):.1f} -> {median(on.per_read):.1f} requests or answers", flush=True)
    return loss


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.metering", description="What metering costs, on against off.")
    parser.add_argument("--load", action="append", choices=NAMES)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of one turn")
    parser.add_argument("--runs", type=int, help="turns of each process")
    parser.add_argument("--pairs", type=int, help="processes of each arm")
    options = parser.parse_args(arguments)
    options.load = options.load or NAMES
    options.runs = options.runs or (QUICK_RUNS if options.quick else RUNS)
    options.pairs = options.pairs or (QUICK_PAIRS if options.quick else PAIRS)
    return options


if __name__ == "__main__":
    sys.exit(main())
