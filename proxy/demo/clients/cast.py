"""The clients of the demo: four clients and a stream of new connections, their offered load and their quotas."""

import math
from dataclasses import dataclass
from typing import Final

from proxy.demo.clients.libraries import aiokafka_consumer, confluent_producer, kafka_python_producer
from proxy.demo.clients.unit import BYTES, CONNECTIONS, THREAD, Unit
from proxy.demo.clients.visitors import VISITORS_ADDRESS, visitors
from proxy.demo.report import Errand

BURST_SECONDS: Final = 10
"""Kafka's quota window: 11 samples of one second, of which the newest has just begun. So much may pass at once."""

QUOTA_KEYS: Final = {
    "Produce": "producer_byte_rate",
    "Fetch": "consumer_byte_rate",
    "Request": "request_percentage",
    "Connection": "connection_creation_rate",
}

PRELOADED_PARTITION_BYTES: Final = 4_000_000
"""Below the 5 MiB after which the mock drops a partition's oldest records."""


@dataclass(frozen=True)
class Role:
    """One client, or the stream of new connections.

    Attributes:
        name: its client-id, and the name of its topic.
        title: what it does, for people.
        library: the Kafka client it is written with.
        quota_type: "Produce", "Fetch", "Request" or "Connection".
        bound: its quota in bytes per second, percent of a thread, or connections per second; None without one.
        record_bytes: size of each record; every record is a request, or the answer to one.
        interval_ms: it would like a record, or a connection, this often.
        node_id: the broker that leads its topic; None: it has no topic.
        unit: what it is measured in.
        run: the client itself.
    """

    name: str
    title: str
    library: str
    quota_type: str
    bound: float | None
    record_bytes: int
    interval_ms: int
    node_id: int | None
    run: Errand
    unit: Unit = BYTES

    @property
    def quota_key(self) -> str:
        """What its quota is called."""
        return QUOTA_KEYS[self.quota_type]

    @property
    def is_charged_by_sluice(self) -> bool:
        """Whether what a request costs is known to Sluice alone, which estimates it."""
        return self.quota_type == "Request"

    @property
    def amount(self) -> float:
        """What one request counts; as far as the client can know."""
        return self.record_bytes if self.unit is BYTES else 1

    @property
    def wants(self) -> str:
        """What it would like, in words."""
        if self.is_charged_by_sluice:
            return f"{1_000 // self.interval_ms} req/s"
        return f"{self.unit.rate_of(self.amount * 1_000 / self.interval_ms)} {self.unit.rate}"

    def partitions(self, seconds: int) -> int:
        """How many partitions its topic needs: a consumer must find enough to read."""
        if self.quota_type != "Fetch" or self.bound is None:
            return 1
        return math.ceil(self.bound * (seconds + BURST_SECONDS + 5) / PRELOADED_PARTITION_BYTES)


ROLES: Final = (
    Role("orders", "produces over its quota", "confluent-kafka", "Produce", 2_000_000, 40_000, 15, 1, confluent_producer),
    Role("reports", "consumes over its quota", "aiokafka", "Fetch", 1_500_000, 50_000, 25, 2, aiokafka_consumer),
    Role("audit", "produces without a quota", "kafka-python", "Produce", None, 30_000, 10, 3, kafka_python_producer),
    Role("clicks", "sends many small requests", "confluent-kafka", "Request", 0.5, 100, 5, 2, confluent_producer, THREAD),
    Role("visitors", "one address, many connections", "plain sockets", "Connection", 10, 0, 60, None, visitors, CONNECTIONS),
)


def role_named(name: str) -> Role:
    """Return the role of that name."""
    return next(role for role in ROLES if role.name == name)


def quota_file() -> str:
    """Return quotas.toml for the cast."""
    return "\n".join(f"[[quota]]\n{_entity(role)}\n{role.quota_key} = {role.bound}\n" for role in ROLES if role.bound is not None)


def _entity(role: Role) -> str:
    return f'ip = "{VISITORS_ADDRESS}"' if role.quota_type == "Connection" else f'client-id = "{role.name}"'
