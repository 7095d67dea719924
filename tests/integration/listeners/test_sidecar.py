"""A sidecar: the broker advertises Sluice's address itself, and Sluice rewrites no address."""

from pathlib import Path

import pytest

from tests.support.clients import confluent
from tests.support.clients.topics import new_topic
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import ProducerLoad, run_consumer, run_producer
from tests.support.places import temporary_directory
from tests.support.ports import free_bootstrap_port
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

pytestmark = pytest.mark.kafka


def test_clients_meet_the_sidecar_by_the_address_the_broker_advertises(tools: JavaTools) -> None:
    """Java clients that bootstrap at the sidecar produce and consume only through the sidecar."""
    port = free_bootstrap_port()
    with temporary_directory("sidecar") as directory, KafkaCluster(name="kafka-sidecar", advertised_port=port) as kafka:
        quotas = write_quotas(Path(directory, "quotas.toml"), [{"client-id": "limited", "producer_byte_rate": 1e9}])
        with SluiceProcess(kafka.bootstrap, quotas=quotas, arguments=["--sidecar"], port=port, name="sluice-sidecar") as sluice:
            topic = new_topic(sluice.bootstrap, "sidecar")
            assert run_producer(tools, sluice.bootstrap, ProducerLoad(topic, 2_000, client_id="limited")).records == 2_000
            assert run_consumer(tools, sluice.bootstrap, topic, 2_000, group=f"group-of-{topic}") == 2_000
            assert confluent.stored_count(sluice.bootstrap, topic, 1) == 2_000
            assert sluice.metric("kafka_quota_bytes_total", client_id="limited", direction="produce") > 2_000 * 1_000
            assert sluice.metric("kafka_quota_bytes_total", direction="fetch") > 2_000 * 1_000
