"""Six clients whose application always has more to send, held to 100 kB/s: by the broker itself, by Sluice in mute, by Sluice in delay.

python -m bench.clients [--seconds 125] [--client NAME]... [--enforcer broker mute delay] [--no-write]

Printed for each: megabytes that passed (answered Produce requests), connections lost, batches sent again, and copies in the topic. All
clients of one enforcer run at the same time, each with a topic and a client-id of its own. Needs a JDK and Maven.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.arms import start_sluice
from bench.engine import HOST, ROOT, Engine
from bench.frames import fetch_request
from bench.raw_client import FETCH_VERSION, Wire, read_fetch_answer
from bench.records import record_values, whole_batches
from bench.report import Report, machine_lines
from bench.tap import ClientTrace, Tap
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT, ZOOKEEPER
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import ProducerLoad, create_topic, set_client_quota, start_producer

BOUND = 100_000
PARTITIONS = 4
MORE_THAN_CAN_PASS = 10_000_000
JAVA = {"java-4.3.1": KRAFT, "java-3.9.1": ZOOKEEPER}
PYTHON = ["confluent", "confluent-idempotent", "aiokafka", "kafka-python"]
CLIENTS = [*JAVA, *PYTHON]
ENFORCERS = ["broker", "mute", "delay"]
FETCH_BYTES = 4_000_000


@dataclass
class Outcome:
    """One client under one enforcer."""

    client: str
    enforcer: str
    passed_bytes: int
    produce_requests: int
    disconnects: int
    sent_again: int
    copies: int
    records: int

    def verdict(self, broker: "Outcome | None") -> str:
        """Against the goals: no more than the broker lets pass, nothing lost, nothing twice."""
        if self.enforcer == "broker":
            return ""
        missed = ["disconnects"] if self.disconnects else []
        missed += ["copies"] if self.copies else []
        missed += ["bytes"] if broker and self.passed_bytes > broker.passed_bytes else []
        return f"miss: {', '.join(missed)}" if missed else "ok"

    def line(self, broker: "Outcome | None") -> str:
        """The row of the table."""
        counts = f"{self.passed_bytes / 1e6:.1f} | {self.produce_requests:,} | {self.disconnects} | {self.sent_again}"
        return f"| {self.client} | {self.enforcer} | {counts} | {self.copies} of {self.records:,} | {self.verdict(broker)} |"


def run_clients(enforcer: str, clients: list[str], bootstrap: str, seconds: float, at_end: Callable[[], None]) -> None:
    """Let the clients send for `seconds`, then end them."""
    with ExitStack() as running:
        for client in clients:
            topic = name = f"{client}-{enforcer}"
            if client in JAVA:
                tools = running.enter_context(JavaTools(JAVA[client]))
                start_producer(tools, bootstrap, ProducerLoad(topic, MORE_THAN_CAN_PASS, client_id=name))
            else:
                command = [sys.executable, "-m", "bench.client_app", client, bootstrap, topic, name]
                process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                running.callback(_end, process)
        time.sleep(seconds)
        at_end()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


async def count_copies(port: int, topic: str) -> tuple[int, int]:
    """(records stored, of which copies of another) in all partitions of a topic."""
    counts: Counter[int] = Counter()
    for partition in range(PARTITIONS):
        wire, offset = await Wire.open(port), 0
        while True:
            request = fetch_request(
                FETCH_VERSION,
                offset=offset,
                max_bytes=FETCH_BYTES,
                partition_max_bytes=FETCH_BYTES,
                max_wait_ms=0,
                topic=topic,
                partition=partition,
            )
            _, records = read_fetch_answer(await wire.ask(request.whole()))
            batches = whole_batches(records or b"")
            if not batches:
                break
            for at, size, next_offset in batches:
                counts.update(hash(value) for value in record_values(records[at : at + size]))
                offset = next_offset
        wire.close()
    return counts.total(), counts.total() - len(counts)


def table(outcomes: list[Outcome]) -> list[str]:
    """All outcomes in Markdown."""
    lines = [
        "| client | enforcer | MB passed | Produce requests | disconnects | batches sent again | copies of records stored | |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    broker = {outcome.client: outcome for outcome in outcomes if outcome.enforcer == "broker"}
    in_order = sorted(outcomes, key=lambda one: (CLIENTS.index(one.client), ENFORCERS.index(one.enforcer)))
    return lines + [outcome.line(broker.get(outcome.client)) for outcome in in_order]


def main() -> int:
    """Run all enforcers in turn; 1 when a goal was missed."""
    options = _options()
    outcomes: list[Outcome] = []
    with ExitStack() as stack:
        engine = Engine()
        stack.callback(engine.close)
        tap = stack.enter_context(Tap())
        listeners = {"advertised.listeners": f"PLAINTEXT://{HOST}:{tap.port}"}
        cluster = stack.enter_context(KafkaCluster(KRAFT, name="clients", settings=listeners))
        tap.upstream_port = int(cluster.bootstrap.rsplit(":", 1)[1])
        for enforcer in options.enforcer:
            print(f"{enforcer}: {', '.join(options.client)}", flush=True)
            outcomes += _one_enforcer(enforcer, options, engine, tap)
            print("\n".join(table(outcomes)[-len(options.client) :]), flush=True)
    report = Report("clients")
    report.add(
        *machine_lines(),
        f"- Apache Kafka {KRAFT}, {BOUND:,} B/s each, {options.seconds:g} s, {PARTITIONS} partitions",
        "",
        *table(outcomes),
    )
    report.data["outcomes"] = [vars(outcome) for outcome in outcomes]
    print("\n" + report.text())
    if not options.no_write:
        report.write(options.out)
    return int(any("| miss" in line for line in table(outcomes)))


def _one_enforcer(enforcer: str, options: argparse.Namespace, engine: Engine, tap: Tap) -> list[Outcome]:
    with JavaTools(KRAFT) as tools:
        for client in options.client:
            name = f"{client}-{enforcer}"
            create_topic(tools, f"{HOST}:{tap.port}", name, partitions=PARTITIONS)
            if enforcer == "broker":
                set_client_quota(tools, f"{HOST}:{tap.port}", name, producer_byte_rate=BOUND)
    tap.count()
    with ExitStack() as stack:
        bootstrap = f"{HOST}:{tap.port}"
        if enforcer != "broker":
            arm = start_sluice(tap.port, engine.folder, produce=BOUND, fetch=None, flags=["--enforcement", enforcer])
            stack.callback(arm.stop)
            bootstrap = arm.bootstrap
        run_clients(enforcer, options.client, bootstrap, options.seconds, tap.stop_counting)
    return [_outcome(client, enforcer, tap) for client in options.client]


def _outcome(client: str, enforcer: str, tap: Tap) -> Outcome:
    name = f"{client}-{enforcer}"
    trace: ClientTrace = tap.clients[name]
    records, copies = asyncio.run(count_copies(tap.upstream_port, name))
    return Outcome(client, enforcer, trace.passed_bytes, trace.produce_requests, trace.disconnects, trace.sent_again, copies, records)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.clients", description=__doc__)
    parser.add_argument("--seconds", type=float, default=125)
    parser.add_argument("--client", nargs="+", choices=CLIENTS, default=CLIENTS)
    parser.add_argument("--enforcer", nargs="+", choices=ENFORCERS, default=ENFORCERS)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--no-write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
