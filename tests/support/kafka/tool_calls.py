"""Calls of Kafka's tools for tests; this module hides the differences between 3.9.1 and 4.3.1."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.kafka.jars import ZOOKEEPER
from tests.support.kafka.java_tools import Command, JavaTools

PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"
SHARE_CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ShareConsumerPerformance"
CONFIG_COMMAND = "kafka.admin.ConfigCommand"


def create_topic(
    tools: JavaTools, bootstrap: str, topic: str, *, partitions: int = 1, replicas: int = 1, config: Path | None = None
) -> None:
    """Create a topic with kafka-topics."""
    where = ("--bootstrap-server", bootstrap, "--create", "--topic", topic, *(() if config is None else ("--command-config", str(config))))
    tools.run(TOPIC_COMMAND, *where, "--partitions", str(partitions), "--replication-factor", str(replicas))


def set_client_quota(tools: JavaTools, bootstrap: str, client_id: str | None, **bounds: float) -> None:
    """Set a client-id's quota on the broker itself with kafka-configs; None: of clients without a quota of their own."""
    values = ",".join(f"{name}={value}" for name, value in bounds.items())
    entity = ("--entity-type", "clients", *(("--entity-default",) if client_id is None else ("--entity-name", client_id)))
    tools.run(CONFIG_COMMAND, "--bootstrap-server", bootstrap, "--alter", *entity, "--add-config", values)


def set_group_config(tools: JavaTools, bootstrap: str, group: str, settings: Mapping[str, str]) -> None:
    """Set the broker's configuration of a group, with kafka-configs."""
    where = ("--bootstrap-server", bootstrap, "--alter", "--entity-type", "groups", "--entity-name", group)
    tools.run(CONFIG_COMMAND, *where, "--add-config", ",".join(_assignments(settings)))


@dataclass(frozen=True, slots=True)
class ProducerRun:
    """The figures that ProducerPerformance prints at its end."""

    records: int
    records_per_second: float
    metrics: Mapping[str, float]

    def metric(self, name: str) -> float:
        """Return the largest value of a producer metric over all its tags."""
        return max(value for key, value in self.metrics.items() if key.startswith(f"{name}:"))


@dataclass(frozen=True, slots=True)
class ProducerLoad:
    """A run of ProducerPerformance: number and size of records, rate per second (-1: as fast as possible), client properties.

    Properties whose values contain an equals sign, such as logins, are in the file `config`.
    """

    topic: str
    records: int
    record_bytes: int = 1_000
    client_id: str = "perf-producer"
    properties: Mapping[str, str] | None = None
    records_per_second: int = -1
    config: Path | None = None

    def arguments(self, version: str, bootstrap: str) -> list[str]:
        """Return the command line; 4.x has named options for what 3.9 reads from --producer-props."""
        load = ["--topic", self.topic, "--num-records", str(self.records), "--record-size", str(self.record_bytes)]
        load += ["--throughput", str(self.records_per_second), "--print-metrics"]
        properties = {"client.id": self.client_id, **(self.properties or {})}
        if self.config is not None:
            load += ["--producer.config" if version == ZOOKEEPER else "--command-config", str(self.config)]
        if version == ZOOKEEPER:
            return [*load, "--producer-props", *_assignments({"bootstrap.servers": bootstrap} | properties)]
        return [*load, "--bootstrap-server", bootstrap, "--command-property", *_assignments(properties)]


def start_producer(tools: JavaTools, bootstrap: str, load: ProducerLoad) -> Command:
    """Start ProducerPerformance; `producer_result` reads its output."""
    return tools.start(PRODUCER_PERFORMANCE, *load.arguments(tools.version, bootstrap))


def run_producer(tools: JavaTools, bootstrap: str, load: ProducerLoad) -> ProducerRun:
    """Run ProducerPerformance to its end."""
    return producer_result(start_producer(tools, bootstrap, load))


def producer_result(command: Command) -> ProducerRun:
    """Wait for a run of ProducerPerformance and read its last summary and its metrics."""
    out = command.wait().out
    totals = re.findall(r"^(\d+) records sent, ([\d.]+) records/sec .*99\.9th", out, re.MULTILINE)
    assert totals, f"no summary in what ProducerPerformance printed:\n{out}\n{command.err}"
    records, rate = totals[-1]
    return ProducerRun(int(records), float(rate), _metrics(out))


def run_consumer(tools: JavaTools, bootstrap: str, topic: str, records: int, *, group: str, config: Path | None = None) -> int:
    """Run ConsumerPerformance until it has read `records`. Return how many it read."""
    where = ["--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--timeout", "30000"]
    count = "--messages" if tools.version == ZOOKEEPER else "--num-records"
    where += [] if config is None else ["--consumer.config" if tools.version == ZOOKEEPER else "--command-config", str(config)]
    out = tools.run(CONSUMER_PERFORMANCE, *where, count, str(records)).out
    [row] = re.findall(r"^\d{4}-\d\d-\d\d .*, \d{4}-\d\d-\d\d .*$", out, re.MULTILINE)
    return int(row.split(", ")[4])


def run_share_consumer(tools: JavaTools, bootstrap: str, topic: str, records: int, *, group: str) -> int:
    """Run ShareConsumerPerformance until it has read `records`. Return how many it read."""
    where = ("--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--timeout", "30000")
    row = tools.run(SHARE_CONSUMER_PERFORMANCE, *where, "--num-records", str(records)).out.strip().splitlines()[-1].split(", ")
    return int(row[5])


def _metrics(out: str) -> dict[str, float]:
    """Read the output of --print-metrics: name, tags and value, one line each."""
    return {name: float(value) for name, value in re.findall(r"^(\S+:\{.*?\})\s*: (-?\d+\.\d+)$", out, re.MULTILINE)}


def _assignments(properties: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in properties.items()]
