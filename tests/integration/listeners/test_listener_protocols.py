"""One Sluice with a listener of each security protocol, in front of two listeners of a real broker."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import confluent
from tests.support.clients.topics import new_topic
from tests.support.kafka import sasl_cluster as sasl
from tests.support.kafka.broker import KafkaCluster
from tests.support.patience import until_true
from tests.support.places import temporary_directory
from tests.support.ports import free_bootstrap_port
from tests.support.processes.sluice_process import SluiceProcess, write_quotas
from tests.support.tls.certificates import Authority

pytestmark = pytest.mark.kafka
HOST = "127.0.0.1"
CLIENT_ID = "everywhere"
VALUES = [b"x" * 1_000] * 50
USERS = {"PLAINTEXT": "ANONYMOUS", "SSL": "ANONYMOUS", "SASL_PLAINTEXT": "alice", "SASL_SSL": "alice"}


@dataclass(frozen=True, slots=True)
class ProxyFixture:
    """Sluice, and the address of each protocol's listener."""

    sluice: SluiceProcess
    ports: dict[str, int]
    authority: Path

    def settings(self, protocol: str) -> dict[str, Any]:
        """Return the settings of a client of this protocol."""
        login = sasl.confluent_login("SCRAM-SHA-256", "alice") if protocol.startswith("SASL") else {}
        return {**login, "security.protocol": protocol.lower(), "ssl.ca.location": str(self.authority), "client.id": CLIENT_ID}


@pytest.fixture(scope="module")
def proxy(sasl_kafka: KafkaCluster) -> Iterator[ProxyFixture]:
    """Four listeners: those with SASL connect to the broker's SASL listener, the others to its plain one, which `[upstream]` names."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(temporary_directory("protocols")))
        authority = Authority(folder)
        authority.issue("server", hosts=(HOST,))
        ports = {protocol: free_bootstrap_port() for protocol in USERS}
        config = folder / "sluice.toml"
        config.write_text(
            f'[upstream]\nbootstrap = "{sasl_kafka.bootstrap}"\nprotocol = "PLAINTEXT"\n'
            + "".join(listener(protocol, port, sasl_kafka.sasl_bootstrap) for protocol, port in ports.items())
        )
        quotas = write_quotas(folder / "quotas.toml", [{"client-id": CLIENT_ID, "producer_byte_rate": 50_000_000}])
        process = SluiceProcess("", port=ports["PLAINTEXT"], config=config, quotas=quotas, name="sluice-protocols")
        sluice = stack.enter_context(process)
        until_true(lambda: len(sluice.events("broker_port_bound")) >= 2, "the plain ports of the broker")
        yield ProxyFixture(sluice, ports, authority.file)


def listener(protocol: str, port: int, sasl_bootstrap: str) -> str:
    """Return the TOML tables of one listener."""
    text = f'[[listener]]\nname = "{protocol}"\naddress = "{HOST}:{port}"\nprotocol = "{protocol}"\n'
    if protocol.endswith("SSL"):
        text += 'tls = { certificate = "server.crt", key = "server.key" }\n'
    if protocol.startswith("SASL"):
        text += f'upstream = {{ bootstrap = "{sasl_bootstrap}", protocol = "SASL_PLAINTEXT" }}\n'
    return text


def recorded(sluice: SluiceProcess) -> dict[tuple[str, str], float]:
    groups = [group for group in sluice.quotas()["groups"] if group["quota_type"] == "Produce"]
    assert len({group["broker"] for group in groups}) <= 1  # all four belong to one broker
    return {(group["tags"]["user"], group["tags"]["client-id"]): group["recorded_total"] for group in groups}


@pytest.mark.parametrize("protocol", USERS)
def test_clients_of_every_protocol(protocol: str, proxy: ProxyFixture, sasl_kafka: KafkaCluster) -> None:
    """Clients of every protocol produce and consume, and all of their bytes count for one client-id at one broker."""
    topic = new_topic(sasl_kafka.bootstrap, f"protocol-{protocol.lower().replace('_', '-')}")
    bootstrap, settings = f"{HOST}:{proxy.ports[protocol]}", proxy.settings(protocol)
    before = recorded(proxy.sluice).get(("", CLIENT_ID), 0)
    user = {"direction": "produce", "user": USERS[protocol], "client_id": CLIENT_ID}
    of_user = proxy.sluice.metric("kafka_quota_bytes_total", **user)
    assert confluent.produce(bootstrap, topic, VALUES, settings=settings) == len(VALUES)
    assert confluent.consume(bootstrap, topic, len(VALUES), f"group-{protocol}", settings=settings) == VALUES
    assert recorded(proxy.sluice)["", CLIENT_ID] - before >= len(VALUES) * len(VALUES[0])
    assert confluent.stored_count(sasl_kafka.bootstrap, topic, 1) == len(VALUES)
    assert proxy.sluice.metric("kafka_quota_bytes_total", **user) - of_user >= len(VALUES) * len(VALUES[0])
