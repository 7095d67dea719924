"""Clients whose SASL sessions last two seconds, far over their quotas: is anybody cut off, does a byte count for somebody else?

python -m bench.sessions [--seconds 60] [--enforcement delay mute] [--no-write]

A Java producer (PLAIN), confluent-kafka with five requests in flight (SCRAM-SHA-256) and confluent-kafka without a bound on them (the same,
by another user) offer ten times their quota of 200,000 bytes per second to a real broker that wants a new login every two seconds. Whatever
ends a connection but its client is counted, and so are bytes in groups of anybody but these three. Needs a JDK and Maven.
"""

import argparse
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer

from bench.engine import ROOT
from bench.report import Report, machine_lines
from quota.entity import sanitize
from tests.support.clients.topics import new_topic
from tests.support.kafka import sasl_cluster as sasl
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import ProducerLoad, start_producer
from tests.support.places import temporary_directory
from tests.support.sluice_process import SluiceProcess, write_quotas

RATE = 200_000
OFFERED_RECORDS_PER_SECOND = 2_000
USERS = {"java": "alice", "confluent, 5 in flight": "bounded", "confluent, unbounded": "unbounded"}
FINE = {"client_closed", "client_reset", "drain", "drain_deadline", "shutdown"}
HEAD = [
    "| enforcement | logins | refused | throttles | cut off | bytes per second and user | bytes of others |",
    "|---|---|---|---|---|---|---|",
]


def offer(bootstrap: str, topic: str, user: str, seconds: float, **settings: int) -> None:
    """Offer 2 MB/s with confluent-kafka; what is left at the end is given up."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **settings, **sasl.confluent_login("SCRAM-SHA-256", user)})
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(OFFERED_RECORDS_PER_SECOND // 100):
            try:
                producer.produce(topic, bytes(1_000))
            except BufferError:
                break
        producer.poll(0.01)
    producer.purge()
    producer.flush(5)


def run(kafka: KafkaCluster, tools: JavaTools, mode: str, seconds: float) -> dict[str, object]:
    """Run all three clients at once; return what was counted."""
    topic = new_topic(kafka.bootstrap, f"sessions-{mode}")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(temporary_directory("sessions")))
        quotas = write_quotas(directory / "quotas.toml", [{"user": user, "producer_byte_rate": RATE} for user in USERS.values()])
        sluice = stack.enter_context(SluiceProcess(kafka.sasl_bootstrap, quotas=quotas, enforcement=mode, name=f"bench-sessions-{mode}"))
        login = sasl.java_login(directory, "PLAIN", "alice")
        load = ProducerLoad(topic, 1_000_000, 1_000, properties={"acks": "1"}, records_per_second=OFFERED_RECORDS_PER_SECOND, config=login)
        java = start_producer(tools, sluice.bootstrap, load)
        others = [
            threading.Thread(target=offer, args=(sluice.bootstrap, topic, "bounded", seconds), kwargs={"max.in.flight": 5}),
            threading.Thread(target=offer, args=(sluice.bootstrap, topic, "unbounded", seconds)),
        ]
        for thread in others:
            thread.start()
        for thread in others:
            thread.join()
        assert java.is_running(), f"the Java client gave up:\n{java.out}\n{java.err}"
        exchanges = "kafka_sluice_sasl_exchanges_total"
        groups = {group["tags"]["user"]: group["recorded_total"] for group in sluice.quotas()["groups"] if group["quota_type"] == "Produce"}
        closes = Counter(event["reason"] for event in sluice.events("connection_closed") if event["reason"] not in FINE)
        ours = {sanitize(user) for user in USERS.values()}
        return {
            "enforcement": mode,
            "seconds": seconds,
            "logins": sluice.metric(exchanges, outcome="success"),
            "refused": sluice.metric(exchanges, outcome="failure"),
            "throttles": sluice.metric("kafka_quota_throttle_duration_seconds_count"),
            "cut_off": dict(closes),
            "bytes_per_second": {user: round(total / seconds) for user, total in groups.items() if user in ours},
            "bytes_of_others": sum(total for user, total in groups.items() if user not in ours),
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print and write; 1 when a byte counted for somebody else."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.sessions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--enforcement", nargs="+", choices=["delay", "mute"], default=["delay", "mute"])
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args(arguments)
    rows = []
    for mode in options.enforcement:
        with JavaTools(KRAFT) as tools, sasl.new_cluster("kafka-sessions") as kafka:
            sasl.add_scram_users(tools, kafka.bootstrap, "bounded", "unbounded")
            rows.append(run(kafka, tools, mode, options.seconds))
    report = Report("sessions")
    report.add(
        *machine_lines(),
        f"- Apache Kafka {KRAFT}; sessions of {sasl.SESSION_MS} ms, quotas of {RATE} bytes per second; {options.seconds:g} s",
        "",
    )
    report.add(*HEAD, *("| " + " | ".join(str(value) for key, value in row.items() if key != "seconds") + " |" for row in rows))
    report.data["rows"] = rows
    print(report.text())
    if not options.no_write:
        report.write(ROOT / "bench/results")
    return int(any(row["bytes_of_others"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
