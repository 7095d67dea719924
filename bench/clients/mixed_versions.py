"""Clients of many versions and kinds at once, each over its quota: no record is lost or duplicated, the order is kept, throttle times
are announced.

python -m bench.clients.mixed_versions [--records 30000] [--enforcement mute] [--no-write]

Java clients 1.0, 2.8, 3.8 and 4.3, confluent-kafka, aiokafka and franz-go produce (acks=all, idempotent, three partitions) and then consume
what they produced, once directly and once through Sluice with 1 MB/s for each client and direction. The brokers are Apache Kafka 3.9.1 with
ZooKeeper, which still supports the oldest clients, and 4.3.1, which does not. Stored records are read at the broker, and their hashes have
to equal those of the sent ones. With `mute` a producer's throttle time is announced, so clients that support KIP-219 have to report it.
With `delay` a client sees no throttle time up to 5 s, and fetches wait before they are forwarded, so neither is announced. Needs a JDK and
Maven, and Go for franz-go; clients that are not available are left out and named.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.clients.mixed_clients import (
    BuildFailedError,
    Load,
    Outcome,
    aiokafka_client,
    confluent_client,
    digests_of,
    go_client,
    java_client,
)
from bench.harness.engine import ROOT
from bench.harness.report import Report, machine_lines
from tests.support.clients.confluent import read_all
from tests.support.clients.topics import new_topic
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT, ZOOKEEPER
from tests.support.places import temporary_directory
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

Client = Callable[[Load], Outcome]

RATE = 1_000_000
SIZE, PARTITIONS = 512, 3
OLDEST = "java-1.0.2"
JAVA_VERSIONS = ("1.0.2", "2.8.2", "3.8.1", "4.3.1")
WITHOUT_KIP_219 = {OLDEST, "aiokafka"}
"""Java since 2.0, librdkafka and franz-go report throttle times; aiokafka does not."""
HEAD = [
    "| broker | client | acked | stored | twice or lost | order, bytes | consumed | throttles in ms | direct s | through s |",
    "|---|---|---|---|---|---|---|---|---|---|",
]


def clients(problems: list[str]) -> dict[str, Client]:
    """Return all clients that are available."""
    makers: dict[str, Callable[[], Client]] = {f"java-{version}": lambda version=version: java_client(version) for version in JAVA_VERSIONS}
    makers["franz-go"] = go_client
    found: dict[str, Client] = {"confluent-kafka": confluent_client, "aiokafka": aiokafka_client}
    for name, make in makers.items():
        try:
            found[name] = make()
        except BuildFailedError as problem:
            problems.append(f"without {name}: {problem}")
    return found


def timed(client: Client, load: Load) -> tuple[Outcome, float]:
    """Run one client to its end."""
    began = time.monotonic()
    return client(load), time.monotonic() - began


def run_all(found: dict[str, Client], bootstrap: str, direct: str, records: int, arm: str) -> dict[str, tuple[Load, Outcome, float]]:
    """Run every client at once, each with a topic and a client-id of its own."""
    loads = {
        name: Load(bootstrap, new_topic(direct, f"{name}-{arm}", partitions=PARTITIONS), name, records, SIZE, PARTITIONS) for name in found
    }
    with ThreadPoolExecutor(len(found)) as threads:
        runs = {name: threads.submit(timed, client, loads[name]) for name, client in found.items()}
        return {name: (loads[name], *run.result()) for name, run in runs.items()}


def judged(direct: str, load: Load, outcome: Outcome) -> dict[str, Any]:
    """Compare the client's report, the broker's records, and what was sent."""
    parts: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for message in read_all(direct, load.topic, PARTITIONS):
        parts[message.partition() or 0].append(message.value() or b"")
    stored = [value for part in parts for value in part]
    sent = {load.value(number) for number in range(load.count)}
    wrong = len(stored) - len(set(stored)) + len(sent - set(stored)) + len(set(stored) - sent)
    fine = digests_of(parts) == load.digests() == outcome.digests
    return {
        "acked": outcome.acknowledged,
        "stored": len(stored),
        "wrong": wrong,
        "equal": fine,
        "consumed": outcome.consumed,
        "produce_throttle_ms": outcome.produce_throttle_ms,
        "fetch_throttle_ms": outcome.fetch_throttle_ms,
    }


def rows_of(version: str, found: dict[str, Client], records: int, mode: str) -> list[dict[str, Any]]:
    """Run both arms in front of one broker."""
    with KafkaCluster(version, name=f"kafka-mixed-{version}") as kafka, temporary_directory("mixed") as directory:
        direct = run_all(found, kafka.bootstrap, kafka.bootstrap, records, "direct")
        limits = [{"client-id": name, "producer_byte_rate": RATE, "consumer_byte_rate": RATE} for name in found]
        quotas = write_quotas(Path(directory) / "quotas.toml", limits)
        with SluiceProcess(kafka.bootstrap, quotas=quotas, enforcement=mode, name=f"bench-mixed-{version}") as sluice:
            through = run_all(found, sluice.bootstrap, kafka.bootstrap, records, "through")
        rows = []
        for name, (load, outcome, seconds) in through.items():
            row = {"broker": version, "client": name, **judged(kafka.bootstrap, load, outcome)}
            plain = judged(kafka.bootstrap, *direct[name][:2])
            row |= {"direct_s": direct[name][2], "through_s": seconds, "direct_equal": plain["equal"]}
            rows.append(row)
        return rows


def is_right(row: dict[str, Any], records: int, mode: str) -> bool:
    """Return whether a row is as expected."""
    whole = row["acked"] == row["stored"] == row["consumed"] == records and not row["wrong"] and row["equal"]
    reported = mode == "delay" or row["client"] in WITHOUT_KIP_219 or row["produce_throttle_ms"] > 0
    return bool(whole and reported)


def shown(row: dict[str, Any]) -> str:
    """Return a line of the table."""
    throttle = "not reported" if row["produce_throttle_ms"] is None else f"{row['produce_throttle_ms']:.0f}, {row['fetch_throttle_ms']:.0f}"
    equal = "equal" if row["equal"] else "OTHER"
    cells = [row["broker"], row["client"], row["acked"], row["stored"], row["wrong"], equal, row["consumed"], throttle]
    return "| " + " | ".join(map(str, cells)) + f" | {row['direct_s']:.1f} | {row['through_s']:.1f} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print and write; return 1 when a row is not as expected."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.clients.mixed_versions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=30_000)
    parser.add_argument("--enforcement", choices=["delay", "mute"], default="mute")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args(arguments)
    problems: list[str] = []
    found = clients(problems)
    mode = options.enforcement
    rows = rows_of(ZOOKEEPER, found, options.records, mode)
    rows += rows_of(KRAFT, {name: client for name, client in found.items() if name != OLDEST}, options.records, mode)
    report = Report("mixed-versions")
    report.add(
        *machine_lines(), f"- {options.records} records of {SIZE} bytes each way, {RATE} bytes per second, {mode}; all clients at once", ""
    )
    report.add(*(f"- {problem}" for problem in problems), *HEAD, *map(shown, rows), "")
    wrong = [f"{row['client']} at {row['broker']}" for row in rows if not is_right(row, options.records, mode)]
    report.add(f"Not as it has to be: {', '.join(wrong) or 'none'} of {len(rows)}.")
    report.data["rows"] = rows
    print(report.text())
    if not options.no_write:
        report.write(ROOT / "bench/results/clients")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
