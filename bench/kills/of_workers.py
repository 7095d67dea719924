"""`bench.kills` for a Sluice of several processes: no record is lost, duplicated or reordered, and no process remains.

The same two producers send while, at random, a worker is killed, the supervisor is killed and another one started, both are, or a worker is
stopped for 0.2 to 1.5 s. After each stretch the records at the broker are compared with the acknowledged ones, and processes that still run
after the last client has closed are counted. Metering decisions are not compared here.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict

from bench.harness.report import Report, machine_lines
from tests.support.clients.topics import new_topic
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT
from tests.support.places import temporary_directory
from tests.support.processes.kills import PARTITIONS
from tests.support.processes.worker_kills import KINDS, WorkerStretch, kill_workers_often

PROBLEMS = ("lost", "duplicates", "out_of_order", "corrupt")


def run(options: argparse.Namespace) -> int:
    """Kill as often as asked for; return 1 when anything is lost, duplicated, out of order or left."""
    stretches: list[WorkerStretch] = []
    with KafkaCluster(KRAFT, name="kills-workers") as kafka:
        left = options.rounds
        while left > 0:
            kills = min(options.stretch, left)
            began = time.monotonic()
            with temporary_directory("kills") as directory:
                topic = new_topic(kafka.bootstrap, "killed", partitions=PARTITIONS)
                seed = options.seed + len(stretches)
                stretches.append(kill_workers_often(kafka.bootstrap, topic, directory, kills, seed, options.workers))
            left -= kills
            verdict = "ok" if stretches[-1].is_good else f"miss: {asdict(stretches[-1])}"
            print(f"{options.rounds - left} of {options.rounds}, {time.monotonic() - began:.0f} s, {verdict}", flush=True)
    report = Report("kills-workers")
    note = [f"- {options.note}"] if options.note else []
    report.add(
        *machine_lines(), f"- Apache Kafka {KRAFT}; {len(stretches)} stretches, {options.workers} workers", *note, "", *table(stretches)
    )
    report.data["stretches"] = [asdict(one) for one in stretches]
    print(report.text())
    if not options.no_write:
        report.write(options.out)
    return int(not all(one.is_good for one in stretches))


def table(stretches: Sequence[WorkerStretch]) -> list[str]:
    """Return the sums by mode, and over all."""
    head = "| mode | " + " | ".join(f"{kind} killed" if kind != "stop" else "worker stopped" for kind in KINDS)
    lines = [f"{head} | records acknowledged | in flight then | lost | twice | out of order | corrupt | failed sends | processes left | |"]
    lines.append("|---|" + "--:|" * (len(KINDS) + 8) + "---|")
    modes = sorted({one.mode for one in stretches})
    lines += [_line(mode, [one for one in stretches if one.mode == mode]) for mode in modes]
    return [*lines, _line("all", stretches)]


def _line(mode: str, some: Sequence[WorkerStretch]) -> str:
    kills = [sum(one.kills.get(kind, 0) for one in some) for kind in KINDS]
    records = [sum(one.acknowledged for one in some), sum(one.in_flight for one in some)]
    wrong = [sum(one.problems.get(kind, 0) for one in some) for kind in PROBLEMS]
    rest = [sum(one.failed_sends for one in some), sum(one.processes_left for one in some)]
    figures = " | ".join(f"{figure:,}" for figure in (*kills, *records, *wrong, *rest))
    return f"| {mode} | {figures} | {'ok' if all(one.is_good for one in some) else 'miss'} |"
