"""The schedule of paced enforcement (ADR 12) on virtual time: flow at the bound, shares of members, what requests reserve. And its cost.

python -m bench.paced --simulated [--seconds 60] [--no-write]
python -m bench.paced --processes [--seconds 60] [--no-write]   workers and members of a fleet with one schedule, on virtual time
python -m bench.paced --real [--seconds 60] [--no-write]   the product at a real broker, beside the window
python -m bench.paced --real --workers 1,2 [--members 2]   several processes with one schedule instead
python -m bench.paced --real --request-time [--workers 1,2] [--members 2]   small requests under a quota of request time instead
python -m bench.paced --real --shares [--workers 2,4] [--members 2]   members of a group that all want more than they get, also by weight
python -m bench.paced --cost     processor time of the schedule beside the window; prints only
python -m bench.paced --cpu      CPU of a whole request under a schedule over that with a window

Simulated connections have one request in flight, and the round trip is 5 to 6 ms. Figures are from second 10 on unless said otherwise.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bench.harness.engine import ROOT
from bench.harness.report import Report, machine_lines
from bench.paced.cost import costs
from bench.paced.cpu import cpu_lines
from bench.paced.fetches import CHOSEN, fetches
from bench.paced.handler_time import CHOSEN as CHOSEN_TIME
from bench.paced.handler_time import handler_times
from bench.paced.levels import level_shares
from bench.paced.loads import BOUND, are_due, flow, members
from bench.paced.processes import process_flow, process_shares
from bench.paced.real import Way, process_lines, real_lines
from bench.paced.real_shares import share_lines
from bench.paced.real_time import PERCENT, time_lines
from tests.support.kafka.jars import KRAFT

FLOW_GOAL = (0.98, 1.02)


def main() -> int:
    """Run all loads; return 1 when a goal was missed."""
    options = _options()
    if options.cost:
        print("\n".join(f"| {name} | {nanoseconds:,.0f} ns |" for name, nanoseconds in costs()))
        return 0
    if options.cpu:
        return _written(options, "paced-cpu", "- stub broker and load generator in C", cpu_lines(starts=4, pairs=10, seconds=1.0))
    ways = [
        *(Way("paced", workers=count) for count in options.workers or [1]),
        *(Way("paced", members=count) for count in options.members),
    ]
    is_shared = bool(options.workers or options.members)
    if options.real and options.shares:
        what = f"- Apache Kafka {KRAFT}, {options.seconds} s each, rows of one pacing at the same time, one request in flight"
        return _written(options, "paced-real-shares", what, share_lines(options.seconds, ways))
    if options.real and options.request_time and is_shared:
        what = f"- Apache Kafka {KRAFT}, {options.seconds} s each, all at the same time, request time of {PERCENT:g} %"
        return _written(options, "paced-real-request-time-processes", what, time_lines(options.seconds, ways))
    if options.real and is_shared:
        what = f"- Apache Kafka {KRAFT}, {options.seconds} s each, all at the same time, one request in flight"
        return _written(options, "paced-real-processes", what, process_lines(options.seconds, ways))
    if options.real and options.request_time:
        what = f"- Apache Kafka {KRAFT}, {options.seconds} s each, window and schedule at the same time, request time of {PERCENT:g} %"
        return _written(options, "paced-real-request-time", what, time_lines(options.seconds))
    if options.real:
        what = f"- Apache Kafka {KRAFT}, {options.seconds} s each, window and schedule at the same time, one request in flight"
        return _written(options, "paced-real", what, real_lines(options.seconds))
    what = f"- virtual time, {options.seconds} s"
    if options.processes:
        return _written(
            options, "paced-processes", what, itertools.chain(_process_lines(options.seconds), [""], _share_lines(options.seconds))
        )
    kinds = _flow_lines, _member_lines, _level_lines, _fetch_lines, _handler_time_lines
    lines = itertools.chain.from_iterable(itertools.chain(lines(options.seconds), [""]) for lines in kinds)
    return _written(options, "paced-simulated", what, lines)


def _written(options: argparse.Namespace, name: str, what: str, made: Iterable[str]) -> int:
    """Print the lines and write them; return 1 when a goal was missed."""
    lines: list[str] = []
    for line in made:
        lines.append(line)
        print(line, flush=True)
    report = Report(name)
    note = [f"- {options.note}"] if options.note else []
    report.add(*machine_lines(), f"{what}, bound {BOUND / 1e6:g} MB/s, burst 1 s unless said", *note, "", *lines)
    if not options.no_write:
        report.write(options.out)
    return int(any(line.endswith("miss |") for line in lines))


def _flow_lines(seconds: int) -> Iterator[str]:
    yield (
        "| connections | request | charged | long run | all, with the burst | seconds at 0.9 to 1.1 | worst second "
        "| gap p99, max | latency p50, p99 | |"
    )
    yield "|--:|--:|---|--:|--:|--:|--:|--:|--:|---|"
    low, high = FLOW_GOAL
    for connections, size, name, found in flow(seconds):
        goal = "" if name != "paced, before it goes" else "ok" if low <= found.long_run <= high else "miss"
        figures = f"{found.long_run:.3f} | {found.whole_run:.3f} | {found.seconds_even:.0%} | {found.worst_second:.2f}"
        times = f"{found.gap_p99_ms:,.0f}, {found.gap_max_ms:,.0f} ms | {found.latency_p50_ms:,.0f}, {found.latency_p99_ms:,.0f} ms"
        yield f"| {connections} | {size // 1_000:,} kB | {name} | {figures} | {times} | {goal} |"


def _member_lines(seconds: int) -> Iterator[str]:
    yield "| members | parts | burst | order | shares | sum | |"
    yield "|---|---|--:|---|---|--:|---|"
    for load, burst_ms, name, found in members(seconds):
        is_goal = name == "member schedules" and burst_ms >= load.burst_ms_min
        goal = _is_even(found, load.parts) if is_goal else ""
        parts = ", ".join(f"{part:.2f}" for part in load.parts)
        shares = ", ".join(f"{share:.3f}" for share in found)
        yield f"| {load.name} | {parts} | {burst_ms:,} ms | {name} | {shares} | {sum(found):.3f} | {goal} |"


def _level_lines(seconds: int) -> Iterator[str]:
    yield "| client-ids and connections of principals | parts | first come below a principal | with levels below it | |"
    yield "|---|---|---|---|---|"
    for load, first_come, found in level_shares(seconds):
        texts = (", ".join(f"{share:.3f}" for share in shares) for shares in (load.parts, first_come, found))
        yield f"| {load.name} | {' | '.join(texts)} | {_is_even(found, load.parts)} |"


def _is_even(found: Sequence[float], parts: Sequence[float]) -> str:
    return "ok" if are_due(found, parts) else "miss"


def _fetch_lines(seconds: int) -> Iterator[str]:
    yield "| consumers | a fetch reserves | long run | beyond bound, burst and one request | |"
    yield "|---|---|--:|--:|---|"
    low, high = FLOW_GOAL
    for load, reserve, found in fetches(seconds):
        goal = "" if reserve != CHOSEN else "ok" if low <= found.long_run <= high and found.beyond_ms <= 0 else "miss"
        yield f"| {load.name} | {reserve} | {found.long_run:.3f} | {found.beyond_ms:.0f} ms | {goal} |"


def _handler_time_lines(seconds: int) -> Iterator[str]:
    yield "| connections, 1 % of a thread | a request reserves | long run | beyond bound, burst and one request | not covered | |"
    yield "|---|---|--:|--:|--:|---|"
    low, high = FLOW_GOAL
    for load, reserve, found in handler_times(seconds):
        goal = "" if reserve != CHOSEN_TIME else "ok" if low <= found.long_run <= high else "miss"
        yield f"| {load.name} | {reserve} | {found.long_run:.3f} | {found.beyond_ms:,.0f} ms | {found.unchecked:.1%} | {goal} |"


def _process_lines(seconds: int) -> Iterator[str]:
    yield "| processes, and when they know of each other | connections | long run | worst second | beyond bound, burst and one request | |"
    yield "|---|---|--:|--:|--:|---|"
    low, high = FLOW_GOAL
    for how, count, size, found in process_flow(seconds):
        goal = "" if not how.is_chosen else "ok" if low <= found.long_run <= high else "miss"
        figures = f"{found.long_run:.3f} | {found.worst_second:.3f} | {found.beyond_ms:,.0f} ms"
        yield f"| {how.name} | {count} x {size // 1_000} kB | {figures} | {goal} |"


def _share_lines(seconds: int) -> Iterator[str]:
    yield "| members, spread over two workers | schedules of members | shares |"
    yield "|---|---|---|"
    for name, order, found in process_shares(seconds):
        yield f"| {name} | {order} | {', '.join(f'{share:.3f}' for share in found)} |"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.paced", description=__doc__)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--simulated", action="store_true", help="on virtual time")
    kind.add_argument("--processes", action="store_true", help="several processes with one schedule, on virtual time")
    kind.add_argument("--real", action="store_true", help="with a real broker; needs a JDK and Maven")
    kind.add_argument("--cost", action="store_true", help="processor time")
    kind.add_argument("--cpu", action="store_true", help="CPU of whole requests")
    parser.add_argument("--workers", type=_counts, default=[], help="with --real: numbers of workers, such as 1,2")
    parser.add_argument("--members", type=_counts, default=[], help="with --real: numbers of proxies in a fleet, such as 2")
    parser.add_argument("--request-time", action="store_true", help="with --real: a quota of request time")
    parser.add_argument("--shares", action="store_true", help="with --real: shares of members of a group")
    parser.add_argument("--seconds", type=int, default=60, help="above 10")
    parser.add_argument("--note", default="", help="a note for the result, such as other load of the machine")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "paced")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    if options.shares and not options.real:
        parser.error("--shares needs --real")
    if options.seconds <= 10:
        parser.error("--seconds has to be above 10, since figures begin at second 10")
    return options


def _counts(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
