"""`make bench`: the cost table and the memory rows, printed and written to bench/results/.

python -m bench [--quick] [--load NAME]... [--seconds S] [--runs N] [--out FOLDER] [--no-write] [--python-peers] [--list]
python -m bench --beside CHECKOUT [--runs PAIRS]: this checkout against another one, in alternating pairs
"""

import argparse
import sys
from pathlib import Path

from bench import micro_quota
from bench.cost.beside import STARTS, beside_lines, measure_beside
from bench.cost.cost import LOADS, CostRow, measure_cost, row_lines
from bench.cost.groups import many_groups
from bench.cost.memory import MEMORY_ROWS, MemoryRow, memory_lines
from bench.harness.arms import starters
from bench.harness.engine import ROOT, Engine
from bench.harness.report import Report, machine_lines

OTHER_ROWS = MEMORY_ROWS | {"groups-10000": many_groups}
SECONDS, WARM_SECONDS = 4.0, 1.5
QUICK_SECONDS, QUICK_WARM_SECONDS = 1.5, 0.7
PAIRS = 20


def main() -> int:
    """Run what was asked for; return 0 whatever the figures are, since the table shows missed goals."""
    options = _options()
    if options.list:
        print("\n".join([load.name for load in LOADS] + list(OTHER_ROWS)))
        return 0
    wanted = options.load or [load.name for load in LOADS] + list(OTHER_ROWS)
    unknown = set(wanted) - {load.name for load in LOADS} - set(OTHER_ROWS)
    if unknown:
        print(f"no such load: {', '.join(sorted(unknown))}; --list names them", file=sys.stderr)
        return 2
    engine = Engine(python_only=options.python_peers)
    try:
        report = _run_beside(options, wanted, engine) if options.beside else _run(options, wanted, engine)
    finally:
        engine.close()
    print("\n" + report.text())
    if not options.load and not options.beside:
        print("\nquota arithmetic (bench/micro_quota.py):")
        micro_quota.main()
    if not options.no_write:
        for path in report.write(options.out):
            print(f"written: {path.name}")
    return 0


def _run(options: argparse.Namespace, wanted: list[str], engine: Engine) -> Report:
    available, missing = starters()
    if options.arm:
        available = {name: starter for name, starter in available.items() if name in options.arm or name == "pump"}
    rows: list[CostRow] = []
    for load in LOADS:
        if load.name not in wanted:
            continue
        print(f"{load.name}: {load.what}", flush=True)
        seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
        warm = QUICK_WARM_SECONDS if options.quick else WARM_SECONDS
        runs = options.runs or (load.quick_runs if options.quick else load.runs)
        rows.append(measure_cost(engine, load, available, seconds=seconds, warm_seconds=warm, runs=runs, say=_say))
    memory: list[MemoryRow] = []
    for name, measure in OTHER_ROWS.items():
        if name in wanted and "sluice" in available:
            print(name, flush=True)
            memory += measure(engine, quick=options.quick)
    return _report(options, engine, missing, rows, memory)


def _run_beside(options: argparse.Namespace, wanted: list[str], engine: Engine) -> Report:
    report = Report("cost-beside")
    report.add(*machine_lines(), f"- stub broker and load generator: {engine.name}", "")
    rows = []
    for load in LOADS:
        if load.name in wanted:
            print(f"{load.name}: {load.what}", flush=True)
            pairs, seconds = max(options.runs or PAIRS, STARTS), options.seconds or QUICK_SECONDS
            rows.append(
                measure_beside(engine, load, options.beside, pairs=pairs, seconds=seconds, warm_seconds=QUICK_WARM_SECONDS, say=_say)
            )
    report.add(*beside_lines(rows))
    report.data["beside"] = [{"load": row.load.name, "here_us": row.here_us, "there_us": row.there_us} for row in rows]
    return report


def _report(options: argparse.Namespace, engine: Engine, missing: list[str], rows: list[CostRow], memory: list[MemoryRow]) -> Report:
    report = Report("cost-quick" if options.quick else "cost")
    report.add(*machine_lines(), f"- stub broker and load generator: {engine.name}")
    report.add(*[f"- not installed here, so not measured: {name}" for name in missing])
    if rows:
        report.add("", *row_lines(rows))
        report.data["cost"] = [
            {"load": row.load.name, "goal": row.load.goal, "ratio": row.ratio("sluice") if "sluice" in row.costs else None}
            | {name: {"microseconds": c.microseconds, "per_second": c.per_second} for name, c in row.costs.items()}
            for row in rows
        ]
        problems = [f"- problem in {row.load.name}: {problem}" for row in rows for problem in row.problems]
        report.add(*(["", *problems] if problems else []))
    if memory:
        report.add("", *memory_lines(memory))
        report.data["memory"] = [vars(row) for row in memory]
    return report


def _say(line: str) -> None:
    print(line, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short runs, for a quick look")
    parser.add_argument("--load", action="append", help="only this row (repeatable)")
    parser.add_argument("--arm", action="append", help="only this proxy and the pump (repeatable)")
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="another checkout of Sluice, measured in turn with this one")
    parser.add_argument("--seconds", type=float, help="length of one run")
    parser.add_argument("--runs", type=int, help="runs per proxy, or pairs")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "cost", help="folder for the result files")
    parser.add_argument("--no-write", action="store_true", help="print only")
    parser.add_argument("--python-peers", action="store_true", help="do not use the C stub broker and load generator")
    parser.add_argument("--list", action="store_true", help="name the rows")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
