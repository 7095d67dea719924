"""Transactions through Sluice: committed records are stored once and in order, and aborted records are never read."""

import pytest
from confluent_kafka import Producer

from tests.integration.conftest import Route
from tests.support.clients import aio, confluent
from tests.support.clients.outcome import FLUSH_SECONDS
from tests.support.kafka.jars import KRAFT, ZOOKEEPER
from tests.support.kafka.java_tools import JavaTools

pytestmark = pytest.mark.kafka
COMMITTED: confluent.Settings = {"isolation.level": "read_committed"}


def _batches(count: int = 10, size: int = 50) -> list[tuple[list[bytes], bool]]:
    """Return batches of values, each with a flag whether to commit; every third batch is aborted."""
    return [([f"{batch}-{number}".encode() for number in range(size)], batch % 3 != 2) for batch in range(count)]


def _committed(batches: list[tuple[list[bytes], bool]]) -> list[bytes]:
    return [value for values, commits in batches if commits for value in values]


def _read_committed(route: Route, topic: str) -> tuple[list[bytes], list[bytes]]:
    """Return what a read_committed consumer reads directly, and what it reads through Sluice."""
    direct = confluent.read_all(route.direct, topic, 1, COMMITTED)
    through = confluent.read_all(route.bootstrap, topic, 1, COMMITTED)
    return [message.value() for message in direct], [message.value() for message in through]


def test_confluent_kafka(route: Route) -> None:
    """Committed batches of a transactional librdkafka producer are whole and in order, and aborted ones are absent."""
    topic, batches = route.new_topic("confluent-transactions"), _batches()
    producer = Producer({"bootstrap.servers": route.bootstrap, "transactional.id": topic, **confluent.QUIET})
    producer.init_transactions(FLUSH_SECONDS)
    for values, commits in batches:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
        producer.flush(FLUSH_SECONDS)
        (producer.commit_transaction if commits else producer.abort_transaction)(FLUSH_SECONDS)
    assert _read_committed(route, topic) == (_committed(batches), _committed(batches))


def test_aiokafka(route: Route) -> None:
    """Committed batches of a transactional aiokafka producer are whole and in order, and aborted ones are absent."""
    topic, batches = route.new_topic("aiokafka-transactions"), _batches(count=6, size=10)
    aio.transact(route.bootstrap, topic, batches, transactional_id=topic)
    assert _read_committed(route, topic) == (_committed(batches), _committed(batches))


@pytest.mark.parametrize("version", [pytest.param(KRAFT, id="java-4.3.1"), pytest.param(ZOOKEEPER, id="java-3.9.1")])
def test_java_consume_transform_produce(route: Route, version: str, request: pytest.FixtureRequest) -> None:
    """R5: the copy that a transactional Java copier writes equals the original, although it aborts every fifth transaction."""
    java: JavaTools = request.getfixturevalue("tools" if version == KRAFT else "old_tools")
    source, copy = route.new_topic("copy-from"), route.new_topic("copy-to")
    values = [f"value-{number}".encode() for number in range(5_000)]
    confluent.produce(route.direct, source, values)
    said = java.run("CopyInTransactions", route.bootstrap, source, copy, "5000", "250").out
    assert said.startswith("copied 5000, aborted ")
    assert not said.startswith("copied 5000, aborted 0")
    assert _read_committed(route, copy) == (values, values)
