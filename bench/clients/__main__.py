"""Eight clients that always have more to send, limited to 100 kB/s: by the broker, and by Sluice in mute, in delay and by a schedule.

python -m bench.clients [--seconds 125] [--client NAME]... [--enforcer broker mute delay paced] [--no-write]

For each client the bench prints the megabytes that passed (answered Produce requests) since its first request, lost connections, repeated
batches, and duplicates in the topic. All clients run at the same time, each with a topic and a client-id of its own, and each enforcer has
its own Sluice: at the quota they leave the machine nearly idle. Needs a JDK, Maven, and Go for franz-go, which is left out without Go.
"""

import argparse
import asyncio
import math
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.clients.mixed_clients import BuildFailedError, forever, go_binary
from bench.harness.arms import start_sluice
from bench.harness.engine import HOST, ROOT, Engine
from bench.harness.frames import fetch_request
from bench.harness.raw_client import FETCH_VERSION, Wire, read_fetch_answer
from bench.harness.records import record_values, whole_batches
from bench.harness.report import Report, machine_lines
from bench.harness.tap import ClientTrace, Tap
from quota.paced_schedule import BURST_MS
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT, ZOOKEEPER
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import ProducerLoad, create_topic, set_client_quota, start_producer

BOUND = 100_000
PARTITIONS = 4
MORE_THAN_CAN_PASS = 10_000_000
JAVA = {"java-4.3.1": KRAFT, "java-3.9.1": ZOOKEEPER}
OF_LARGE_BATCHES = ["confluent", "confluent-idempotent"]
"""They fill batches of up to 1 MB; all other clients have batches of 16 kB."""
FRANZ_GO = "franz-go"
CLIENTS = [*JAVA, *OF_LARGE_BATCHES, "confluent-16kB", "aiokafka", "kafka-python", FRANZ_GO]
BROKER, WINDOW, PACED = "broker", "delay", "paced"
ENFORCERS = [BROKER, "mute", WINDOW, PACED]
BURST_S = BURST_MS / 1_000
PACED_MAX = 1.05
FETCH_BYTES = 4_000_000
START_SECONDS_MAX = 120
MORE_THAN_BROKER_MAX = 1.05
"""The variation of the broker's own figure between runs: the counted seconds may include one burst more or less."""
Cell = tuple[str, str]
"""A client and an enforcer."""


@dataclass
class Outcome:
    """The result of one client under one enforcer."""

    client: str
    enforcer: str
    passed_bytes: int
    produce_requests: int
    disconnects: int
    sent_again: int
    copies: int
    records: int

    def verdict(self, beside: Mapping[str, "Outcome"], seconds: float) -> str:
        """Compare with the goals: nothing lost, nothing duplicated, and no more bytes than allowed.

        A window allows what the broker lets pass. A schedule allows the bound, the burst and one request, or, for batches of 1 MB, what the
        window lets pass.

        Args:
            beside: the outcomes of the same client, by enforcer.
            seconds: how long the bytes were counted.
        """
        if self.enforcer == BROKER:
            return ""
        missed = ["disconnects"] if self.disconnects else []
        missed += ["copies"] if self.copies else []
        reference = beside.get(WINDOW if self.enforcer == PACED else BROKER)
        if self.enforcer == PACED and self.client not in OF_LARGE_BATCHES:
            allowed = BOUND * (PACED_MAX * seconds + BURST_S) + self.passed_bytes / max(1, self.produce_requests)
        else:
            allowed = math.inf if reference is None else MORE_THAN_BROKER_MAX * reference.passed_bytes
        missed += ["bytes"] if self.passed_bytes > allowed else []
        return f"miss: {', '.join(missed)}" if missed else "ok"

    def line(self, beside: Mapping[str, "Outcome"], seconds: float) -> str:
        """Return the row of the table; the arguments are those of `verdict`."""
        counts = f"{self.passed_bytes / 1e6:.1f} | {self.produce_requests:,} | {self.disconnects} | {self.sent_again}"
        return f"| {self.client} | {self.enforcer} | {counts} | {self.copies} of {self.records:,} | {self.verdict(beside, seconds)} |"


def run_clients(cells: list[Cell], bootstraps: dict[str, str], tap: Tap) -> None:
    """Let all clients send until each has had its seconds, then end them."""
    with ExitStack() as running:
        tools = {version: running.enter_context(JavaTools(version)) for version in JAVA.values()}
        for client, enforcer in cells:
            topic = name = name_of(client, enforcer)
            if client in JAVA:
                start_producer(tools[JAVA[client]], bootstraps[enforcer], ProducerLoad(topic, MORE_THAN_CAN_PASS, client_id=name))
            else:
                its = [bootstraps[enforcer], topic, name]
                command = forever(*its) if client == FRANZ_GO else [sys.executable, "-m", "bench.clients.client_app", client, *its]
                process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                running.callback(_end, process)
        deadline = time.monotonic() + tap.seconds + START_SECONDS_MAX
        while not all(tap.is_over(name_of(*cell)) for cell in cells):
            if time.monotonic() > deadline:
                raise RuntimeError("a client sent nothing")
            time.sleep(0.2)


