"""Clients with SASL sessions of two seconds, far over their quotas: is a connection closed, does a byte count for another user?

python -m bench.clients.sessions [--seconds 60] [--enforcement broker delay mute] [--no-write]

Six clients, each with a user of its own, send more than their quota of 200,000 bytes per second to a real broker that requires a new login
every two seconds: Java and @platformatic/kafka (PLAIN), confluent-kafka with five requests in flight and without a limit, aiokafka and
kafka-python (SCRAM-SHA-256). "broker": the broker itself has these quotas, and Sluice is not in front. Otherwise Sluice has them.

The broker counts the connections that it closed because of an expired session, and confluent-kafka's errors tell which are its own.
Sluice's log tells the connections through Sluice that were not closed by the client. aiokafka never renews a session (it does not support
KIP-368): with and without Sluice its connections are closed and it reconnects; these are counted separately. The bytes of a user are those
of its topic. Needs a JDK and Maven; without Node 20.19 and npm its client is left out and named.
"""

import argparse
import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer

from bench.harness.engine import ROOT
from bench.harness.report import Report, machine_lines
from quota.entity import sanitize
from tests.support.clients.confluent import stored_count
from tests.support.clients.topics import new_topic
from tests.support.kafka import sasl_cluster as sasl
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import CONFIG_COMMAND, ProducerLoad, start_producer
from tests.support.places import temporary_directory
from tests.support.processes.node_clients import NodeUnavailableError, client_options, installed, login, play
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

RATE = 200_000
OFFERED_RECORDS_PER_SECOND = 2_000
USERS = {
    "java": "alice",
    "confluent, 5 in flight": "bounded",
    "confluent, unbounded": "unbounded",
    "aiokafka": "aio",
    "kafka-python": "python",
    "@platformatic/kafka": "bob",
}
SCRAM_USERS = ("bounded", "unbounded", "aio", "python")
NEVER_RENEWS = "aio"
VALUE = bytes(1_000)
BROKER = "broker"
LEFT_OUT = {"seconds", "gave_up"}
FINE = {"client_closed", "client_reset", "client_gone_while_paused", "drain", "drain_deadline", "shutdown"}
HEAD = [
    "| quotas of | sessions that the broker ended | of these confluent-kafka's, 5 in flight | unbounded | logins | throttles "
    "| cut off through Sluice | never renewed, ended | bytes per second and user | most, x quota | bytes of others |",
    "|---|--:|--:|--:|--:|--:|---|--:|---|--:|--:|",
]


@dataclass(slots=True)
class Reported:
    """The clients' own counts."""

    gave_up: list[str] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)
    """Failed logins by user: confluent-kafka reports one for a connection that closes before its new login."""


def offer(bootstrap: str, topic: str, user: str, seconds: float, reported: Reported, **settings: int) -> None:
    """Send 2 MB/s with confluent-kafka; records that are left at the end are dropped."""

    def failed(error: KafkaError) -> None:
        reported.lost[user] += error.code() == KafkaError._AUTHENTICATION

    base = {"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": failed}
    producer = Producer({**base, **settings, **sasl.confluent_login("SCRAM-SHA-256", user)})
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(OFFERED_RECORDS_PER_SECOND // 100):
            try:
                producer.produce(topic, VALUE)
            except BufferError:
                break
        producer.poll(0.01)
    producer.purge()
    producer.flush(5)


def offer_by_aiokafka(bootstrap: str, topic: str, user: str, seconds: float, reported: Reported) -> None:
    """Send as fast as answers arrive, 50 records at a time."""

    async def send() -> None:
        login = sasl.python_login("SCRAM-SHA-256", user, None)
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, retry_backoff_ms=50, **login) as producer:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                await asyncio.gather(*[await producer.send(topic, VALUE) for _ in range(50)])

    asyncio.run(send())


