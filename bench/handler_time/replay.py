"""Give the input that `python -m bench.handler_time --record FOLDER` recorded to an estimator of request time, and judge it in the same
way.

python -m bench.handler_time.replay FOLDER... [--set NAME=VALUE]... [--sums]

NAME is a constant of the estimator as MODULE.CONSTANT (`broker.UNIT_NS`, `work.IDLE_BROKER_SHARE`, `work.CAP_REPLICATED`): a candidate is
tried in a second instead of in ten minutes, on the same answers.
"""

import argparse
import importlib
import json
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.handler_time.judge import HandlerRow, goals, sums_of, table
from bench.handler_time.rows import END, HEAD, PAUSE, RESUME, WHOLE, Row, read_clients, read_rows

MODULES = ("work", "broker", "connection")
"""Modules of the estimator, each after those that it imports."""


class Replay:
    """A new estimator, and its charges of each client over time."""

    def __init__(self) -> None:
        self._estimator = importlib.import_module("proxy.handler_time")
        work = importlib.import_module("proxy.handler_time.work")
        every = [*(one for one in work._WORKS.values() if one is not None), work._PRODUCE_ALL, work._UNKNOWN]
        self._works = {one.key: one for one in every}
        self._brokers: dict[int, Any] = {}
        self._connections: dict[int, Any] = {}
        self._heads: dict[int, int] = {}
        self.charges: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
        """By client: (when, nanoseconds)."""

    def feed(self, row: Row) -> None:
        """Give one input to the estimator."""
        times = self._connections.get(row.connection)
        if times is None:
            broker = self._brokers.setdefault(row.broker, self._estimator.BrokerHandlerTime())
            times = self._connections[row.connection] = self._estimator.ConnectionHandlerTime(broker)
        times.set_rtt(row.rtt_ns)
        if row.kind == PAUSE:
            times.pause()
        elif row.kind == RESUME:
            times.resume(row.now_ns)
        elif row.kind == END:
            self._charge(self._heads.get(row.connection, 0), row, times.charge_end(row.now_ns))
        elif row.kind == HEAD:
            self._heads[row.connection] = row.client
            self._charge(row.client, row, times.charge_head(self._works[row.key], row.size, row.forwarded_ns, row.now_ns))
        elif row.kind == WHOLE:
            charged = times.charge(self._works[row.key], row.size, row.forwarded_ns, row.now_ns, int(not row.last))
            self._charge(row.client, row, charged)

    def _charge(self, client: int, row: Row, nanoseconds: float) -> None:
        self.charges[client].append((row.now_ns, nanoseconds))


def replay(path: Path) -> list[HandlerRow]:
    """Return the rows of one recording with the charges of the present estimator."""
    one = Replay()
    for row in read_rows(path):
        one.feed(row)
    charges = {name: one.charges[number] for number, name in enumerate(read_clients(path))}
    rows = []
    for kept in json.loads(path.with_suffix(".json").read_text()):
        ours = {name: all_of for name, all_of in charges.items() if name.startswith(kept["prefix"])}
        row = HandlerRow(**kept["row"])
        row.sluice = sum(nanoseconds for all_of in ours.values() for _, nanoseconds in all_of) / 1e9
        ten = {name: sum(nanoseconds for at, nanoseconds in all_of if at < kept["ten_ns"]) / 1e9 for name, all_of in ours.items()}
        row.sums = sums_of(kept["ten"], ten, kept["ten_requests"])
        rows.append(row)
    return rows


def change(assignments: Sequence[str]) -> None:
    """Set constants of the estimator, each as MODULE.CONSTANT=VALUE."""
    left = dict(assignment.split("=") for assignment in assignments)
    for name in MODULES:
        module = importlib.import_module(f"proxy.handler_time.{name}")
        source = Path(str(module.__file__)).read_text()
        for constant in [constant for constant in left if constant.startswith(f"{name}.")]:
            line = re.compile(rf"^{constant.removeprefix(f'{name}.')}: Final = .*$", re.MULTILINE)
            source, found = line.subn(f"{constant.removeprefix(f'{name}.')} = {float(left.pop(constant))}", source)
            assert found == 1, f"{module.__name__} has no constant {constant}"
        exec(compile(source, str(module.__file__), "exec"), vars(module))  # noqa: S102  our own source
    assert not left, f"not of {', '.join(MODULES)}: {', '.join(left)}"
    importlib.reload(importlib.import_module("proxy.handler_time"))


def main() -> int:
    """Replay the recordings of all folders as one."""
    parser = argparse.ArgumentParser(prog="python -m bench.handler_time.replay", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="+")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="another value for a constant (repeatable)")
    parser.add_argument("--sums", action="store_true", help="print each (client, 10 s) sum that is off by more than a factor of two")
    options = parser.parse_args()
    change(options.set)
    rows = [row for folder in options.folder for path in sorted(folder.glob("*.rows")) for row in replay(path)]
    print("\n".join([*table(rows), "", *goals(rows, None)]))
    if options.sums:
        for row in rows:
            for client, truth, estimate in row.sums:
                if not truth / 2 <= estimate <= truth * 2:
                    print(f"{client:40} {truth * 1e3:9.1f} ms, estimated {estimate * 1e3:9.1f}: {estimate / truth:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
