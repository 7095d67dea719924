"""One budget at several members of a fleet: clients far over their quota, beside one process under the same load.

python -m bench.fleet [--client raw java librdkafka] [--runs 3] [--seconds 120] [--members 2,4] [--loads even skewed moving] [--kind fetch]
python -m bench.fleet --simulated [--members 2,4,12] [--lags 100,250] [--kind produce fetch] [--runs 3]     on virtual time
python -m bench.fleet --simulated --client java [--members 2,4] [--lags 40,250] [--seconds 120]     producers as those of Java
python -m bench.fleet --cost [--starts 2] [--pairs 20]     CPU of a request with a fleet over that without; CPU, bytes and lag of a hub
python -m bench.fleet --faults [--rounds 3] [--fault "rolling restart"]...     a fleet of three with faults
python -m bench.fleet --cuts [--members 2,4] [--loads even skewed moving] [--way relay]...     the bus is cut for 30 s

Real Apache Kafka and a real topic for the fleet; each member is `sluice run` with a supervisor, a worker and a hub. All runs of a load are
concurrent, on one broker, each with a client-id of its own. What passes is what the proxies record. Needs a JDK and Maven (see
tests/support/kafka).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import ExitStack
from itertools import product
from pathlib import Path

from bench.fleet.cells import Cell, lines_of
from bench.fleet.clients import CLIENTS, LOADS
from bench.fleet.cost import fleet_cost
from bench.fleet.cuts import WAYS, CutFleets
from bench.fleet.cuts import lines_of as lines_of_cuts
from bench.fleet.faults import FAULTS, faults
from bench.fleet.faults import lines_of as lines_of_faults
from bench.fleet.hub_cost import TOPIC_MS, hub_cost
from bench.fleet.real import KINDS, Fleets
from bench.fleet.simulated.fetches import BURST_S, lines_of_fetches
from bench.fleet.simulated.pipelines import lines_of_pipelines
from bench.fleet.simulated.produce import lines_of_produce
from bench.fleet.simulated.waves import lines_of_waves
from bench.harness.engine import ROOT
from bench.harness.report import Report, machine_lines
from bench.options import numbers
from tests.support.kafka.jars import KRAFT

CPU_GOAL = 1.015
HUB_GOAL = 0.05
STUDY_BYTES = 320
"""Bytes a second for each member and group at its bound, as the design study expected: 20 entries of 16 bytes."""
STUDY_LAG_MS = (50, 150)
"""The lag of a topic that the design study expected, for up to 16 members."""
STUDY_CORES = {12: 0.003}
"""Part of a core that the design study expected for 1,000 groups at their bounds, by the number of members."""
HUB_MEMBERS = 12
"""The goal is for this number of members; the cost with more is printed."""
HUBS = ((2, 1_000, True), (12, 1_000, True), (12, 1_000, False), (50, 1_000, True))
"""Number of members, number of groups, and whether the groups are at their bounds."""


def main() -> int:
    """Run all loads; return 1 when a goal was missed."""
    options = _options()
    if options.simulated:
        return _simulated(options)
    if options.cost:
        return _cost(options)
    if options.faults:
        return _faults(options)
    if options.cuts:
        return _cuts(options)
    with ExitStack() as stack:
        fleets = stack.enter_context(Fleets(options.members, options.fetch_bytes))
        cells: list[Cell] = []
        for client, kind, load in product(options.client, options.kind, options.loads):
            print(f"{client}, {kind}, {load}", flush=True)
            runs = [asyncio.run(fleets.run(client, kind, load, options.seconds, run)) for run in range(options.runs)]
            some = [cell for run in runs for cell in run]
            print("\n".join(lines_of(some)), flush=True)
            cells += some
    report = Report("fleet" if options.client == ["raw"] else "fleet-libraries")
    report.data["cells"] = [cell.figures() for cell in cells]
    return _publish(
        report, options, f"- Apache Kafka {KRAFT}, medians of {options.runs} runs of {options.seconds:g} s", "", *lines_of(cells)
    )


def _publish(report: Report, options: argparse.Namespace, *lines: str) -> int:
    """Add lines to a result, print it, and write it unless told otherwise; return 1 when a goal was missed."""
    report.add(*machine_lines(), *lines)
    print("\n" + report.text())
    if not options.no_write:
        report.write(options.out)
    return int(any(line.endswith("miss |") for line in lines))


def _simulated(options: argparse.Namespace) -> int:
    seconds, missed = int(options.seconds) + 60, 0
    if "java" in options.client:
        about = f"- virtual time, {options.seconds:g} s after the first minute; publish interval 50 ms; means of {options.runs} runs"
        lines = lines_of_pipelines(options.members, options.lags, seconds, options.runs)
        return _publish(Report("fleet-simulated-java"), options, about, "", *lines)
    if "produce" in options.kind:
        about = f"- virtual time, {options.seconds:g} s after the first minute; publish interval 50 ms; means of {options.runs} runs"
        lines = lines_of_produce(options.members, options.lags, seconds, options.runs)
        lines += ["", *lines_of_waves("produce", options.members, options.lags, options.runs)]
        missed |= _publish(Report("fleet-simulated"), options, about, "", *lines)
    if "fetch" in options.kind:
        about = f"- virtual time, {seconds - BURST_S} s after the first {BURST_S} s; publish interval 50 ms; means of {options.runs} runs"
        lines = lines_of_fetches(options.members, options.lags, options.broker_ms, options.late_ms, seconds, options.runs)
        lines += ["", *lines_of_waves("fetch", options.members, options.lags, options.runs)]
        missed |= _publish(Report("fleet-simulated-fetches"), options, about, "", *lines)
    return missed


def _faults(options: argparse.Namespace) -> int:
    lines = lines_of_faults(faults(options.fault or list(FAULTS), options.rounds))
    return _publish(Report("fleet-faults"), options, f"- Apache Kafka {KRAFT}, mute", "", *lines)


def _cuts(options: argparse.Namespace) -> int:
    with CutFleets(options.members) as fleets:
        lines = lines_of_cuts(asyncio.run(fleets.run(options.way or list(WAYS), options.loads)))
    return _publish(Report("fleet-cuts"), options, f"- Apache Kafka {KRAFT}, mute", "", *lines)


def _cost(options: argparse.Namespace) -> int:
    ratio = fleet_cost(starts=options.starts, pairs=options.pairs, seconds=2.0)
    lines = ["| what | figure | goal | |", "|---|--:|---|---|"]
    goal = "ok" if ratio.low <= CPU_GOAL else "miss"
    figure = f"{ratio.middle:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
    lines.append(f"| CPU of a request, fleet of 2 over none, {options.starts * options.pairs} pairs | {figure} | {CPU_GOAL} | {goal} |")
    for members, groups, at_bound in HUBS:
        cost = hub_cost(members, groups, at_bound=at_bound)
        goal = "" if members > HUB_MEMBERS else "ok" if cost.core <= HUB_GOAL else "miss"
        what = f"hub, {members} members, {groups:,} groups {'at their bound' if at_bound else 'far below their bound'}"
        core, sent = f"{cost.core:.1%} of a core", f"{cost.bytes_per_second / 1e6:.2f} MB/s"
        lag = f"lag {cost.lag_ms:.0f} ms, p99 {cost.lag_ms_p99:.0f} ms"
        if at_bound:
            core += f" (study: {STUDY_CORES[members]:.1%})" if members in STUDY_CORES else ""
            sent += f" (study: {members * groups * STUDY_BYTES / 1e6:.1f})"
            lag += " (study: {} to {})".format(*STUDY_LAG_MS)
        lines.append(f"| {what} | {core}, {sent}, {lag} | {HUB_GOAL:.0%} | {goal} |")
    about = (
        "- hubs: measured is their processor time for messages and rows; simulated are the other members, and a topic that takes "
        f"{TOPIC_MS} ms and no processor time. The lag is the age of usage when another member has recorded it. Study: the design study"
    )
    return _publish(Report("fleet-cost"), options, about, "", *lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    text = "time of each run; the first waves after the beginning are higher than later ones, and within 60 s they are half of all"
    parser.add_argument("--seconds", type=float, default=120, help=text)
    parser.add_argument("--members", type=numbers, default=[2, 4], help="numbers of members, such as 2,4")
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS))
    parser.add_argument("--client", nargs="+", choices=list(CLIENTS), default=["raw"], help="libraries of the clients")
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS))
    text = "the most bytes of a fetch; with 1 MB, a tenth of the window, one fetch more or less is a difference of 10 %% in 10 s"
    parser.add_argument("--fetch-bytes", type=int, default=200_000, help=text)
    parser.add_argument("--simulated", action="store_true", help="on virtual time")
    parser.add_argument("--cost", action="store_true", help="processor time")
    parser.add_argument("--faults", action="store_true", help="faults of a fleet of three")
    parser.add_argument("--fault", action="append", choices=list(FAULTS), help="with --faults: only this one; may be repeated")
    parser.add_argument("--cuts", action="store_true", help="cuts of the bus")
    parser.add_argument("--way", action="append", choices=WAYS, help="with --cuts: only this way; may be repeated")
    parser.add_argument("--rounds", type=int, default=3, help="with --faults: how often each fault happens")
    parser.add_argument("--runs", type=int, default=3, help="runs of each row")
    parser.add_argument("--starts", type=int, default=2, help="with --cost: starts of the processes")
    parser.add_argument("--pairs", type=int, default=20, help="with --cost: pairs of slices for each start")
    parser.add_argument("--lags", type=numbers, default=[100, 250], help="with --simulated: lags of the bus in ms")
    text = "with --simulated: average times of the broker for a fetch in ms"
    parser.add_argument("--broker-ms", type=numbers, default=[5, 300], help=text)
    text = "with --simulated: ms by which messages are later on the bus while fetches pass, in some of the rows"
    parser.add_argument("--late-ms", type=int, default=60, help=text)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "fleet")
    parser.add_argument("--no-write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
