"""The release gate: twenty numbers with limits, measured with real Apache Kafka.

python -m bench.gate [--only N,M] [--quick] [--no-write]

The exit code is 1 when a number misses its limit or cannot be measured. `--only` takes numbers from 1 to 20; `--quick` makes the shortest
run of each that can still miss. Behaviour that a real broker cannot show on demand (single bytes of a client, a truncated answer) is
measured with the scripted broker, by the fault rows of `python -m bench.faults`; the table names the broker. Needs a JDK and Maven.
"""

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench.gate import rows as gate_rows
from bench.gate import secrecy as gate_secrecy
from bench.gate.rows import Measured, Stand
from bench.harness.engine import ROOT, Engine
from bench.harness.report import Report, machine_lines

NUMBERS = {
    1: "acknowledged records lost",
    2: "duplicates of idempotent producers",
    3: "records out of order",
    4: "records corrupt",
    5: "records lost that came whole, acks=0 and close",
    6: "brokers' addresses that reach a client",
    7: "quota changes without a right",
    8: "bytes counted for a wrong principal",
    9: "secrets in any output",
    10: "crashes under fuzzed input",
    11: "long-run rate",
    12: "p99 of a probe beside greedy clients",
    13: "longest lag of the event loop",
    14: "RSS slope in a soak",
    15: "bytes held for a muted connection",
    16: "slow writers gone",
    17: "drain",
    18: "quotas in force again after their store was away",
    19: "loss of a broker seen by its clients",
    20: "metering files that cannot be read",
}
Row = Callable[[Stand], list[Measured]]
ROWS: dict[Row, tuple[int, ...]] = gate_rows.ROWS | gate_secrecy.ROWS
HEAD = ["| no. | number | measured | passes at | | how |", "|--:|---|--:|--:|---|---|"]


def line(one: Measured) -> str:
    """Return a row of the table."""
    unit = f" {one.unit}" if one.unit else ""
    limit = f"{one.low:g} to {one.high:g}{unit}" if one.low > 0 else f"<= {one.high:.4g}{unit}"
    verdict = "ok" if one.is_held else "miss"
    return f"| {one.number} | {NUMBERS[one.number]} | {one.value:,.4g}{unit} | {limit} | {verdict} | {one.how} |"


def run(numbers: set[int], stand: Stand) -> tuple[list[Measured], list[str]]:
    """Return the measured numbers, and those that could not be measured."""
    measured: list[Measured] = []
    broken: list[str] = []
    for row, held in ROWS.items():
        if not numbers & set(held):
            continue
        began = time.monotonic()
        try:
            found = row(stand)
        except Exception as problem:  # noqa: BLE001 - whatever stops one row, the others are measured, and the gate stays closed
            broken.append(f"| {','.join(map(str, held))} | could not be measured | | | miss | {type(problem).__name__}: {problem} |")
            print(broken[-1], flush=True)
            continue
        measured += found
        print("\n".join(line(one) for one in found), f"  ({time.monotonic() - began:.0f} s)", flush=True)
    return sorted(measured, key=lambda one: one.number), broken


def main() -> int:
    """Measure what was asked for; return 1 when a number misses its limit."""
    options = _options()
    with ExitStack() as stack:
        engine = Engine()
        stack.callback(engine.close)
        measured, broken = run(options.only, Stand(stack, engine, options.quick))
    unmeasured = options.only - {one.number for one in measured}
    missed = sorted({one.number for one in measured if not one.is_held} | unmeasured)
    verdict = f"numbers missed: {', '.join(map(str, missed))}" if missed else f"all {len(options.only)} held"
    report = Report("gate")
    report.add(*machine_lines(), *(["- --quick"] if options.quick else []), f"- {verdict}", "")
    report.add(*HEAD, *[line(one) for one in measured], *broken)
    report.data["numbers"] = [{name: getattr(one, name) for name in Measured.__slots__} | {"held": one.is_held} for one in measured]
    report.data["broken"] = broken
    print("\n" + report.text())
    if not options.no_write:
        report.write(options.out)
    return int(bool(missed or broken))


def _numbers(text: str) -> set[int]:
    found = {int(part) for part in text.split(",")}
    if not found <= set(NUMBERS):
        raise argparse.ArgumentTypeError(f"numbers go from 1 to {len(NUMBERS)}")
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.gate", description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=_numbers, default=set(NUMBERS), metavar="N[,M]")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "gate")
    parser.add_argument("--no-write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
