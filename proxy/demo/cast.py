"""Who plays in the demo: three clients, what they would like and what they may."""

from dataclasses import dataclass
from typing import Final

from proxy.demo.libraries import aiokafka_consumer, confluent_producer, kafka_python_producer
from proxy.demo.report import Errand

BURST_SECONDS: Final = 10
"""Kafka's quota window: 11 samples of one second, of which the newest has just begun. So much may pass at once."""

PRELOADED_PARTITION_BYTES: Final = 4_000_000
"""Below the 5 MiB after which the mock drops a partition's oldest records."""


@dataclass(frozen=True)
class Role:
    """One client.

    Attributes:
        name: its client-id, and the name of its topic.
        title: what it does, for people.
        library: the Kafka client it is written with.
        quota_type: "Produce" or "Fetch".
        bound: its quota in bytes per second; None without one.
        record_bytes: size of each record; every record is a request, or the answer to one.
        interval_ms: it would like a record this often.
        node_id: the broker that leads its topic.
        run: the client itself.
    """

    name: str
    title: str
    library: str
    quota_type: str
    bound: int | None
    record_bytes: int
    interval_ms: int
    node_id: int
    run: Errand

    @property
    def quota_key(self) -> str:
        """What its quota is called."""
        return "producer_byte_rate" if self.quota_type == "Produce" else "consumer_byte_rate"

    @property
    def offered(self) -> float:
        """Bytes per second that it would like."""
        return self.record_bytes * 1_000 / self.interval_ms

    def partitions(self, seconds: int) -> int:
        """How many partitions its topic needs: a consumer must find enough to read."""
        if self.quota_type == "Produce" or self.bound is None:
            return 1
        return -(-self.bound * (seconds + BURST_SECONDS + 5) // PRELOADED_PARTITION_BYTES)


ROLES: Final = (
    Role("orders", "produces over its quota", "confluent-kafka", "Produce", 2_000_000, 40_000, 15, 1, confluent_producer),
    Role("reports", "consumes over its quota", "aiokafka", "Fetch", 1_500_000, 50_000, 25, 2, aiokafka_consumer),
    Role("audit", "produces without a quota", "kafka-python", "Produce", None, 30_000, 10, 3, kafka_python_producer),
)


def role_named(name: str) -> Role:
    """Return the role of that name."""
    return next(role for role in ROLES if role.name == name)


def quota_file() -> str:
    """Return quotas.toml for the cast."""
    entries = [f'[[quota]]\nclient-id = "{role.name}"\n{role.quota_key} = {role.bound}\n' for role in ROLES if role.bound is not None]
    return "\n".join(entries)
