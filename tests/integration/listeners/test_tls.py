"""Unmodified clients with TLS, through Sluice, to a real Kafka: users from certificates, and TLS to the broker as well."""

import asyncio
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from pipeline.spark.stream.topic_source import TopicReader
from proxy.base.host_port import read_host_port
from proxy.config.kafka_client import kafka_client_settings
from proxy.config.model import Upstream
from proxy.config.sections.tls import UpstreamTls
from tests.support.clients import aio, confluent, kafka_python
from tests.support.clients.topic_source import read_all
from tests.support.clients.topics import new_topic
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.settings import write_properties
from tests.support.kafka.tool_calls import ProducerLoad, run_producer
from tests.support.places import temporary_directory
from tests.support.processes.sluice_process import SluiceProcess, write_quotas
from tests.support.tls.certificates import Authority, Files

pytestmark = [pytest.mark.kafka, pytest.mark.long]
HOST, NAME = "127.0.0.1", "kafka.example.org"
VALUES = [b"x" * 1_000] * 600


@dataclass(frozen=True, slots=True)
class Credentials:
    """A certificate authority, Sluice's certificate and alice's."""

    folder: Path
    authority: Authority
    server: Files
    alice: Files

    def pem(self, files: Files) -> Path:
        """Return a certificate and its key in one file, the form that Java reads."""
        path = files.key.with_suffix(".pem")
        path.touch(mode=0o600)
        path.write_bytes(files.key.read_bytes() + files.certificate.read_bytes())
        return path

    def java(self, files: Files) -> dict[str, str]:
        """Return the properties of a Java client or broker."""
        stores = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.pem(files))}
        return {**stores, "ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority.file)}

    def of(self, client: ModuleType) -> Mapping[str, Any]:
        """Return the settings of alice's client."""
        ca, own = str(self.authority.file), self.alice
        if client is confluent:
            keys = {"ssl.certificate.location": str(own.certificate), "ssl.key.location": str(own.key)}
            return {"security.protocol": "ssl", "ssl.ca.location": ca, **keys}
        context = ssl.create_default_context(cafile=ca)
        context.load_cert_chain(own.certificate, own.key)
        return {"security_protocol": "SSL", "ssl_context": context}


@pytest.fixture(scope="module")
def credentials() -> Iterator[Credentials]:
    """Return certificates of one authority."""
    with temporary_directory("certificates") as directory:
        folder = Path(directory)
        authority = Authority(folder)
        yield Credentials(folder, authority, authority.issue("server", hosts=(HOST, NAME)), authority.issue("alice"))


def sluice_in_front_of(upstream: str, credentials: Credentials, *, name: str, upstream_tls: str = "") -> SluiceProcess:
    """Return a Sluice with TLS and client certificates; alice may produce 100 kB/s."""
    config = credentials.folder / f"{name}.toml"
    listener = '[[listener]]\naddress = "127.0.0.1:1"\n[listener.tls]\ncertificate = "server.crt"\nkey = "server.key"\n'
    listener += 'client_auth = "required"\nclient_ca = "authority.pem"\nprincipal_mapping_rules = "RULE:^CN=(.*)$/$1/"\n'
    config.write_text(f'[upstream]\nbootstrap = "{upstream}"\n{upstream_tls}\n{listener}')
    quotas = write_quotas(credentials.folder / f"{name}-quotas.toml", [{"user": "alice", "producer_byte_rate": 100_000}])
    return SluiceProcess(upstream, quotas=quotas, enforcement="mute", arguments=("--config", str(config)), name=f"sluice-{name}")


@pytest.fixture(scope="module")
def sluice(kraft: KafkaCluster, credentials: Credentials) -> Iterator[SluiceProcess]:
    """TLS to clients, plaintext to the broker."""
    with sluice_in_front_of(kraft.bootstrap, credentials, name="tls") as running:
        yield running


def alices_groups(sluice: SluiceProcess) -> list[dict[str, Any]]:
    """Return the produce groups of alice; every client of these tests is alice."""
    groups = [group for group in sluice.quotas()["groups"] if group["quota_type"] == "Produce"]
    assert {group["tags"]["user"] for group in groups} == {"alice"}, groups
    return groups


@pytest.mark.parametrize("client", [pytest.param(one, id=one.__name__.rpartition(".")[2]) for one in (confluent, aio, kafka_python)])
def test_clients_by_tls_are_served_as_the_user_of_their_certificate(
    kraft: KafkaCluster, sluice: SluiceProcess, credentials: Credentials, client: ModuleType
) -> None:
    """Clients with alice's certificate produce and consume, and only alice's quota applies to them."""
    topic = new_topic(kraft.bootstrap, f"tls-{client.__name__.rpartition('.')[2]}")
    settings = credentials.of(client)
    assert client.produce(sluice.bootstrap, topic, VALUES, settings=settings) == len(VALUES)
    assert client.consume(sluice.bootstrap, topic, len(VALUES), f"group-of-{topic}", settings=settings) == VALUES
    assert confluent.stored_count(kraft.bootstrap, topic, 1) == len(VALUES)
    assert {group["bound"] for group in alices_groups(sluice)} == {100_000}


def test_java_by_tls_is_held_to_alices_quota(
    kraft: KafkaCluster, sluice: SluiceProcess, credentials: Credentials, tools: JavaTools
) -> None:
    """Kafka's performance tool with alice's certificate is throttled, and its own metrics show the throttle time."""
    topic = new_topic(kraft.bootstrap, "tls-java")
    properties = {"security.protocol": "SSL", **credentials.java(credentials.alice)}
    run = run_producer(tools, sluice.bootstrap, ProducerLoad(topic, 2_500, 1_000, properties=properties))
    assert run.records == 2_500
    assert run.metric("producer-metrics:produce-throttle-time-max") > 0
    assert any(group["verdicts"] for group in alices_groups(sluice))


def test_tls_on_both_sides(credentials: Credentials) -> None:
    """Records pass through Sluice to a broker that requires client certificates; Sluice's own client writes there, and its source reads."""
    own = credentials.authority.issue("sluice")
    protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SSL"
    settings = {"listener.security.protocol.map": protocols, "ssl.client.auth": "required", **credentials.java(credentials.server)}
    upstream_tls = f'[upstream.tls]\nca = "authority.pem"\ncertificate = "{own.certificate.name}"\nkey = "{own.key.name}"'
    with KafkaCluster(settings=settings, name="kafka-tls") as kafka:
        topic = new_topic(kafka.bootstrap, "tls-both")
        with sluice_in_front_of(kafka.sasl_bootstrap, credentials, name="tls-both", upstream_tls=upstream_tls) as sluice:
            client = credentials.of(confluent)
            values = [bytes([number % 251]) * 10_000 for number in range(60)]
            assert confluent.produce(sluice.bootstrap, topic, values, settings=client) == len(values)
            assert confluent.consume(sluice.bootstrap, topic, len(values), "group-both", settings=client) == values
        assert confluent.stored_count(kafka.bootstrap, topic, 1) == len(values)
        properties = credentials.folder / "source.properties"
        write_properties(properties, {"security.protocol": "SSL", **credentials.java(credentials.alice)})
        assert read_all(TopicReader(kafka.sasl_bootstrap, topic, str(properties), messages_max=25)) == [
            values[:25],
            values[25:50],
            values[50:],
        ]
        for number, expected in enumerate((None, NAME)):
            tls = UpstreamTls(ca=credentials.authority.file, certificate=own.certificate, key=own.key, server_name=expected)
            assert asyncio.run(offset_of_our_own(kafka, tls, topic)) == len(values) + number


async def offset_of_our_own(kafka: KafkaCluster, tls: UpstreamTls, topic: str) -> int:
    """Send one record with the Kafka client that Sluice uses for its internal topics; return its offset."""
    upstream = Upstream(bootstrap=(read_host_port(kafka.sasl_bootstrap),), tls=tls)
    async with AIOKafkaProducer(**kafka_client_settings(upstream)) as producer:
        return int((await producer.send_and_wait(topic, b"x")).offset)
