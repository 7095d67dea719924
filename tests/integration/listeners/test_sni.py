"""Unmodified clients reach each broker by its host name, all at one port of Sluice, in front of a real Kafka with two nodes.

Java has a setting for a hosts file. librdkafka, aiokafka and kafka-python use the system's resolver, so each runs in a mount namespace with
its own /etc/hosts; the tests are skipped where no mount namespace can be created.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.clients import confluent
from tests.support.clients.topics import new_topic, wait_for_leaders
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import ProducerLoad, create_topic, run_consumer, run_producer
from tests.support.places import temporary_directory
from tests.support.processes.sluice_process import SluiceProcess
from tests.support.tls.certificates import Authority
from tests.support.tls.known_hosts import NoNamespacesError, command_that_knows

pytestmark = pytest.mark.kafka
BOOTSTRAP = "kafka.example.org"
BROKERS = {node_id: f"broker-{node_id}.kafka.example.org" for node_id in (1, 2)}
RECORDS = 2_000


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Return a folder with a certificate for all names, Java's trust store and Java's hosts file."""
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
    """One port with TLS and a host name for each broker."""
    listener = '[[listener]]\naddress = "127.0.0.1:1"\n[listener.tls]\ncertificate = "server.crt"\nkey = "server.key"\n'
    names = f'[listener.sni]\nbootstrap = "{BOOTSTRAP}"\nbroker = "broker-{{node_id}}.kafka.example.org"\n'
    (folder / "sni.toml").write_text(f'[upstream]\nbootstrap = "{kraft_pair.bootstrap}"\n{listener}{names}')
    with SluiceProcess(kraft_pair.bootstrap, arguments=("--config", str(folder / "sni.toml")), name="sluice-sni") as running:
        yield running


def test_java_finds_every_broker_by_its_name(kraft_pair: KafkaCluster, sluice: SluiceProcess, folder: Path) -> None:
    """Java's admin client, producer and consumer group reach the partitions of both brokers by host name."""
    config, bootstrap, topic = folder / "client.properties", f"{BOOTSTRAP}:{sluice.port}", "by-name"
    with JavaTools(kraft_pair.version, 256, f"jdk.net.hosts.file={folder / 'hosts'}") as tools:
        create_topic(tools, bootstrap, topic, partitions=4, config=config)
        assert set(wait_for_leaders(AdminClient({"bootstrap.servers": kraft_pair.bootstrap}), topic, 4).values()) == set(BROKERS)
        assert run_producer(tools, bootstrap, ProducerLoad(topic, RECORDS, config=config)).records == RECORDS
        assert run_consumer(tools, bootstrap, topic, RECORDS, group="named", config=config) == RECORDS
    assert confluent.stored_count(kraft_pair.bootstrap, topic, 4) == RECORDS
    assert sluice.metric("kafka_quota_bytes_total", direction="produce") > 1_000 * RECORDS


@pytest.mark.parametrize("client", ["confluent", "aio", "kafka_python"])
def test_other_clients_find_every_broker_by_its_name(client: str, kraft_pair: KafkaCluster, sluice: SluiceProcess, folder: Path) -> None:
    """Each client's producer and consumer group reach the partitions of both brokers by host name."""
    topic = new_topic(kraft_pair.bootstrap, f"by-name-{client}", partitions=4)
    assert set(wait_for_leaders(AdminClient({"bootstrap.servers": kraft_pair.bootstrap}), topic, 4).values()) == set(BROKERS)
    arguments = [client, f"{BOOTSTRAP}:{sluice.port}", topic, str(RECORDS), str(folder / "authority.pem")]
    names = dict.fromkeys((BOOTSTRAP, *BROKERS.values()), "127.0.0.1")
    try:
        command = command_that_knows(folder / "etc-hosts", names, [sys.executable, "-m", "tests.support.clients.by_tls", *arguments])
    except NoNamespacesError as problem:
        pytest.skip(str(problem))
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert (done.stdout.split(), done.returncode) == ([str(RECORDS), str(RECORDS)], 0), done.stderr[-2_000:]
    assert confluent.stored_count(kraft_pair.bootstrap, topic, 4) == RECORDS
    doors = {event["broker"] for event in sluice.events("connection_closed") if event["requests"]}
    assert doors >= set(kraft_pair.bootstrap.split(","))
