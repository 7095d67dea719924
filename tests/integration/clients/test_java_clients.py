"""Kafka's own producer and consumer, 4.3.1 and 3.9.1, unmodified, through Sluice in front of a broker of each version."""

import pytest

from tests.integration.conftest import Route
from tests.support.clients import confluent
from tests.support.kafka.jars import KRAFT, ZOOKEEPER
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import ProducerLoad, create_topic, run_consumer, run_producer

pytestmark = pytest.mark.kafka
RECORDS = 20_000
RECORD_BYTES = 500
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(params=[KRAFT, ZOOKEEPER], ids=["java-4.3.1", "java-3.9.1"])
def java(request: pytest.FixtureRequest) -> JavaTools:
    """Each of the two versions of the Java clients."""
    return request.getfixturevalue("tools" if request.param == KRAFT else "old_tools")


def test_performance_tools_move_every_record(route: Route, java: JavaTools) -> None:
    """kafka-producer-perf-test stores all its records through Sluice, and kafka-consumer-perf-test reads all of them."""
    topic = route.new_topic("java-perf", partitions=3)
    sent = run_producer(java, route.bootstrap, ProducerLoad(topic, RECORDS, RECORD_BYTES))
    read = run_consumer(java, route.bootstrap, topic, RECORDS, group=f"group-of-{topic}")
    stored = confluent.read_all(route.direct, topic, partitions=3)
    assert (sent.records, read, len(stored)) == (RECORDS, RECORDS, RECORDS)
    assert {len(message.value()) for message in stored} == {RECORD_BYTES}


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_passes(route: Route, java: JavaTools, codec: str) -> None:
    """Record batches of each compression codec are stored and read through Sluice unchanged."""
    topic = route.new_topic(f"java-{codec}")
    load = ProducerLoad(topic, 1_000, properties={"compression.type": codec})
    assert run_producer(java, route.bootstrap, load).records == 1_000
    assert run_consumer(java, route.bootstrap, topic, 1_000, group=f"group-of-{topic}") == 1_000


def test_topics_can_be_created_through_sluice(route: Route, java: JavaTools) -> None:
    """kafka-topics creates the same topic through Sluice as directly at the broker."""
    topic = f"by-kafka-topics-{java.version[0]}"
    create_topic(java, route.bootstrap, topic, partitions=2)
    assert confluent.produce(route.direct, topic, [b"value"]) == 1
