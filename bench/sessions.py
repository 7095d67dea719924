"""Clients whose SASL sessions last two seconds, far over their quotas: is anybody cut off, does a byte count for somebody else?

python -m bench.sessions [--seconds 60] [--enforcement delay mute] [--no-write]

Six clients, each a user of its own, offer more than their quota of 200,000 bytes per second to a real broker that wants a new login every
two seconds: Java and @platformatic/kafka (PLAIN), confluent-kafka with five requests in flight and without a bound on them, aiokafka and
kafka-python (SCRAM-SHA-256). Whatever ends a connection but its client is counted, and so are bytes in groups of anybody but these six.
aiokafka never renews a session (it knows no KIP-368): brokers end its connections, with Sluice and without, and it comes again; that is
counted by itself. Needs a JDK and Maven; without Node 20.19 and npm the client for it is left out, and said to be.
"""

import argparse
import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer

from bench.engine import ROOT
from bench.report import Report, machine_lines
from quota.entity import sanitize
from tests.support.clients.topics import new_topic
from tests.support.kafka import sasl_cluster as sasl
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import ProducerLoad, start_producer
from tests.support.node_clients import NodeUnavailableError, client_options, installed, login, play
from tests.support.places import temporary_directory
from tests.support.sluice_process import SluiceProcess, write_quotas

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
LEFT_OUT = {"seconds", "gave_up"}
FINE = {"client_closed", "client_reset", "drain", "drain_deadline", "shutdown"}
HEAD = [
    "| enforcement | logins | refused | throttles | cut off | never renewed, ended | bytes per second and user | bytes of others |",
    "|---|---|---|---|---|---|---|---|",
]


def offer(bootstrap: str, topic: str, user: str, seconds: float, **settings: int) -> None:
    """Offer 2 MB/s with confluent-kafka; what is left at the end is given up."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **settings, **sasl.confluent_login("SCRAM-SHA-256", user)})
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


def offer_by_aiokafka(bootstrap: str, topic: str, user: str, seconds: float) -> None:
    """Offer what it takes, 50 records at a time; each is answered before the next are sent."""

    async def send() -> None:
        login = sasl.python_login("SCRAM-SHA-256", user, None)
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, retry_backoff_ms=50, **login) as producer:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                await asyncio.gather(*[await producer.send(topic, VALUE) for _ in range(50)])

    asyncio.run(send())


def offer_by_kafka_python(bootstrap: str, topic: str, user: str, seconds: float) -> None:
    """The same with kafka-python."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, **sasl.python_login("SCRAM-SHA-256", user, None))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answers = [producer.send(topic, VALUE) for _ in range(50)]
        for answer in answers:
            answer.get(60)
    producer.close(5)


def offer_by_node(bootstrap: str, topic: str, user: str, seconds: float) -> None:
    """The same with @platformatic/kafka, in a process of its own."""
    client = client_options(bootstrap, "node", **login("PLAIN", user, sasl.PASSWORD))
    (line,) = play(client, [{"do": "produce", "topic": topic, "count": 10**9, "bytes": len(VALUE), "batch": 50, "seconds": seconds}])
    assert "error" not in line, line


def has_node() -> bool:
    """Say whether the client for Node can be had, and why not."""
    try:
        installed()
    except NodeUnavailableError as problem:
        print(f"without @platformatic/kafka: {problem}")
        return False
    return True


def threads(bootstrap: str, topic: str, seconds: float, failures: list[str]) -> list[threading.Thread]:
    """Return everybody but the Java client, not started; who fails is told in `failures`."""
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
            work(bootstrap, topic, user, seconds, **settings)
        except Exception as error:  # noqa: BLE001 - a client that gives up is a result
            failures.append(f"{user}: {type(error).__name__}: {error}")

    return [threading.Thread(target=guarded, args=one) for one in offers]


def run(kafka: KafkaCluster, tools: JavaTools, mode: str, seconds: float) -> dict[str, object]:
    """Run all clients at once; return what was counted."""
    topic = new_topic(kafka.bootstrap, f"sessions-{mode}")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(temporary_directory("sessions")))
        quotas = write_quotas(directory / "quotas.toml", [{"user": user, "producer_byte_rate": RATE} for user in USERS.values()])
        sluice = stack.enter_context(SluiceProcess(kafka.sasl_bootstrap, quotas=quotas, enforcement=mode, name=f"bench-sessions-{mode}"))
        java_login = sasl.java_login(directory, "PLAIN", "alice")
        load = ProducerLoad(
            topic, 1_000_000, 1_000, properties={"acks": "1"}, records_per_second=OFFERED_RECORDS_PER_SECOND, config=java_login
        )
        java = start_producer(tools, sluice.bootstrap, load)
        failures: list[str] = []
        others = threads(sluice.bootstrap, topic, seconds, failures)
        for thread in others:
            thread.start()
        for thread in others:
            thread.join()
        assert java.is_running(), f"the Java client gave up:\n{java.out}\n{java.err}"
        return {"enforcement": mode, "seconds": seconds, **counted(sluice, seconds), "gave_up": failures}


def counted(sluice: SluiceProcess, seconds: float) -> dict[str, object]:
    """What Sluice saw."""
    exchanges = "kafka_sluice_sasl_exchanges_total"
    groups = {group["tags"]["user"]: group["recorded_total"] for group in sluice.quotas()["groups"] if group["quota_type"] == "Produce"}
    closes = [event for event in sluice.events("connection_closed") if event["reason"] not in FINE]
    renewing = Counter(f"{event['reason']} {event['principal']}" for event in closes if event["principal"] != f"User:{NEVER_RENEWS}")
    ours = {sanitize(user) for user in USERS.values()}
    return {
        "logins": sluice.metric(exchanges, outcome="success"),
        "refused": sluice.metric(exchanges, outcome="failure"),
        "throttles": sluice.metric("kafka_quota_throttle_duration_seconds_count"),
        "cut_off": dict(renewing),
        "never_renewed": len(closes) - renewing.total(),
        "bytes_per_second": {user: round(total / seconds) for user, total in groups.items() if user in ours},
        "bytes_of_others": sum(total for user, total in groups.items() if user not in ours),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print and write; 1 when a byte counted for somebody else, or a client gave up."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.sessions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--enforcement", nargs="+", choices=["delay", "mute"], default=["delay", "mute"])
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    for mode in options.enforcement:
        with JavaTools(KRAFT) as tools, sasl.new_cluster("kafka-sessions") as kafka:
            sasl.add_scram_users(tools, kafka.bootstrap, *SCRAM_USERS)
            rows.append(run(kafka, tools, mode, options.seconds))
    report = Report("sessions")
    report.add(
        *machine_lines(),
        f"- Apache Kafka {KRAFT}; sessions of {sasl.SESSION_MS} ms, quotas of {RATE} bytes per second; {options.seconds:g} s",
        "",
    )
    report.add(*HEAD, *("| " + " | ".join(str(value) for key, value in row.items() if key not in LEFT_OUT) + " |" for row in rows))
    report.add("", *(f"- {row['enforcement']}: gave up: {', '.join(row['gave_up']) or 'nobody'}" for row in rows))
    report.data["rows"] = rows
    print(report.text())
    if not options.no_write:
        report.write(ROOT / "bench/results")
    return int(any(row["bytes_of_others"] or row["gave_up"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
