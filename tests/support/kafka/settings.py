"""The properties files of test brokers: small, with a quick start, and one replica of internal topics."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.kafka.jars import ZOOKEEPER

SASL_USERS = {"alice": "alice-secret", "bob": "bob-secret", "admin": "admin-secret"}
Settings = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class NodePorts:
    """The ports of one node."""

    node_id: int
    client: int
    sasl: int
    controller: int


def common_settings(ports: NodePorts, nodes: int, directory: Path) -> dict[str, str | int]:
    """Return the settings that brokers of both kinds share."""
    replication = min(nodes, 3)
    users = " ".join(f'user_{name}="{password}"' for name, password in SASL_USERS.items())
    return {
        "log.dirs": str(directory / "data"),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        "auto.create.topics.enable": "false",
        "default.replication.factor": replication,
        "offsets.topic.replication.factor": replication,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": replication,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "group.initial.rebalance.delay.ms": 0,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "background.threads": 2,
        "log.cleaner.enable": "false",
        "quota.window.num": 11,
        "quota.window.size.seconds": 1,
    }


def kraft_settings(ports: NodePorts, voter: NodePorts, nodes: int, directory: Path) -> dict[str, str | int]:
    """Return the settings of a KRaft node; `voter` is the one node that is also the controller."""
    is_voter = ports == voter
    listeners = f"PLAINTEXT://127.0.0.1:{ports.client},SASL_PLAINTEXT://127.0.0.1:{ports.sasl}"
    return common_settings(ports, nodes, directory) | {
        "process.roles": "broker,controller" if is_voter else "broker",
        "node.id": ports.node_id,
        "controller.quorum.voters": f"{voter.node_id}@127.0.0.1:{voter.controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": listeners + (f",CONTROLLER://127.0.0.1:{ports.controller}" if is_voter else ""),
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "group.consumer.min.heartbeat.interval.ms": 300,
        "group.consumer.heartbeat.interval.ms": 300,
        "group.share.min.heartbeat.interval.ms": 300,
        "group.share.heartbeat.interval.ms": 300,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 3_000,
    }


def zookeeper_broker_settings(ports: NodePorts, zookeeper_port: int, nodes: int, directory: Path) -> dict[str, str | int]:
    """Return the settings of a 3.9 broker that keeps its metadata in ZooKeeper."""
    listeners = f"PLAINTEXT://127.0.0.1:{ports.client},SASL_PLAINTEXT://127.0.0.1:{ports.sasl}"
    return common_settings(ports, nodes, directory) | {
        "broker.id": ports.node_id,
        "zookeeper.connect": f"127.0.0.1:{zookeeper_port}",
        "zookeeper.connection.timeout.ms": 18_000,
        "zookeeper.session.timeout.ms": 6_000,
        "listeners": listeners,
        "advertised.listeners": listeners,
    }


def zookeeper_settings(port: int, directory: Path) -> dict[str, str | int]:
    """Return the settings of a single ZooKeeper."""
    return {
        "dataDir": str(directory / "zookeeper"),
        "clientPort": port,
        "clientPortAddress": "127.0.0.1",
        "admin.enableServer": "false",
        "tickTime": 1_000,
        "maxClientCnxns": 0,
    }


def secure_zookeeper_settings(port: int, certificate: Path, authority: Path) -> dict[str, str | int]:
    """Return the settings of a ZooKeeper with TLS on a second port, which requires client certificates."""
    return {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": port,
        "secureClientPortAddress": "127.0.0.1",
        "ssl.keyStore.location": str(certificate),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(authority),
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need",
    }


SASL_ZOOKEEPER: Final = {
    "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    "sessionRequireClientSASLAuth": "true",
}


def zookeeper_users(users: Mapping[str, str]) -> str:
    """Return a JAAS file with the users of DIGEST-MD5."""
    named = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    return f"Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required {named}; }};\n"


def write_properties(path: Path, settings: Settings) -> None:
    """Write a Java properties file."""
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


def first_node_id(version: str) -> int:
    """Return the id of the first node: 0 with ZooKeeper and 1 with KRaft, so that tests cover both."""
    return 0 if version == ZOOKEEPER else 1
