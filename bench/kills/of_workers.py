"""`bench.kills` for a Sluice of several processes: no record is lost, duplicated or reordered, no quota is exceeded, no process remains.

The same two producers send while a worker is killed, the supervisor is killed and another one started, or all processes are, `--rounds`
times each; then while these are stopped with SIGSTOP for `--stop-seconds`, `--stops` times each. After each stretch the records at the
broker are compared with the acknowledged ones, and processes that still run after the last client has closed are counted. Metering
decisions are not compared here.

The most bytes that the producer over its quota stored in 10 s are divided by those of one process under the same load, to which nothing
happens. A kill of all processes ends their quota windows, so it is compared with one process that is killed as often.
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
from tests.support.processes.kills import HELD_BYTES_PER_SECOND, MODES, PARTITIONS
from tests.support.processes.worker_kills import KILLS, KINDS, SPAN_MS, UNDISTURBED, WorkerStretch, kill_workers_often

PROBLEMS = ("lost", "duplicates", "out_of_order", "corrupt")
BROKERS_TIME = {"message.timestamp.type": "LogAppendTime"}
ALL_KILLED = "all killed"
ONE_PROCESS_KILLS = 25
WORST_MAX = 1.1
HEAD = (
    "| what | times | records acknowledged | in flight then | lost | twice | out of order | corrupt | failed sends | processes left "
    "| worst 10 s / bound | one process | ratio | |"
)


def run(options: argparse.Namespace) -> int:
    """Kill and stop as often as asked for; return 1 when a goal is missed."""
    with KafkaCluster(KRAFT, name="kills-workers") as kafka:
        one_process = _one_process(kafka.bootstrap, options)
        stretches = [
            stretch
            for kind in options.kind or KINDS
            for stretch in _stretches(kafka.bootstrap, options, kind, options.rounds if kind in KILLS else options.stops)
        ]
    report = Report("kills-workers")
    note = [f"- {options.note}"] if options.note else []
    about = f"- Apache Kafka {KRAFT}; {options.workers} workers; stops of {options.stop_seconds:.0f} s"
    report.add(*machine_lines(), about, *note, "", *table(stretches, one_process))
    report.data["stretches"] = [asdict(one) for one in stretches]
    report.data["one_process"] = [asdict(one) for one in one_process]
    print(report.text())
    if not options.no_write:
        report.write(options.out)
    return int(not all(_is_good(kind, stretches, one_process) for kind in _kinds(stretches)))


def _one_process(bootstrap: str, options: argparse.Namespace) -> list[WorkerStretch]:
    """Measure one process in both modes: undisturbed, and killed, as far as that is asked for."""
    wanted = {compared_with(kind) for kind in options.kind or KINDS}
    return [
        _stretch(bootstrap, options, kind, ONE_PROCESS_KILLS, seed, workers=1)
        for kind in (UNDISTURBED, ALL_KILLED)
        if kind in wanted
        for seed in range(len(MODES))
    ]


def compared_with(kind: str) -> str:
    """Return what happens to the one process with which a Sluice of several processes is compared."""
    return ALL_KILLED if kind == ALL_KILLED else UNDISTURBED


def _stretches(bootstrap: str, options: argparse.Namespace, kind: str, rounds: int) -> list[WorkerStretch]:
    """Kill or stop `rounds` times, in stretches that alternate between the modes."""
    length = options.stretch if kind in KILLS else -(-rounds // len(MODES))
    made: list[WorkerStretch] = []
    while rounds > 0:
        made.append(_stretch(bootstrap, options, kind, min(length, rounds), options.seed + len(made), options.workers))
        rounds -= made[-1].times
    return made


def _stretch(bootstrap: str, options: argparse.Namespace, kind: str, times: int, seed: int, workers: int) -> WorkerStretch:
    began = time.monotonic()
    with temporary_directory("kills") as directory:
        topic = new_topic(bootstrap, "killed", partitions=PARTITIONS, config=BROKERS_TIME)
        made = kill_workers_often(bootstrap, topic, directory, kind, times, seed, workers, options.stop_seconds)
    verdict = "ok" if made.is_good else f"miss: {asdict(made)}"
    print(f"{kind} {made.times} x, {workers} workers, {made.mode}, {time.monotonic() - began:.0f} s, {verdict}", flush=True)
    return made


def table(stretches: Sequence[WorkerStretch], one_process: Sequence[WorkerStretch]) -> list[str]:
    """Return a line for each kind, with the worst of its stretches."""
    return [HEAD, "|---|" + "--:|" * 12 + "---|", *(_line(kind, stretches, one_process) for kind in _kinds(stretches))]


def _kinds(stretches: Sequence[WorkerStretch]) -> list[str]:
    return list(dict.fromkeys(one.kind for one in stretches))


def _line(kind: str, stretches: Sequence[WorkerStretch], one_process: Sequence[WorkerStretch]) -> str:
    some = [one for one in stretches if one.kind == kind]
    records = [sum(one.times for one in some), sum(one.acknowledged for one in some), sum(one.in_flight for one in some)]
    wrong = [sum(one.problems.get(problem, 0) for one in some) for problem in PROBLEMS]
    rest = [sum(one.failed_sends for one in some), sum(one.processes_left for one in some)]
    figures = " | ".join(f"{figure:,}" for figure in (*records, *wrong, *rest))
    mode = _worst_mode(kind, stretches, one_process)
    shares = [_worst_bytes(some, mode), _worst_bytes(_beside(kind, one_process), mode)]
    worst = " | ".join(f"{share / (HELD_BYTES_PER_SECOND * SPAN_MS / 1_000):.3f}" for share in shares)
    is_good = _is_good(kind, stretches, one_process)
    return f"| {kind} | {figures} | {worst} | {_ratio(kind, mode, stretches, one_process):.3f} | {'ok' if is_good else 'miss'} |"


def _is_good(kind: str, stretches: Sequence[WorkerStretch], one_process: Sequence[WorkerStretch]) -> bool:
    mode = _worst_mode(kind, stretches, one_process)
    return all(one.is_good for one in stretches if one.kind == kind) and _ratio(kind, mode, stretches, one_process) <= WORST_MAX


def _worst_mode(kind: str, stretches: Sequence[WorkerStretch], one_process: Sequence[WorkerStretch]) -> str:
    """Return the mode in which the producer over its quota had the most, compared with one process."""
    modes = {one.mode for one in stretches if one.kind == kind}
    return max(sorted(modes), key=lambda mode: _ratio(kind, mode, stretches, one_process))


def _ratio(kind: str, mode: str, stretches: Sequence[WorkerStretch], one_process: Sequence[WorkerStretch]) -> float:
    worst = _worst_bytes([one for one in stretches if one.kind == kind], mode)
    return worst / max(_worst_bytes(_beside(kind, one_process), mode), 1)


def _beside(kind: str, one_process: Sequence[WorkerStretch]) -> list[WorkerStretch]:
    return [one for one in one_process if one.kind == compared_with(kind)]


def _worst_bytes(some: Sequence[WorkerStretch], mode: str) -> int:
    return max((one.worst_bytes for one in some if one.mode == mode), default=0)