def offer_by_kafka_python(bootstrap: str, topic: str, user: str, seconds: float, reported: Reported) -> None:
    """Send with kafka-python as fast as answers arrive."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, **sasl.python_login("SCRAM-SHA-256", user, None))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answers = [producer.send(topic, VALUE) for _ in range(50)]
        for answer in answers:
            answer.get(60)
    producer.close(5)


def offer_by_node(bootstrap: str, topic: str, user: str, seconds: float, reported: Reported) -> None:
    """Send with @platformatic/kafka in a child process."""
    client = client_options(bootstrap, "node", **login("PLAIN", user, sasl.PASSWORD))
    (line,) = play(client, [{"do": "produce", "topic": topic, "count": 10**9, "bytes": len(VALUE), "batch": 50, "seconds": seconds}])
    assert "error" not in line, line


def has_node() -> bool:
    """Return whether the client for Node is available; print why not."""
    try:
        installed()
    except NodeUnavailableError as problem:
        print(f"without @platformatic/kafka: {problem}")
        return False
    return True


def threads(bootstrap: str, topics: Mapping[str, str], seconds: float, reported: Reported) -> list[threading.Thread]:
    """Return threads, not started, of all clients but the Java client; `topics` by user."""
    offers: list[tuple[Callable[..., None], str, dict[str, int]]] = [
        (offer, "bounded", {"max.in.flight": 5}),
        (offer, "unbounded", {}),
        (offer_by_aiokafka, "aio", {}),
        (offer_by_kafka_python, "python", {}),
    ]
    if has_node():
        offers.append((offer_by_node, "bob", {}))

    def guarded(work: Callable[..., None], user: str, settings: dict[str, int]) -> None:
        try:
            work(bootstrap, topics[user], user, seconds, reported, **settings)
        except Exception as error:  # noqa: BLE001 - a client that gives up is a result
            reported.gave_up.append(f"{user}: {type(error).__name__}: {error}")

    return [threading.Thread(target=guarded, args=one) for one in offers]


def run(kafka: KafkaCluster, tools: JavaTools, mode: str, seconds: float) -> dict[str, object]:
    """Run all clients at once; return the counts."""
    topics = {user: new_topic(kafka.bootstrap, f"sessions-{mode}-{user}") for user in USERS.values()}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(temporary_directory("sessions")))
        sluice = None if mode == BROKER else stack.enter_context(in_front_of(kafka, directory, mode))
        if sluice is None:
            set_quotas(tools, kafka.bootstrap)
        bootstrap = kafka.sasl_bootstrap if sluice is None else sluice.bootstrap
        load = ProducerLoad(
            topics["alice"],
            1_000_000,
            1_000,
            properties={"acks": "1"},
            records_per_second=OFFERED_RECORDS_PER_SECOND,
            config=sasl.java_login(directory, "PLAIN", "alice"),
        )
        java = start_producer(tools, bootstrap, load)
        reported = Reported()
        others = threads(bootstrap, topics, seconds, reported)
        for thread in others:
            thread.start()
        for thread in others:
            thread.join()
        assert java.is_running(), f"the Java client gave up:\n{java.out}\n{java.err}"
        ended = int(tools.run("ExpiredSessions", *[str(node.jmx_port) for node in kafka.nodes.values()]).out)
        rates = {user: round(stored_count(kafka.bootstrap, topic, 1) * len(VALUE) / seconds) for user, topic in topics.items()}
        row: dict[str, object] = {"enforcement": mode, "seconds": seconds, "ended_by_broker": ended}
        row |= {user: reported.lost[user] for user in ("bounded", "unbounded")}
        row |= NOTHING_SEEN if sluice is None else seen_by(sluice)
        others_bytes = row.pop("bytes_of_others")
        most = round(max(rates.values()) / RATE, 2)
        return row | {"bytes_per_second": rates, "most": most, "bytes_of_others": others_bytes, "gave_up": reported.gave_up}


def in_front_of(kafka: KafkaCluster, directory: Path, mode: str) -> SluiceProcess:
    """Start Sluice with the quotas."""
    quotas = write_quotas(directory / "quotas.toml", [{"user": user, "producer_byte_rate": RATE} for user in USERS.values()])
    return SluiceProcess(kafka.sasl_bootstrap, quotas=quotas, enforcement=mode, name=f"bench-sessions-{mode}")


def set_quotas(tools: JavaTools, bootstrap: str) -> None:
    """Set the quotas at the broker."""
    where = ("--bootstrap-server", bootstrap, "--alter", "--add-config", f"producer_byte_rate={RATE}", "--entity-type", "users")
    for user in USERS.values():
        tools.run(CONFIG_COMMAND, *where, "--entity-name", user)


NOTHING_SEEN: dict[str, object] = {"logins": "", "throttles": "", "cut_off": "", "never_renewed": "", "bytes_of_others": 0}
"""Sluice's counts for a run without Sluice."""


def seen_by(sluice: SluiceProcess) -> dict[str, object]:
    """Return what Sluice counted."""
    groups = {group["tags"]["user"]: group["recorded_total"] for group in sluice.quotas()["groups"] if group["quota_type"] == "Produce"}
    closes = [event for event in sluice.events("connection_closed") if event["reason"] not in FINE]
    renewing = Counter(f"{event['reason']} {event['principal']}" for event in closes if event["principal"] != f"User:{NEVER_RENEWS}")
    ours = {sanitize(user) for user in USERS.values()}
    return {
        "logins": int(sluice.metric("kafka_sluice_sasl_exchanges_total", outcome="success")),
        "throttles": int(sluice.metric("kafka_quota_throttle_duration_seconds_count")),
        "cut_off": dict(renewing),
        "never_renewed": len(closes) - renewing.total(),
        "bytes_of_others": sum(total for user, total in groups.items() if user not in ours),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print and write; return 1 when a byte counted for another user, a client failed, or Sluice closed a connection that renews."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.clients.sessions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--enforcement", nargs="+", choices=[BROKER, "delay", "mute"], default=[BROKER, "delay", "mute"])
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    for mode in options.enforcement:
        with JavaTools(KRAFT) as tools, sasl.new_cluster("kafka-sessions", jmx=True) as kafka:
            sasl.add_scram_users(tools, kafka.bootstrap, *SCRAM_USERS)
            rows.append(run(kafka, tools, mode, options.seconds))
    report = Report("sessions")
    report.add(
        *machine_lines(),
        f"- Apache Kafka {KRAFT}; sessions of {sasl.SESSION_MS} ms, quotas of {RATE} bytes per second; {options.seconds:g} s",
        "",
    )
    report.add(*HEAD, *("| " + " | ".join(str(value) for key, value in row.items() if key not in LEFT_OUT) + " |" for row in rows))
    report.add("", *(f"- {row['enforcement']}: gave up: {', '.join(row['gave_up']) or 'none'}" for row in rows))
    report.data["rows"] = rows
    print(report.text())
    if not options.no_write:
        report.write(ROOT / "bench/results/clients")
    return int(any(row["bytes_of_others"] or row["gave_up"] or row["cut_off"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
