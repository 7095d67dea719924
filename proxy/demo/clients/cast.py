"""The clients of the demo: their offered load and their quotas."""

import math
from dataclasses import dataclass
from typing import Final

from proxy.demo.clients.libraries import aiokafka_consumer, confluent_producer, kafka_python_producer
from proxy.demo.clients.unit import BYTES, CONNECTIONS, THREAD, Unit
from proxy.demo.clients.visitors import VISITORS_ADDRESS, visitors
from proxy.demo.report import ClientTask

BURST_SECONDS: Final = 10
"""Seconds of quota that may pass at once: Kafka's quota window has 11 samples of one second, and the newest has just begun."""

QUOTA_KEYS: Final = {
    "Produce": "producer_byte_rate",
    "Fetch": "consumer_byte_rate",
    "Request": "request_percentage",
    "Connection": "connection_creation_rate",
}

PRELOADED_PARTITION_BYTES: Final = 4_000_000
"""Size of a preloaded partition, below the 5 MiB at which the mock drops the oldest records."""


@dataclass(frozen=True)
class Role:
    """A client of the demo, or the stream of new connections.

    Attributes:
        name: client-id, and name of the topic.
        title: description for the reader of the output.
        library: Kafka client library.
        quota_type: "Produce", "Fetch", "Request" or "Connection".
        bound: quota in bytes per second, percent of a thread, or connections per second; None: no quota.
        record_bytes: size of each record; every record is one request, or one response.
        interval_ms: interval of the offered records or connections.
        node_id: broker that leads the topic; None: there is no topic.
        unit: unit of the measurements.
        run: function that runs the client.
    """

    name: str
    title: str
    library: str
    quota_type: str
    bound: float | None
    record_bytes: int
    interval_ms: int
    node_id: int | None
    run: ClientTask
    unit: Unit = BYTES

    @property
    def quota_key(self) -> str:
        """Kafka's key of the quota."""
        return QUOTA_KEYS[self.quota_type]

    @property
    def is_charged_by_sluice(self) -> bool:
        """Whether only Sluice knows the cost of a request, which it estimates."""
        return self.quota_type == "Request"

    @property
    def amount(self) -> float:
        """Amount that one request counts against the quota, as far as the client knows."""
        return self.record_bytes if self.unit is BYTES else 1

    @property
    def wants(self) -> str:
        """Description of the offered load."""
        if self.is_charged_by_sluice:
            return f"{1_000 // self.interval_ms} req/s"
        return f"{self.unit.rate_of(self.amount * 1_000 / self.interval_ms)} {self.unit.rate}"

    def proxies(self, count: int) -> list[int]:
        """Return the numbers of those of `count` proxies that this client uses: all if they share its quota, otherwise one."""
        if self.bound is None:
            return [count - 1]
        return [0] if self.quota_type == "Connection" else list(range(count))

    def partitions(self, seconds: int) -> int:
        """Return the number of partitions of the topic: enough for the records that a consumer reads in `seconds`."""
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
    """Return the role with a name."""
    return next(role for role in ROLES if role.name == name)


def quota_file() -> str:
    """Return the text of quotas.toml with the quotas of all roles."""
    return "\n".join(f"[[quota]]\n{_entity(role)}\n{role.quota_key} = {role.bound}\n" for role in ROLES if role.bound is not None)


def _entity(role: Role) -> str:
    return f'ip = "{VISITORS_ADDRESS}"' if role.quota_type == "Connection" else f'client-id = "{role.name}"'
