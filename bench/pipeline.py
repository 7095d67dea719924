"""`python -m bench.pipeline`: is the validator right, and how fast. Printed and written to bench/results/.

python -m bench.pipeline [--events N] [--proof-events N] [--runs N] [--only proof|speed|cost] [--keep FOLDER] [--out FOLDER] [--no-write]
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.engine import ROOT
from bench.metering_trace import Shape, decide, totals, write
from bench.pipeline_rollup import lengthen
from bench.report import Report, machine_lines

EVENTS = 10_000_000
PROOF_BESIDES = 1_000_000  # decisions of each quota type where the proof is not all that is asked for
QUOTA_TYPES = ("Produce", "Fetch", "Request", "Connection", "ControllerMutation")
TAKEN_BACK = {"Fetch": 0.05, "Connection": 0.02, "ControllerMutation": 0.02}
TURNS = 3
HOURS = 4  # of the trace that is rolled up
WINDOWS = ((2, 250), (7, 2_000), (61, 500))
ARM_S_MAX = 3_600


@dataclass
class Arms:
    """Figures of timed runs, by (what, directory's name, cores)."""

    folder: Path
    found: dict[tuple[str, str, int], dict[str, Any]] = field(default_factory=dict)

    def run(self, cores: int, *tasks: tuple[str, str, int]) -> None:
        """Start one pinned process for (what, directory's name, repeats), one after the other; names with a `+` between take turns."""
        told = [f"{what}:{'+'.join(str(self.folder / name) for name in names.split('+'))}:{repeats}" for what, names, repeats in tasks]
        command = [sys.executable, "-m", "bench.pipeline_arms", str(cores), *told]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=ARM_S_MAX)
        for one in json.loads(done.stdout.splitlines()[-1]):
            one["directory"] = Path(one["directory"]).name
            before = self.found.setdefault((one["what"], one["directory"], cores), one)
            for name in ("seconds", "cpu_seconds"):
                before[name] = min(before[name], one[name])

    def seconds(self, what: str, name: str, cores: int = 1) -> float:
        """The best time."""
        return float(self.found[what, name, cores]["seconds"])

    def cpu(self, what: str, name: str, cores: int = 1) -> float:
        """The least CPU time."""
        return float(self.found[what, name, cores]["cpu_seconds"])


def main() -> int:
    """Run what was asked for; exit code 1: the validator found a difference where there is none."""
    options = _options()
    report = Report("pipeline" if options.only is None else f"pipeline-{options.only}")
    report.add(*machine_lines())
    wrong = 0
    with _folder(options.keep) as folder:
        if options.only in (None, "proof"):
            rows = list(_proof(folder, options.proof_events or (EVENTS if options.only else PROOF_BESIDES)))
            wrong = sum(row["differences"] + row["events"] - row["decisions"] for row in rows)
            report.add("", *_proof_lines(rows))
            report.data["proof"] = rows
        if options.only in (None, "speed"):
            arms = Arms(folder)
            turns = Arms(folder)
            lines = list(_speed(arms, turns, options.events, options.runs))
            report.add("", *lines)
            report.data["speed"] = [*arms.found.values(), *turns.found.values()]
    if options.only in (None, "cost"):
        report.add("", *_cost(quick=options.only is None))
    print("\n" + report.text())
    if not options.no_write:
        for path in report.write(options.out):
            print(f"written: {path.name}")
    return 1 if wrong else 0


