"""The difference between Sluice's estimate of request time and what a real broker charges.

python -m bench.handler_time [--load NAME]... [--workers 1,4] [--quick] [--seconds 12] [--warm-seconds 25] [--record FOLDER] [--list]
                             [--out FOLDER] [--no-write]

Apache Kafka runs behind Sluice, and the bench reads its own sums by JMX (bench/handler_time/truth.py); both sides have the same client-ids.
With --load the rows replace the old ones in the result file of the day. With --workers each load runs behind a Sluice of each number of
processes in turn, with the same broker; goals apply to one process. With --record the input of the estimator is kept, so that `python -m
bench.handler_time.replay FOLDER` can give it to another estimator. Needs a JDK and Maven (see tests/support/kafka).
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.handler_time.judge import HandlerRow, alike, goals, sums_of, table
from bench.handler_time.loads import (
    COMMIT_GROUP,
    LARGE,
    LOADS,
    REPLICATED,
    TOPICS,
    WARM_UP,
    HandlerLoad,
    Stage,
    commit_offset,
    produce_small,
    running,
)
from bench.handler_time.micro import microseconds_alone
from bench.handler_time.rows import ROWS_VARIABLE
from bench.handler_time.truth import BROKER_SETTINGS, UNREACHABLE_PERCENT, HandlerTimeReader, Reading, now
from bench.harness.arms import start_sluice
from bench.harness.engine import ROOT, Engine
from bench.harness.frames import Template, find_coordinator_request
from bench.harness.raw_client import Wire, preload
from bench.harness.report import Report, machine_lines
from bench.options import numbers
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT
from tests.support.kafka.java_process import Jvm
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import create_topic, set_client_quota

JVM = Jvm(heap_mb=900, optimises=True)
CLUSTER = {"num.io.threads": 8, "num.network.threads": 3, "log.segment.bytes": 100_000_000, "log.retention.bytes": 1_000_000_000}
SUM_SECONDS = 10.0
SETTLE_SECONDS = 0.3
QUICK_SECONDS, QUICK_WARM_SECONDS = 4.0, 8.0
TRIES = 100
OLD_BATCHES, BACKLOG_BATCHES = 20, 600


@contextmanager
def stages_for(brokers: int, engine: Engine, module: str, workers: Sequence[int]) -> Iterator[list[tuple[int, Stage, HandlerTimeReader]]]:
    """Start Sluice in front of a cluster that charges all clients and throttles none, once for each number of workers."""
    settings = CLUSTER | BROKER_SETTINGS | ({"min.insync.replicas": 2} if brokers > 1 else {})
    jvm = JVM if brokers == 1 else Jvm(heap_mb=500, optimises=True)
    with (
        KafkaCluster(KRAFT, nodes=brokers, name=f"handler-{brokers}", settings=settings, jvm=jvm, jmx=True) as cluster,
        JavaTools(KRAFT) as tools,
        ExitStack() as stack,
    ):
        set_client_quota(tools, cluster.bootstrap, None, request_percentage=UNREACHABLE_PERCENT)
        for topic in TOPICS if brokers == 1 else (REPLICATED,):
            create_topic(tools, cluster.bootstrap, topic, replicas=brokers)
        broker_port = next(iter(cluster.nodes.values())).ports.client
        if brokers == 1:
            asyncio.run(_fill(broker_port))
        found = []
        for number in workers:
            flags = ["--workers", str(number)]
            arm = start_sluice(
                broker_port, engine.folder, produce=None, fetch=None, request=UNREACHABLE_PERCENT, flags=flags, module=module
            )
            stack.callback(arm.stop)
            reader = HandlerTimeReader(tools, cluster, arm)
            stack.callback(reader.close)
            found.append((number, Stage(engine, arm), reader))
        yield found


async def _fill(port: int) -> None:
    await preload(port, "old", OLD_BATCHES, LARGE)
    await preload(port, "backlog", BACKLOG_BATCHES, LARGE)
    wire = await Wire.open(port)
    await _until_taken(wire, find_coordinator_request(COMMIT_GROUP), 4 + 4)
    await _until_taken(wire, commit_offset("fill"), -2)
    await _until_taken(wire, produce_small("fill"), 4 + 4 + 2 + len("small") + 4 + 4)
    wire.close()


async def _until_taken(wire: Wire, request: Template, error_at: int) -> None:
    """Repeat the request until its answer has no error: a coordinator loads its part of the offsets first."""
    for _ in range(TRIES):
        if (await wire.ask(request.whole()))[error_at:][:2] == bytes(2):
            return
        await asyncio.sleep(0.2)
    raise RuntimeError(f"the broker does not take {request}")


def measure(load: HandlerLoad, stage: Stage, reader: HandlerTimeReader, seconds: float, prefix: str) -> tuple[HandlerRow, Reading]:
    """Run one load; return the readings of both sides after ten seconds and at the end."""
    requests_before = stage.arm.metric("kafka_sluice_requests_total") or 0.0
    began = now()
    with running(load, stage, prefix):
        start = time.monotonic()
        time.sleep(min(SUM_SECONDS, seconds))
        ten = reader.read(prefix, began)
        time.sleep(max(0.0, start + seconds - time.monotonic()))
        lasted = time.monotonic() - start
    time.sleep(SETTLE_SECONDS)
    whole = reader.read(prefix, began)
    requests = (stage.arm.metric("kafka_sluice_requests_total") or 0.0) - requests_before
    row = HandlerRow(load.name, load.what, requests, lasted, sum(whole.truth.values()), sum(whole.sluice.values()))
    row.waits, row.busy, row.saturated = load.waits, load.busy, load.saturated
    row.sums = sums_of(ten.truth, ten.sluice, ten.requests) if seconds >= SUM_SECONDS else []
    return row, ten


def run(loads: Sequence[HandlerLoad], seconds: float, warm_seconds: float, folder: Path | None, workers: Sequence[int]) -> list[HandlerRow]:
    """Run all loads, those of one cluster in sequence, with one estimator.

    Args:
        workers: numbers of processes; every load runs with each of them.
        folder: the folder for recordings of the estimator's input; None: no recordings.
    """
    rows: list[HandlerRow] = []
    engine = Engine()
    try:
        for brokers in sorted({load.brokers for load in loads}):
            kept: list[dict[str, object]] = []
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
                os.environ[ROWS_VARIABLE] = str(folder.resolve() / f"brokers-{brokers}.rows")
            with stages_for(brokers, engine, "sluice_cli" if folder is None else "bench.handler_time.rows", workers) as stages:
                for _, stage, _ in stages:
                    with running(WARM_UP[brokers], stage, "warm-up"):
                        time.sleep(warm_seconds)
                for number, load in enumerate(load for load in loads if load.brokers == brokers):
                    for processes, stage, reader in stages:
                        prefix = f"{number:02}-{processes}-{load.name}"
                        row, ten = measure(load, stage, reader, seconds, prefix)
                        row.workers = processes
                        rows.append(row)
                        said = {"row": vars(row), "ten": ten.truth, "ten_requests": ten.requests, "ten_ns": ten.at_ns, "prefix": prefix}
                        kept.append(said)
                        print(row.line(), flush=True)
            if folder is not None:
                (folder / f"brokers-{brokers}.json").write_text(json.dumps(kept))
    finally:
        engine.close()
    return rows


def main() -> int:
    """Run what was asked for; return 1 when a goal was missed."""
    options = _options()
    if options.list:
        print("\n".join(f"{load.name:24} {load.what}" for load in LOADS))
        return 0
    unknown = set(options.load or ()) - {load.name for load in LOADS}
    if unknown:
        print(f"no such load: {', '.join(sorted(unknown))}; --list names them", file=sys.stderr)
        return 2
    seconds = options.seconds or (QUICK_SECONDS if options.quick else 12.0)
    warm_seconds = options.warm_seconds or (QUICK_WARM_SECONDS if options.quick else 25.0)
    microseconds = microseconds_alone()
    rows = run(
        [load for load in LOADS if not options.load or load.name in options.load], seconds, warm_seconds, options.record, options.workers
    )
    name = "handler-time" if options.workers == [1] else "handler-time-workers"
    report = Report(f"{name}-quick" if options.quick else name)
    if options.load:
        rows = _with_earlier(rows, report, options.out)
    broker = f"- Apache Kafka {KRAFT}, 8 + 3 threads, {seconds:g} s a load after {warm_seconds:g} s of warm-up"
    one = [row for row in rows if row.workers == 1]
    compared = ["", *alike(rows)] if len(one) < len(rows) else []
    report.add(*machine_lines(), broker, "", *table(rows), *compared, "", *goals(one, microseconds))
    report.data |= {"rows": [vars(row) | {"ratio": row.ratio} for row in rows], "microseconds": microseconds}
    print("\n" + report.text())
    if not options.no_write:
        report.write(options.out)
    return int(any("| miss" in line for line in goals(one, microseconds)))


def _with_earlier(rows: list[HandlerRow], report: Report, folder: Path) -> list[HandlerRow]:
    """Return these rows with the other ones of the day, in the order of the table."""
    path = report.paths(folder)[1]
    earlier = json.loads(path.read_text())["rows"] if path.exists() else []
    before = [HandlerRow(**{key: value for key, value in row.items() if key != "ratio"}) for row in earlier]
    known = {(row.name, row.workers): row for row in (*before, *rows)}
    order = [load.name for load in LOADS]
    return sorted(known.values(), key=lambda row: (order.index(row.name), row.workers))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.handler_time", description=__doc__)
    parser.add_argument("--load", action="append", help="only this row (repeatable)")
    parser.add_argument("--workers", type=numbers, default=[1], help="numbers of worker processes, such as 1,4; every load runs with each")
    parser.add_argument("--quick", action="store_true", help="short runs, for a quick look")
    parser.add_argument("--seconds", type=float, help="length of one load")
    parser.add_argument("--warm-seconds", type=float, help="load before the first row, so that the broker's code is compiled")
    parser.add_argument("--record", type=Path, help="folder for recordings of the estimator's input")
    parser.add_argument("--list", action="store_true", help="name the rows")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "handler_time")
    parser.add_argument("--no-write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
