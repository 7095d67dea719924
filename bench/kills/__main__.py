"""A thousand `kill -9` of Sluice under traffic: no record is lost, duplicated or reordered, and every lost metering decision is counted.

python -m bench.kills --workers 2 [--rounds 100] [--stops 10] [--kind "worker killed"]...   see `bench/kills/of_workers.py`
python -m bench.kills [--rounds 1000] [--stretch 25] [--state build/kills.jsonl] [--seed 1] [--no-write]

Two idempotent producers of librdkafka, one far over its quota, send through one Sluice to Apache Kafka 4.3.1. Sluice is killed at a random
moment and restarted on the same ports, `--stretch` times; then it ends in order. The records at the broker are compared with the
acknowledged ones, and the decisions in the metering files with the recorded ones. Stretches alternate between mute and delay, and between
the levels `trace` (compared with a count beside the meter, to the last decision) and `packed` (with a lower bound from /metrics before each
kill). A line of `--state` is a finished stretch; a new run continues after the last one until there are `--rounds` kills in all. An
interrupted stretch does not count. The metering files of a failed stretch stay in build/kills-failed.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench.harness.engine import ROOT
from bench.harness.report import Report, machine_lines
from bench.kills import of_workers
from tests.support.clients.topics import new_topic
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT
from tests.support.places import BUILD, temporary_directory
from tests.support.processes.kills import PARTITIONS, Stretch, kill_often
from tests.support.processes.worker_kills import KINDS

FAILED = BUILD / "kills-failed"
HEAD = [
    "| mode | level | kills | records acknowledged | in flight at the kills | lost | twice | out of order | corrupt | failed sends "
    "| decisions | of them lost and counted | uncounted | metering problems | |",
    "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|",
]


def settled(state: Path) -> list[Stretch]:
    """Return the stretches that are already finished."""
    return [Stretch(**json.loads(line)) for line in state.read_text().splitlines()] if state.exists() else []


def go_on(state: Path, rounds: int, stretch_kills: int, seed: int) -> list[Stretch]:
    """Add stretches to the state until there are `rounds` kills in all."""
    done = settled(state)
    if sum(one.kills for one in done) >= rounds:
        return done
    state.parent.mkdir(parents=True, exist_ok=True)
    with KafkaCluster(KRAFT, name="kills") as kafka:
        while (left := rounds - sum(one.kills for one in done)) > 0:
            began = time.monotonic()
            done.append(_one(kafka.bootstrap, min(stretch_kills, left), seed + len(done)))
            with state.open("a") as file:
                file.write(json.dumps(asdict(done[-1])) + "\n")
            verdict = "ok" if done[-1].is_good else f"miss: {asdict(done[-1])}"
            print(f"{sum(one.kills for one in done)} of {rounds} kills, {time.monotonic() - began:.0f} s, {verdict}", flush=True)
    return done


def _one(bootstrap: str, kills: int, seed: int) -> Stretch:
    with temporary_directory("kills") as directory:
        stretch = kill_often(bootstrap, new_topic(bootstrap, "killed", partitions=PARTITIONS), directory, kills, seed, name="sluice-kills")
        if not stretch.is_good:
            shutil.copytree(directory, FAILED / f"seed-{seed}", dirs_exist_ok=True)
        return stretch


def table(stretches: Sequence[Stretch]) -> list[str]:
    """Return the sums by mode and level, and over all."""
    kinds = sorted({(one.mode, one.level) for one in stretches})
    lines = [_line(*kind, [one for one in stretches if (one.mode, one.level) == kind]) for kind in kinds]
    return [*HEAD, *lines, _line("all", "", stretches)]


def _line(mode: str, level: str, some: Sequence[Stretch]) -> str:
    records = [sum(one.kills for one in some), sum(one.acknowledged for one in some), sum(one.in_flight for one in some)]
    wrong = [sum(one.problems.get(kind, 0) for one in some) for kind in ("lost", "duplicates", "out_of_order", "corrupt")]
    sends = sum(one.failed_sends for one in some)
    decisions = [sum(one.decisions for one in some), sum(one.dropped for one in some), sum(one.uncounted for one in some)]
    problems = sum(len(one.metering_problems) for one in some)
    figures = " | ".join(f"{figure:,}" for figure in (*records, *wrong, sends, *decisions, problems))
    return f"| {mode} | {level} | {figures} | {'ok' if all(one.is_good for one in some) else 'miss'} |"


def main() -> int:
    """Kill as often as asked for; return 1 when anything is lost, duplicated, out of order or uncounted."""
    options = _options()
    if options.workers > 1:
        return of_workers.run(options)
    stretches = go_on(options.state, options.rounds, options.stretch, options.seed)
    report = Report("kills")
    report.add(*machine_lines(), f"- Apache Kafka {KRAFT}; {len(stretches)} stretches", "", *table(stretches))
    report.data["stretches"] = [asdict(one) for one in stretches]
    print(report.text())
    if not options.no_write:
        report.write(options.out)
    return int(not all(one.is_good for one in stretches))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.kills", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=1_000, help="kills in all, including those in the state file; with workers, of each kind"
    )
    parser.add_argument("--stretch", type=int, default=25, help="kills between two checks")
    parser.add_argument("--state", type=Path, default=BUILD / "kills.jsonl")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "faults")
    parser.add_argument("--workers", type=int, default=1, help="worker processes; from 2 on single processes are killed")
    parser.add_argument("--kind", action="append", choices=KINDS, help="with workers: only this kind of kill or stop; repeatable")
    parser.add_argument("--stops", type=int, default=10, help="with workers: stops of each kind")
    parser.add_argument("--stop-seconds", type=float, default=30.0, help="with workers: how long processes are stopped")
    parser.add_argument("--note", default="", help="a note for the result of --workers, such as other load of the machine")
    parser.add_argument("--no-write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