@contextlib.contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _proof(folder: Path, events: int) -> Iterator[dict[str, Any]]:
    """Decisions of the plain loop, which measures at each record, against the validator's; as many traces at once as there are cores."""
    shapes = [Shape(events, quota_type=name, unrecord_share=TAKEN_BACK.get(name, 0.0), lazy=False) for name in QUOTA_TYPES]
    shapes += [Shape(events // 10, num_samples=n, window_ms=w, lazy=False, seed=n) for n, w in WINDOWS]
    with _workers() as pool:
        yield from pool.map(_proof_of, [folder] * len(shapes), shapes)


def _proof_of(folder: Path, shape: Shape) -> dict[str, Any]:
    from pipeline.validation.local import validate

    began = time.perf_counter()
    name = f"proof-{shape.quota_type}-{shape.num_samples}x{shape.window_ms}"
    _make(folder, name, shape)
    verdict = validate(folder / name)
    row = {
        "quota_type": shape.quota_type,
        "window": f"{shape.num_samples} x {shape.window_ms} ms",
        "events": shape.events,
        "decisions": verdict.decisions,
        "throttled": totals(folder / name)["throttled"],
        "by_fold": verdict.replayed_exactly,
        "differences": verdict.violations,
    }
    print(f"  {row} {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return row


def _workers() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn"))


def _proof_lines(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| decisions of | samples x window | events | judged | throttled | by the fold of doubles | differences |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        numbers = " | ".join(f"{row[name]:,}" for name in ("events", "decisions", "throttled", "by_fold", "differences"))
        lines.append(f"| {row['quota_type']} | {row['window']} | {numbers} |")
    return lines


def _speed(arms: Arms, turns: Arms, events: int, runs: int) -> Iterator[str]:
    shapes = {
        "zipf-1.1": Shape(events),
        "zipf-2.0": Shape(events, zipf=2.0),
        "groups-1000": Shape(events * 2 // 5, seconds=1_440),
        "groups-95000": Shape(events * 2 // 5, groups=95_000, seconds=1_440),
        "short": Shape(events // 50),
    }
    with _workers() as pool:
        list(pool.map(_make, [arms.folder] * len(shapes), shapes, shapes.values()))
    skewed, grouped = (("file-parallel", names, runs) for names in ("zipf-1.1+zipf-2.0", "groups-1000+groups-95000"))
    arms.run(1, skewed, grouped, ("no-spark", "zipf-1.1", runs))
    arms.run(1, ("sensor-loop", "groups-1000", 1), ("group-loop", "groups-1000", 1), ("sql", "short", 1))
    if not (arms.folder / "hours").exists():
        lengthen(arms.folder / "zipf-1.1", arms.folder / "hours", HOURS)
    _agree(arms, events)
    _one_and_two_cores(turns, runs)
    _agree(turns, events)
    yield from _speed_lines(arms, turns, events)


def _one_and_two_cores(arms: Arms, runs: int) -> None:
    """One core and two take turns, a process each: a machine that others use is another one some minutes later."""
    tasks = (("file-parallel", "zipf-1.1", runs), ("rollup-spark", "hours", runs), ("rollup-duckdb", "hours", runs))  # each warm
    for _ in range(TURNS):
        for cores in range(1, min(len(os.sched_getaffinity(0)), 2) + 1):
            arms.run(cores, *tasks)


def _cost(*, quick: bool) -> list[str]:
    """What metering costs the proxy, as `python -m bench.metering` prints it."""
    command = [sys.executable, "-m", "bench.metering", *(["--quick"] if quick else [])]
    told = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=ARM_S_MAX, text=True).stdout
    return ["What metering costs the proxy:", "", "```", *told.splitlines(), "```"]


def _make(folder: Path, name: str, shape: Shape) -> None:
    if not (folder / name).exists():
        print(f"  making {name}: {shape.events:,} decisions of {shape.groups:,} groups", file=sys.stderr, flush=True)
        unfinished = folder / f"unfinished-{name}"
        write(unfinished, shape, decide(shape)).rename(folder / name)


def _share(name: str) -> float:
    """How much of the decisions asked for a directory holds."""
    return {"groups-1000": 0.4, "groups-95000": 0.4, "short": 0.02, "hours": HOURS}.get(name, 1.0)


def _agree(arms: Arms, events: int) -> None:
    """A figure of who found something else than the others would be worth nothing."""
    for (what, name, _), one in arms.found.items():
        if what in ("file-parallel", "no-spark", "sensor-loop", "group-loop", "sql"):
            assert one["outcome"] == [round(events * _share(name)), 0], (what, name, one["outcome"])
    rolled_up = [one["outcome"] for (what, _, _), one in arms.found.items() if what.startswith("rollup")]
    assert all(outcome == rolled_up[0] for outcome in rolled_up), rolled_up


def _speed_lines(arms: Arms, turns: Arms, events: int) -> Iterator[str]:
    millions = events / 1e6
    yield "Times are wall clock, the best of the runs, on cores that others may use; CPU is of the process and all that it started."
    yield ""
    yield "| what | cores | seconds | CPU s | million decisions/s |"
    yield "|---|---|---|---|---|"
    for (what, name, cores), one in [*arms.found.items(), *turns.found.items()]:
        speed = millions * _share(name) / one["seconds"]
        yield f"| {what}, {name} | {cores} | {one['seconds']:.2f} | {one['cpu_seconds']:.2f} | {speed:.2f} |"
    yield ""
    yield "| goal | by the clock | by CPU |"
    yield "|---|---|---|"
    ratios = (
        (
            "file-parallel against the loop over `quota.sensor`, one core: >= 11, goal 15",
            ("sensor-loop", "groups-1000"),
            ("file-parallel", "groups-1000"),
        ),
        (
            "file-parallel against the proxy's own lazy path in a loop, one core: >= 11, goal 15",
            ("group-loop", "groups-1000"),
            ("file-parallel", "groups-1000"),
        ),
        ("Spark against the same numpy without it, one core", ("file-parallel", "zipf-1.1"), ("no-spark", "zipf-1.1")),
        ("hottest group 61 % against 18 %, time: <= 1.1", ("file-parallel", "zipf-2.0"), ("file-parallel", "zipf-1.1")),
        ("95,000 groups against 1,000, throughput: >= 0.7", ("file-parallel", "groups-1000"), ("file-parallel", "groups-95000")),
    )
    for what, above, below in ratios:
        yield f"| {what} | {arms.seconds(*above) / arms.seconds(*below):.2f} | {arms.cpu(*above) / arms.cpu(*below):.2f} |"
    if ("file-parallel", "zipf-1.1", 2) in turns.found:
        faster = turns.seconds("file-parallel", "zipf-1.1", 1) / turns.seconds("file-parallel", "zipf-1.1", 2)
        yield f"| two cores against one, by turns: >= 1.8 | {faster:.2f} | |"
    for cores in sorted({cores for _, _, cores in turns.found}):
        spark, duckdb = (("rollup-spark", "hours", cores), ("rollup-duckdb", "hours", cores))
        clock, cpu = turns.seconds(*spark) / turns.seconds(*duckdb), turns.cpu(*spark) / turns.cpu(*duckdb)
        yield f"| roll-up, Spark against DuckDB, warm, cores: {cores}, time: <= 3 | {clock:.2f} | {cpu:.2f} |"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS, help="decisions of each trace")
    parser.add_argument(
        "--proof-events", type=int, help="decisions of each quota type that are proved right; alone 10 million, otherwise 1"
    )
    parser.add_argument("--runs", type=int, default=10, help="runs of each arm that is quick, after one that is not counted")
    parser.add_argument("--only", choices=["proof", "speed", "cost"], help="only this part")
    parser.add_argument("--keep", type=Path, help="make the traces here, and use those that are there")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", help="folder for the result files")
    parser.add_argument("--no-write", action="store_true", help="print only")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