def name_of(client: str, enforcer: str) -> str:
    """Return the topic and client-id of a cell."""
    return f"{client}-{enforcer}"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


async def count_copies(port: int, topic: str) -> tuple[int, int]:
    """Return (records stored, duplicates among them) in all partitions of a topic."""
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


def table(outcomes: list[Outcome], seconds: float) -> list[str]:
    """Return all outcomes in Markdown."""
    lines = [
        "| client | enforcer | MB passed | Produce requests | disconnects | batches sent again | copies of records stored | |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    beside: dict[str, dict[str, Outcome]] = defaultdict(dict)
    for outcome in outcomes:
        beside[outcome.client][outcome.enforcer] = outcome
    in_order = sorted(outcomes, key=lambda one: (CLIENTS.index(one.client), ENFORCERS.index(one.enforcer)))
    return lines + [outcome.line(beside[outcome.client], seconds) for outcome in in_order]


def main() -> int:
    """Run all clients at once; return 1 when a goal was missed."""
    options = _options()
    clients, missing = list(options.client), []
    if FRANZ_GO in clients:
        try:
            go_binary()
        except BuildFailedError as error:
            clients.remove(FRANZ_GO)
            missing.append(f"- without {FRANZ_GO}: {error}")
    cells = [(client, enforcer) for client in clients for enforcer in options.enforcer]
    with ExitStack() as stack:
        engine = Engine()
        stack.callback(engine.close)
        tap = stack.enter_context(Tap(options.seconds))
        listeners = {"advertised.listeners": f"PLAINTEXT://{HOST}:{tap.port}"}
        cluster = stack.enter_context(KafkaCluster(KRAFT, name="clients", settings=listeners))
        tap.upstream_port = int(cluster.bootstrap.rsplit(":", 1)[1])
        outcomes = _run(cells, engine, tap)
    report = Report("clients")
    report.add(
        *machine_lines(),
        f"- Apache Kafka {KRAFT}, {BOUND:,} B/s each, {options.seconds:g} s, {PARTITIONS} partitions",
        *missing,
        "",
        *table(outcomes, options.seconds),
    )
    report.data["outcomes"] = [vars(outcome) for outcome in outcomes]
    print("\n" + report.text())
    if not options.no_write:
        report.write(options.out)
    return int(any("| miss" in line for line in table(outcomes, options.seconds)))


def _run(cells: list[Cell], engine: Engine, tap: Tap) -> list[Outcome]:
    broker = f"{HOST}:{tap.port}"
    with JavaTools(KRAFT) as tools:
        for client, enforcer in cells:
            create_topic(tools, broker, name_of(client, enforcer), partitions=PARTITIONS)
            if enforcer == BROKER:
                set_client_quota(tools, broker, name_of(client, enforcer), producer_byte_rate=BOUND)
    with ExitStack() as stack:
        bootstraps = {BROKER: broker}
        paced = engine.folder / "paced.toml"
        paced.write_text('[quotas]\npacing = "paced"\n')
        for mode in {enforcer for _, enforcer in cells} - {BROKER}:
            flags = ["--config", str(paced)] if mode == PACED else ["--enforcement", mode]
            arm = start_sluice(tap.port, engine.folder, produce=BOUND, fetch=None, flags=flags)
            stack.callback(arm.stop)
            bootstraps[mode] = arm.bootstrap
        print(f"{len(cells)} clients", flush=True)
        run_clients(cells, bootstraps, tap)
    return [_outcome(client, enforcer, tap) for client, enforcer in cells]


def _outcome(client: str, enforcer: str, tap: Tap) -> Outcome:
    name = name_of(client, enforcer)
    trace: ClientTrace = tap.clients[name]
    records, copies = asyncio.run(count_copies(tap.upstream_port, name))
    return Outcome(client, enforcer, trace.passed_bytes, trace.produce_requests, trace.disconnects, trace.sent_again, copies, records)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.clients", description=__doc__)
    parser.add_argument("--seconds", type=float, default=125)
    parser.add_argument("--client", nargs="+", choices=CLIENTS, default=CLIENTS)
    parser.add_argument("--enforcer", nargs="+", choices=ENFORCERS, default=ENFORCERS)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "clients")
    parser.add_argument("--no-write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
