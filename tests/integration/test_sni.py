"""Unmodified Java clients that know a cluster by host names, all at one port of Sluice, in front of real Kafka with two nodes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.certificates import Authority
from tests.support.clients import confluent
from tests.support.clients.topics import leaders
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import ProducerLoad, create_topic, run_consumer, run_producer
from tests.support.places import temporary_directory
from tests.support.sluice_process import SluiceProcess

pytestmark = pytest.mark.kafka
BOOTSTRAP = "kafka.example.org"
BROKERS = {node_id: f"broker-{node_id}.kafka.example.org" for node_id in (1, 2)}
RECORDS = 2_000


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A certificate for all names, how Java trusts it, and where Java finds the names."""
    with temporary_directory("sni") as directory:
        folder = Path(directory)
        authority = Authority(folder)
        authority.issue("server", hosts=(BOOTSTRAP, "*.kafka.example.org"))
        (folder / "hosts").write_text("".join(f"127.0.0.1 {name}\n" for name in (BOOTSTRAP, *BROKERS.values())))
        trust = f"ssl.truststore.type=PEM\nssl.truststore.location={authority.file}\n"
        (folder / "client.properties").write_text(f"security.protocol=SSL\n{trust}")
        yield folder


@pytest.fixture(scope="module")
def sluice(kraft_pair: KafkaCluster, folder: Path) -> Iterator[SluiceProcess]:
    """One port with TLS, and a name for each broker."""
    listener = '[[listener]]\naddress = "127.0.0.1:1"\n[listener.tls]\ncertificate = "server.crt"\nkey = "server.key"\n'
    names = f'[listener.sni]\nbootstrap = "{BOOTSTRAP}"\nbroker = "broker-{{node_id}}.kafka.example.org"\n'
    (folder / "sni.toml").write_text(f'[upstream]\nbootstrap = "{kraft_pair.bootstrap}"\n{listener}{names}')
    with SluiceProcess(kraft_pair.bootstrap, arguments=("--config", str(folder / "sni.toml")), name="sluice-sni") as running:
        yield running


def test_java_finds_every_broker_by_its_name(kraft_pair: KafkaCluster, sluice: SluiceProcess, folder: Path) -> None:
    """Admin, producer and a consumer group work through names alone: partitions led by both brokers are written and read."""
    config, bootstrap, topic = folder / "client.properties", f"{BOOTSTRAP}:{sluice.port}", "by-name"
    with JavaTools(kraft_pair.version, 256, f"jdk.net.hosts.file={folder / 'hosts'}") as tools:
        create_topic(tools, bootstrap, topic, partitions=4, config=config)
        assert set(leaders(AdminClient({"bootstrap.servers": kraft_pair.bootstrap}), topic).values()) == set(BROKERS)
        assert run_producer(tools, bootstrap, ProducerLoad(topic, RECORDS, config=config)).records == RECORDS
        assert run_consumer(tools, bootstrap, topic, RECORDS, group="named", config=config) == RECORDS
    assert confluent.stored_count(kraft_pair.bootstrap, topic, 4) == RECORDS
    assert sluice.metric("kafka_quota_bytes_total", direction="produce") > 1_000 * RECORDS
