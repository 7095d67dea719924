"""confluent-kafka, aiokafka and kafka-python, unmodified, through Sluice in front of both brokers."""

from types import ModuleType

import pytest

from tests.integration.conftest import Route
from tests.support.clients import aio, confluent, kafka_python

pytestmark = pytest.mark.kafka
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CLIENTS = [pytest.param(client, id=client.__name__.rpartition(".")[2]) for client in (confluent, aio, kafka_python)]


@pytest.mark.parametrize("client", CLIENTS)
def test_every_codec_passes(route: Route, client: ModuleType) -> None:
    """What a client sends with each of the five codecs is what a group member of the same kind reads, in order."""
    topic = route.new_topic(f"codecs-{client.__name__.rpartition('.')[2]}")
    sent: list[bytes] = []
    for codec in CODECS:
        values = [f"{codec}-{number}".encode() * 20 for number in range(200)]
        assert client.produce(route.bootstrap, topic, values, codec) == len(values)
        sent += values
    assert client.consume(route.bootstrap, topic, len(sent), f"group-of-{topic}") == sent
    assert [message.value() for message in confluent.read_all(route.direct, topic, partitions=1)] == sent
