"""Clients of many versions and kinds with one interface: produce a number of records, consume them, report the result.

Java: kafka-clients of the version, with versions/VersionedClient.java; Go: franz-go, with versions/main.go; both are built under build/
when they are first asked for. Python: confluent-kafka and aiokafka, here.
"""

import asyncio
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as Position

from tests.support.places import BUILD, ROOT

SOURCES = ROOT / "bench/versions"
HANG_SECONDS = 200
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>sluice.bench</groupId><artifactId>clients-{version}</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""


class Load(NamedTuple):
    """What each client produces and consumes."""

    bootstrap: str
    topic: str
    client_id: str
    count: int
    size: int
    partitions: int

    def value(self, number: int) -> bytes:
        """Return a record that names its producer and its number, padded to the size."""
        return f"{self.client_id}:{number}".encode().ljust(self.size, b"x")

    def digests(self) -> list[str]:
        """Return the expected SHA-256 of each partition's values, in order."""
        return digests_of([[self.value(number) for number in range(part, self.count, self.partitions)] for part in range(self.partitions)])


class Outcome(NamedTuple):
    """The result; a throttle time in ms, None where the client does not report it."""

    acknowledged: int
    failed: int
    produce_throttle_ms: float | None
    fetch_throttle_ms: float | None
    consumed: int
    digests: list[str]


def digests_of(partitions: Sequence[Sequence[bytes]]) -> list[str]:
    """Return the SHA-256 of each partition's values in their order."""
    return [hashlib.sha256(b"".join(values)).hexdigest() for values in partitions]


class BuildFailedError(Exception):
    """A client is not available on this machine; the text says why."""


def java_client(version: str) -> Callable[[Load], Outcome]:
    """Return a client with this version of kafka-clients.

    Raises:
        BuildFailedError: Maven or the compiler is missing, or failed.
    """
    home = BUILD / f"clients-{version}"
    if not (home / "VersionedClient.class").exists():
        home.mkdir(parents=True, exist_ok=True)
        (home / "pom.xml").write_text(_POM.format(version=version))
        repository = f"-Dmaven.repo.local={BUILD / 'maven'}"
        _run(["mvn", "-B", "-q", "-f", str(home / "pom.xml"), repository, _COPY, f"-DoutputDirectory={home / 'lib'}"])
        _run(["javac", "-nowarn", "-cp", f"{home / 'lib'}/*", "-d", str(home), str(SOURCES / "VersionedClient.java")])
    return _program(
        ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{home}:{home / 'lib'}/*", "VersionedClient"]
    )


def go_client() -> Callable[[Load], Outcome]:
    """Return franz-go.

    Raises:
        BuildFailedError: Go is missing or too old, or the build failed.
    """
    return _program([go_binary()])


def go_binary() -> str:
    """Return the program of franz-go, which is built if necessary.

    Raises:
        BuildFailedError: as in `go_client`.
    """
    binary, source = BUILD / "franz-go-client", SOURCES / "main.go"
    if not binary.exists() or binary.stat().st_mtime < source.stat().st_mtime:
        _run(["go", "build", "-o", str(binary), "."], cwd=SOURCES)
    return str(binary)


def forever(bootstrap: str, topic: str, client_id: str) -> list[str]:
    """Return the command of franz-go that produces records of 1,000 bytes, in batches of 16 kB, until it is killed."""
    return [go_binary(), bootstrap, topic, client_id, "0", "1000", "4"]


def _run(command: list[str], cwd: Path = ROOT) -> None:
    if shutil.which(command[0]) is None:
        raise BuildFailedError(f"{command[0]} is missing")
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise BuildFailedError(f"{command[0]} failed: {(done.stdout + done.stderr)[-1_000:]}")


def _program(command: list[str]) -> Callable[[Load], Outcome]:
    def run(load: Load) -> Outcome:
        arguments = [load.bootstrap, load.topic, load.client_id, str(load.count), str(load.size), str(load.partitions)]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True, timeout=HANG_SECONDS)
        acknowledged, failed, produce_ms, fetch_ms, consumed, *digests = done.stdout.split()
        return Outcome(int(acknowledged), int(failed), float(produce_ms), float(fetch_ms), int(consumed), digests)

    return run


def confluent_client(load: Load) -> Outcome:
    """Run librdkafka, which reports throttle times by a callback."""
    waits = {"produce": 0.0, "consume": 0.0}

    def waited(kind: str) -> Callable[[object], None]:
        def note(event: object) -> None:
            waits[kind] = max(waits[kind], 1_000 * event.throttle_time)  # type: ignore[attr-defined]

        return note

    base = {"bootstrap.servers": load.bootstrap, "client.id": load.client_id, "log_level": 0}
    producer = Producer({**base, "enable.idempotence": True, "throttle_cb": waited("produce"), "queue.buffering.max.messages": load.count})
    outcomes: list[bool] = []
    for number in range(load.count):
        producer.produce(
            load.topic, load.value(number), partition=number % load.partitions, on_delivery=lambda error, _: outcomes.append(not error)
        )
        producer.poll(0)
    producer.flush(HANG_SECONDS)
    consumer = Consumer({**base, "group.id": load.topic, "enable.auto.commit": False, "throttle_cb": waited("consume")})
    consumer.assign([Position(load.topic, partition, 0) for partition in range(load.partitions)])
    parts: list[list[bytes]] = [[] for _ in range(load.partitions)]
    while (count := sum(map(len, parts))) < load.count:
        messages: list[Message] = consumer.consume(load.count - count, timeout=1)
        for message in messages:
            parts[message.partition() or 0].append(message.value() or b"")
    consumer.close()
    return Outcome(sum(outcomes), outcomes.count(False), waits["produce"], waits["consume"], count, digests_of(parts))


def aiokafka_client(load: Load) -> Outcome:
    """Run aiokafka, which reports no throttle times."""
    return asyncio.run(asyncio.wait_for(_aiokafka(load), HANG_SECONDS))


async def _aiokafka(load: Load) -> Outcome:
    base = {"bootstrap_servers": load.bootstrap, "client_id": load.client_id}
    async with AIOKafkaProducer(**base, enable_idempotence=True, linger_ms=5) as producer:
        answers = [await producer.send(load.topic, load.value(number), partition=number % load.partitions) for number in range(load.count)]
        outcomes = await asyncio.gather(*answers, return_exceptions=True)
    failed = sum(isinstance(outcome, BaseException) for outcome in outcomes)
    parts: list[list[bytes]] = [[] for _ in range(load.partitions)]
    async with AIOKafkaConsumer(**base, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.assign([TopicPartition(load.topic, partition) for partition in range(load.partitions)])
        while (count := sum(map(len, parts))) < load.count:
            for where, records in (await consumer.getmany(timeout_ms=500)).items():
                parts[where.partition] += [record.value for record in records]
    return Outcome(len(outcomes) - failed, failed, None, None, count, digests_of(parts))
