"""A Sluice of two processes compared with Sluices of one: CPU, spread of connections, memory, and the time to replace a worker.

python -m bench.workers [--starts 4] [--pairs 20] [--seconds 2] [--rate 4000] [--kills 20] [--upgrades 20] [--only cost,...] [--no-write]

* cost: CPU of a request at a steady rate, two workers and their supervisor over two Sluices with the same connections each.
* throughput: requests for a second of CPU of all processes, the next request sent when the answer is there: two workers over one process
  that has as many connections as each of them, and over one that has as many as both; then a model of eight workers.
* connection: CPU of a new connection with its one request, two workers and their supervisor over one process.
* spread: connections of the busiest of eight workers over its share of 32, of those that came, and after half were replaced.
* memory: of each process at its start.
* replacement: from `kill -9` of a worker until the next one serves.
* upgrade: a new version takes over `--upgrades` times, while 4 clients connect and leave all the time and 16 produce far over a bound of
  1 MB/s: connections refused, and the most that passed in 10 s, over that before the first upgrade (goal 1.1).

On two cores the stub broker and the load generators use a share of them: at full speed the machine is the limit, and the report says so.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict, astuple
from pathlib import Path
from statistics import median

from bench.harness.engine import ROOT, Engine
from bench.harness.report import Report, machine_lines
from bench.memory import RESIDENT_MIB_MAX
from bench.workers.cost import Pairs, Side, Slice, compare, new_connections, small_produce
from bench.workers.model import MODELLED_WORKERS, modelled_figure, sharing_us
from bench.workers.state import memory, replacement_ms, spread
from bench.workers.upgrade import upgrades_under_load

WORKERS = 2
CONNECTIONS = 16
NEW_CONNECTIONS_A_SECOND = 400
SPREAD_WORKERS, SPREAD_CONNECTIONS = 8, 32
GOAL_COST, GOAL_THROUGHPUT, GOAL_SPREAD, GOAL_UPGRADE = 1.02, 0.9, 1.15, 1.1
GOAL_ANONYMOUS_MIB, GOAL_REPLACEMENT_MS = 35.0, 1_000.0
FULL = 0.95
"""A process or machine above this share is saturated."""


def cost(engine: Engine, options: argparse.Namespace, report: Report) -> bool:
    """Two workers over two separate Sluices."""
    demand = small_produce(CONNECTIONS, options.rate)
    pairs = _compare(engine, options, Side([WORKERS], demand), Side([1] * WORKERS, demand))
    ratio = pairs.ratio.middle
    report.add(_line(f"CPU of a request at {options.rate:,.0f}/s, 2 workers / 2 Sluices", pairs, f"<= {GOAL_COST}", ratio <= GOAL_COST))
    report.data["cost"] = _data(pairs)
    return ratio <= GOAL_COST


def throughput(engine: Engine, options: argparse.Namespace, report: Report) -> bool:
    """Two workers over one process, as fast as answers arrive."""
    many = Side([WORKERS], small_produce(CONNECTIONS, 0))
    as_each = _compare(engine, options, many, Side([1], small_produce(CONNECTIONS // WORKERS, 0)))
    as_both = _compare(engine, options, many, Side([1], small_produce(CONNECTIONS, 0)))
    report.data["throughput"] = [_data(as_each), _data(as_both)]
    _add_throughput(report, "as many connections as both", as_both, None)
    is_good = _add_throughput(report, "as many connections as each worker", as_each, GOAL_THROUGHPUT)
    return _add_model(report, as_each) and is_good


def _add_model(report: Report, pairs: Pairs) -> bool:
    """Add what a machine with eight cores would show."""
    few_us, many_us = sharing_us(WORKERS), sharing_us(MODELLED_WORKERS)
    busy = median(one.busy[-1] for one in pairs.one)
    figure = modelled_figure(1 / pairs.ratio.middle, busy, many_us - few_us)
    title = f"model of {MODELLED_WORKERS} workers: the same figure"
    limit = f"usage of the others is taken in in {many_us:.1f} us each 10 ms, with 2 workers in {few_us:.1f} us"
    is_good = figure >= GOAL_THROUGHPUT
    report.add(f"| {title} | {figure:.3f} | {limit} | | >= {GOAL_THROUGHPUT} | {_said(is_good)} |")
    return is_good


def _add_throughput(report: Report, title: str, pairs: Pairs, goal: float | None) -> bool:
    ratio, low, high = astuple(pairs.ratio)
    figure = 1 / ratio
    is_good = goal is None or figure >= goal
    many, one = (median(part.per_second for part in side) for side in (pairs.one, pairs.other))
    shown, judged = ("", "") if goal is None else (f">= {goal}", _said(is_good))
    title = f"requests for a second of CPU at full speed, 2 workers / 1 process with {title}"
    report.add(
        f"| {title} | {figure:.3f} ({1 / high:.3f} - {1 / low:.3f}) | {many:,.0f}/s | {one:,.0f}/s | {shown} | {judged} |",
        f"| its limit | | {_limit(pairs.one)} | {_limit(pairs.other)} | | |",
    )
    return is_good


def _compare(engine: Engine, options: argparse.Namespace, one: Side, other: Side) -> Pairs:
    return compare(engine, one, other, starts=options.starts, pairs=options.pairs, seconds=options.seconds)


def _limit(slices: list[Slice]) -> str:
    """Return what was the limit."""
    busy = [median(values) for values in zip(*(one.busy for one in slices), strict=True)]
    machine = median(one.machine_busy for one in slices)
    fullest = max(busy)
    limit = "the process" if fullest > FULL else "the machine" if machine > FULL else "waiting for peers"
    shares = ", ".join(f"{share:.0%}" for share in busy)
    return f"{limit} (processes {shares} of a core; machine {machine:.0%})"


def connection(engine: Engine, options: argparse.Namespace, report: Report) -> bool:
    """A new connection with one request, at a steady rate and at full speed."""
    report.data["connection"] = {}
    for rate, title in ((NEW_CONNECTIONS_A_SECOND, f"{NEW_CONNECTIONS_A_SECOND}/s"), (0, "at full speed")):
        demand = new_connections(rate)
        pairs = _compare(engine, options, Side([WORKERS], demand), Side([1], demand))
        report.add(_line(f"CPU of a new connection, {title}, 2 workers / 1 process", pairs, "", None))
        shares = [median(one.busy[at] / one.per_second for one in pairs.one) * 1e6 for at in range(1 + WORKERS)]
        report.add(f"| of it the supervisor, the workers | | {shares[0]:.1f} us, {sum(shares[1:]):.1f} us | | | |")
        report.data["connection"][title] = _data(pairs)
    return True


def spread_row(engine: Engine, options: argparse.Namespace, report: Report) -> bool:
    """32 connections over eight workers."""
    came, changed = spread(engine, SPREAD_WORKERS, SPREAD_CONNECTIONS)
    is_good = max(came, changed) <= GOAL_SPREAD
    title = f"busiest of {SPREAD_WORKERS} workers / its share of {SPREAD_CONNECTIONS} connections; after half were replaced"
    report.add(f"| {title} | {came:.2f}; {changed:.2f} | | | <= {GOAL_SPREAD} | {_said(is_good)} |")
    report.data["spread"] = [came, changed]
    return is_good


def memory_row(engine: Engine, options: argparse.Namespace, report: Report) -> bool:
    """Memory of each process at its start."""
    figures, is_good = memory(engine, WORKERS), True
    for at, one in enumerate(figures):
        name = "supervisor" if at == 0 else f"worker {at - 1}"
        shared = one["Shared_Clean"] + one["Shared_Dirty"]
        figures_mib = {"resident": one["Rss"], "anonymous": one["Anonymous"], "shared": shared, "proportional": one["Pss"]}
        shown = ", ".join(f"{kind} {mib:.1f} MiB" for kind, mib in figures_mib.items())
        goals = {"Rss": RESIDENT_MIB_MAX} if at == 0 else {"Rss": RESIDENT_MIB_MAX, "Anonymous": GOAL_ANONYMOUS_MIB}
        is_small = all(one[key] <= goal for key, goal in goals.items())
        goal = f"resident <= {RESIDENT_MIB_MAX:g} MiB" + ("" if at == 0 else f", anonymous <= {GOAL_ANONYMOUS_MIB:g} MiB")
        report.add(f"| memory at the start, {name} | {shown} | | | {goal} | {_said(is_small)} |")
        is_good = is_good and is_small
    report.data["memory"] = figures
    return is_good


def replacement(engine: Engine, options: argparse.Namespace, report: Report) -> bool:
    """The time from `kill -9` until the next worker serves."""
    times = replacement_ms(engine, WORKERS, options.kills)
    figures, is_good = f"median {median(times):.0f} ms, longest {max(times):.0f} ms", median(times) <= GOAL_REPLACEMENT_MS
    title = f"`kill -9` until the next worker serves, {len(times)} kills"
    report.add(f"| {title} | {figures} | | | median <= {GOAL_REPLACEMENT_MS:g} ms | {_said(is_good)} |")
    report.data["replacement_ms"] = times
    return is_good


def upgrade(engine: Engine, options: argparse.Namespace, report: Report) -> bool:
    """Upgrades in place under load."""
    seen = upgrades_under_load(engine, WORKERS, options.upgrades)
    is_good = not seen.refused and seen.worst <= GOAL_UPGRADE * seen.alone
    times = f"median {median(seen.took_ms):.0f} ms, longest {max(seen.took_ms):.0f} ms"
    report.add(f"| {len(seen.took_ms)} upgrades in place: from the signal until the new version accepts | {times} | | | | |")
    connections = f"{seen.refused} refused, {seen.unanswered} without an answer, {seen.served} served; longest {seen.longest_ms:.0f} ms"
    report.add(f"| connections meanwhile | {connections} | | | 0 refused | {_said(not seen.refused)} |")
    report.add(
        f"| most in 10 s / 10 s of the bound, with upgrades; before them | {seen.worst:.3f}; {seen.alone:.3f} | | | <= {GOAL_UPGRADE} x "
        f"| {_said(seen.worst <= GOAL_UPGRADE * seen.alone)} |"
    )
    report.data["upgrade"] = asdict(seen)
    return is_good


ROWS: dict[str, Callable[[Engine, argparse.Namespace, Report], bool]] = {
    "cost": cost,
    "throughput": throughput,
    "connection": connection,
    "spread": spread_row,
    "memory": memory_row,
    "replacement": replacement,
    "upgrade": upgrade,
}


def _line(title: str, pairs: Pairs, goal: str, is_good: bool | None) -> str:
    ratio, low, high = astuple(pairs.ratio)
    one, other = (median(part.us for part in side) for side in (pairs.one, pairs.other))
    return f"| {title} | {ratio:.3f} ({low:.3f} - {high:.3f}) | {one:.2f} us | {other:.2f} us | {goal} | {_said(is_good)} |"


def _said(is_good: bool | None) -> str:
    return "" if is_good is None else "ok" if is_good else "miss"


def _data(pairs: Pairs) -> dict[str, object]:
    return {"interval": asdict(pairs.ratio), "one": [asdict(one) for one in pairs.one], "other": [asdict(one) for one in pairs.other]}


def main() -> int:
    """Measure the rows; return 1 when a goal was missed."""
    options = _options()
    report = Report("workers")
    shape = f"- {options.starts} starts of {options.pairs} pairs of {options.seconds:g} s; medians of ratios with their 95 % interval"
    report.add(*machine_lines(), shape, *([f"- {options.note}"] if options.note else []), "")
    report.add("| what | figure (95 %) | 2 workers | beside it | goal | |", "|---|---|---|---|---|---|")
    engine = Engine()
    try:
        verdicts = [ROWS[name](engine, options, report) for name in options.only]
    finally:
        engine.close()
    print(report.text())
    if not options.no_write:
        report.write(options.out)
    return int(not all(verdicts))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.workers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--starts", type=int, default=4, help="how often all processes are restarted")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of slices after each start")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a slice")
    parser.add_argument("--rate", type=float, default=4_000, help="requests per second in all, of the row `cost`")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--upgrades", type=int, default=20)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(ROWS), help="names of rows, separated by commas")
    parser.add_argument("--note", default="", help="a note for the result, such as other load of the machine")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "workers")
    parser.add_argument("--no-write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
