"""`python -m bench.pipeline`: is the validator right, and how fast is it? The result is printed and written to bench/results/.

python -m bench.pipeline [--events N] [--proof-events N] [--runs N]
    [--only proof|paced|speed|cost|tables|iceberg|small|many|stream|workers|fleet|hundred-million] [--workers N] [--members N]
    [--file-sets N] [--engine local|spark] [--keep FOLDER] [--out FOLDER] [--no-write]
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.harness.engine import ROOT
from bench.harness.report import Report, machine_lines
from bench.metering.trace import Shape
from bench.pipeline import stream_history
from bench.pipeline.iceberg import in_catalog
from bench.pipeline.memory_group import memory_group
from bench.pipeline.proof import lines_of_proof, make, proof
from bench.pipeline.small_file_sets import HEADER, measured_small
from bench.pipeline.speed import measured
from bench.pipeline.stream_history import measured_histories
from bench.pipeline.tables import RolledUp, of_duckdb, roll_up
from bench.pipeline.validation import of_many
from bench.pipeline.validation.of_fleet import judged_fleet
from bench.pipeline.validation.of_many import measured_many
from bench.pipeline.validation.of_paced import judged_paced
from bench.pipeline.validation.of_workers import judged

EVENTS = 10_000_000
PROOF_BESIDES = 1_000_000  # decisions of each quota type unless only the proof is asked for
HOUR_S = 3_600
TABLES_EVENTS_FEW = 25_000
FILE_SETS_SMALL, FILE_SETS_MANY = 3_000, 10_000
EVENTS_MANY = 100_000_000
GROUP_BYTES = 4 * 2**30
ARM_S_MAX = 3_600


def main() -> int:
    """Run what was asked for; return 1 when the validator found a difference where there is none."""
    options = _options()
    report = Report("pipeline" if options.only is None else f"pipeline-{options.only}")
    report.add(*machine_lines())
    wrong = 0
    with _folder(options.keep) as folder:
        if options.only in (None, "proof"):
            rows = list(proof(folder, options.proof_events or (EVENTS if options.only else PROOF_BESIDES)))
            wrong = sum(row["differences"] + row["events"] - row["decisions"] for row in rows)
            report.add("", *lines_of_proof(rows))
            report.data["proof"] = rows
        if options.only == "paced":
            of_paced = judged_paced(folder, options.events)
            wrong += sum(of_paced.differences.values())
            report.add("", *of_paced.lines())
            report.data["paced"] = of_paced._asdict()
        if options.only in (None, "speed"):
            turns, lines = measured(folder, options.events, options.runs)
            report.add("", *lines)
            report.data["speed"] = [{**arm._asdict(), "turns": reported} for arm, reported in turns.found.items()]
        if options.only == "tables":
            rolled_up, lines, differs = _rolled_up(folder, options.events, options.engine)
            wrong += sum(one.missing for one in rolled_up) + differs
            report.add("", *(f"- {one.line()}" for one in rolled_up), *lines)
            report.data["tables"] = [one._asdict() for one in rolled_up]
        if options.only == "iceberg":
            with tempfile.TemporaryDirectory() as place:
                commands = list(in_catalog(_trace(folder, options.events), Path(place), options.events))
            wrong += sum(one.missing for one in commands)
            report.add("", *(f"- {one.line()}" for one in commands))
            report.data["iceberg"] = [one._asdict() for one in commands]
        if options.only == "hundred-million":
            for one, group in _in_groups(folder, options.events, options.engine):
                wrong += one.missing
                report.add("", f"- {one.line()}", f"  {group}")
                report.data.setdefault("hundred-million", []).append({**one._asdict(), "group": group})
        if options.only == "small":
            small = list(measured_small(folder, options.file_sets or FILE_SETS_SMALL))
            report.add("", *HEADER, *(arm.line() for arm in small))
            report.data["small"] = [arm._asdict() for arm in small]
        if options.only == "many":
            many = list(measured_many(folder, options.file_sets or FILE_SETS_MANY, options.engine))
            report.add("", *of_many.HEADER, *(arm.line() for arm in many))
            report.data["many"] = [arm._asdict() for arm in many]
        if options.only == "stream":
            histories = list(measured_histories(folder))
            report.add("", *stream_history.HEADER, *(arm.line() for arm in histories))
            report.data["stream"] = [arm._asdict() for arm in histories]
        if options.only == "workers":
            verdict = judged(folder, options.events, options.workers)
            wrong += verdict.is_wrong
            report.add("", *verdict.lines())
            report.data["workers"] = verdict._asdict()
        if options.only == "fleet":
            of_fleet = judged_fleet(folder, options.events, options.members)
            wrong += of_fleet.is_wrong
            report.add("", *of_fleet.lines())
            report.data["fleet"] = of_fleet._asdict()
    if options.only in (None, "cost"):
        report.add("", *_cost())
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


def _cost() -> list[str]:
    """Return the cost of metering as `python -m bench.metering` prints it."""
    reported = subprocess.run(
        [sys.executable, "-m", "bench.metering"], cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=ARM_S_MAX, text=True
    ).stdout
    return ["What metering costs the proxy:", "", "```", *reported.splitlines(), "```"]


def _rolled_up(folder: Path, events: int, only: str | None) -> tuple[list[RolledUp], list[str], bool]:
    """Roll up a small trace and a large one by DuckDB, and the large one by Spark; an hour has ten million decisions at most.

    Return the roll-ups, lines that compare the time of Spark, and whether the tables of Spark differ from those of plain SQL.
    """
    found: list[RolledUp] = []
    lines: list[str] = []
    differences = ""
    for engine, count in (("local", TABLES_EVENTS_FEW), ("local", events), ("spark", events)):
        if only not in (None, engine):
            continue
        trace = _trace(folder, count)
        with tempfile.TemporaryDirectory() as place:
            tables = Path(place) / "tables"
            found.append(roll_up(trace, tables, count, engine))
            if engine == "spark" and count <= EVENTS:
                of_all, of_four, differences = of_duckdb(trace, Path(place) / "reference", tables)
                lines = list(_compared(found, of_all, of_four, differences))
    return found, lines, bool(differences)


def _in_groups(folder: Path, events: int, only: str | None) -> Iterator[tuple[RolledUp, str]]:
    """Roll up a trace by each engine in a memory control group; yield what the group had, too."""
    trace = _trace(folder, events)
    for engine in ("local", "spark"):
        if only in (None, engine):
            with tempfile.TemporaryDirectory() as place, memory_group(GROUP_BYTES) as group:
                yield roll_up(trace, Path(place) / "tables", events, engine, group.prefix), group.line()


def _compared(found: list[RolledUp], of_all: float, of_four: float, differences: str) -> Iterator[str]:
    """Yield what Spark takes without its start, compared with the local engine and with plain SQL."""
    spark = found[-1].seconds - found[-1].start_seconds
    if len(found) > 1:
        local = found[-2].seconds
        yield f"- Spark without its start: {spark:.1f} s, {spark / local:.1f} times as long as the local engine ({local:.1f} s)"
    yield f"- `duckdb_rollup.sql` in DuckDB, all default tables: {of_all:.1f} s; Spark takes {spark / of_all:.1f} times as long"
    yield f"- the same, only usage and decisions by hour and day: {of_four:.1f} s; Spark takes {spark / of_four:.1f} times as long for all"
    yield "- " + (f"THEY DIFFER: {differences}" if differences else "rows equal to Spark's, floating-point numbers to 1e-9")


def _trace(folder: Path, count: int) -> Path:
    """Return a trace of this many decisions; it is made unless it exists."""
    return make(folder, f"tables-{count}", Shape(count, seconds=HOUR_S * max(1, count // EVENTS)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--events", type=int, help="decisions of each trace; 100 million with --only hundred-million, otherwise 10 million")
    parser.add_argument(
        "--proof-events", type=int, help="decisions of each quota type in the proof; 10 million with --only proof, otherwise 1 million"
    )
    parser.add_argument("--runs", type=int, default=16, help="turns of each short arm, after the warm-up")
    parser.add_argument(
        "--only",
        choices=["proof", "paced", "speed", "cost", "tables", "iceberg", "small", "many", "stream", "workers", "fleet", "hundred-million"],
        help="only this part; hundred-million has ten times as many decisions by default, and a memory control group of 4 GiB",
    )
    parser.add_argument("--engine", choices=["local", "spark"], help="only this engine, in `tables`, `many` and `hundred-million`")
    parser.add_argument("--workers", type=int, default=4, help="number of workers in the trace of the part `workers`")
    parser.add_argument("--file-sets", type=int, help="number of file sets: 3,000 in the part `small`, 10,000 in `many` by default")
    parser.add_argument("--members", type=int, default=3, help="number of members in the trace of the part `fleet`")
    parser.add_argument("--keep", type=Path, help="folder for traces; existing ones are used again")
    parser.add_argument("--out", type=Path, help="folder for the result files")
    parser.add_argument("--no-write", action="store_true", help="print only")
    options = parser.parse_args()
    options.out = options.out or ROOT / "bench" / "results" / ("validation" if options.only in ("proof", "paced", "many") else "pipeline")
    options.events = options.events or (EVENTS_MANY if options.only == "hundred-million" else EVENTS)
    return options


if __name__ == "__main__":
    sys.exit(main())
