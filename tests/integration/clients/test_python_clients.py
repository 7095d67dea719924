"""confluent-kafka, aiokafka and kafka-python, unmodified, through Sluice in front of a broker of each version."""

from types import ModuleType

import pytest

from tests.integration.conftest import Route
from tests.support.clients import aio, confluent, kafka_python

pytestmark = pytest.mark.kafka
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CLIENTS = [pytest.param(client, id=client.__name__.rpartition(".")[2]) for client in (confluent, aio, kafka_python)]


@pytest.mark.parametrize("client", CLIENTS)
def test_every_codec_passes(route: Route, client: ModuleType) -> None:
    """A group member reads in order what a client of the same kind has sent with each of the five codecs."""
    topic = route.new_topic(f"codecs-{client.__name__.rpartition('.')[2]}")
    sent: list[bytes] = []
    for codec in CODECS:
        values = [f"{codec}-{number}".encode() * 20 for number in range(200)]
        assert client.produce(route.bootstrap, topic, values, codec) == len(values)
        sent += values
    assert client.consume(route.bootstrap, topic, len(sent), f"group-of-{topic}") == sent
    assert [message.value() for message in confluent.read_all(route.direct, topic, partitions=1)] == sent
