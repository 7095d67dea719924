"""Times and memory of the fault rows, a line per row, with the limit. The behaviour itself is asserted by tests/scenario.

python -m bench.faults [ROW]... [--no-write] [--list]
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.faults import rows_broker as fault_rows_broker
from bench.faults import rows_client as fault_rows_client
from bench.faults import rows_load as fault_rows_load
from bench.faults import rows_machines as fault_rows_machines
from bench.faults import rows_many_clients as fault_rows_crowd
from bench.faults import rows_metering as fault_rows_metering
from bench.faults import rows_stores as fault_rows_stores
from bench.faults import rows_storms as fault_rows_storms
from bench.faults import rows_tls as fault_rows_tls
from bench.faults.tools import Figure
from bench.harness.engine import ROOT, Engine
from bench.harness.report import Report, machine_lines
from tests.support.kafka.jars import KafkaUnavailableError
from tests.support.processes.namespaces import NoNamespacesError

ROWS: dict[str, Callable[[Path], list[Figure]]] = (
    fault_rows_broker.ROWS
    | fault_rows_machines.ROWS
    | fault_rows_client.ROWS
    | fault_rows_storms.ROWS
    | fault_rows_tls.ROWS
    | fault_rows_crowd.ROWS
    | fault_rows_load.ROWS
    | fault_rows_metering.ROWS
    | fault_rows_stores.ROWS
)


def main() -> int:
    """Run the rows; return 1 when a figure misses its limit or a row could not run."""
    options = _options()
    if options.list:
        print("\n".join(f"{name}  {row.__doc__.splitlines()[0]}" for name, row in ROWS.items()))
        return 0
    engine = Engine(python_only=True)
    figures: list[Figure] = []
    broken: list[str] = []
    skipped: list[str] = []
    print("\n".join(HEAD), flush=True)
    try:
        for name in options.row or ROWS:
            try:
                found = ROWS[name](engine.folder)
            except (NoNamespacesError, KafkaUnavailableError) as problem:
                skipped.append(f"| {name} | skipped: {problem} | | | |")
                print(skipped[-1], flush=True)
                continue
            except (OSError, RuntimeError, AssertionError) as error:
                broken.append(f"| {name} | could not be measured: {error} | | | miss |")
                print(broken[-1], flush=True)
                continue
            figures += found
            print("\n".join(figure.line() for figure in found), flush=True)
            time.sleep(0.2)
    finally:
        engine.close()
    report = Report("faults")
    report.add(*machine_lines(), "", *HEAD, *[figure.line() for figure in figures], *broken, *skipped)
    report.data["figures"] = [{name: getattr(figure, name) for name in Figure.__slots__} for figure in figures]
    if not options.no_write:
        report.write(options.out)
    return int(bool(broken) or any(figure.verdict == "miss" for figure in figures))


HEAD = ["| row | figure | measured | passes at | |", "|---|---|--:|--:|---|"]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    parser.add_argument("row", nargs="*", choices=[[], *ROWS], help="only these rows")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "faults")
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
