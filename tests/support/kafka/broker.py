"""A real Apache Kafka: KRaft 4.3.1, or 3.9.1 with a ZooKeeper, of one or several nodes, on free loopback ports."""

import base64
import contextlib
import shutil
import socket
import struct
import time
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from tests.support.kafka import settings as files
from tests.support.kafka.jars import KRAFT, ZOOKEEPER
from tests.support.kafka.java_process import JavaProcess, Jvm, jmx_properties
from tests.support.kafka.settings import NodePorts
from tests.support.places import make_directory
from tests.support.ports import free_port_range

START_SECONDS = 120
"""A time limit against hangs: a start takes 3 s on an idle machine."""


class BrokerFailedError(Exception):
    """A broker did not start; the text ends with the last lines of its log."""


class KafkaNode:
    """One broker of a cluster; can be stopped, killed and started again with its data."""

    def __init__(self, version: str, ports: NodePorts, main: list[str], name: str, jvm: Jvm, jmx_port: int | None) -> None:
        self.ports = ports
        self.jmx_port = jmx_port
        self._jvm = jvm
        self._version = version
        self._main = main
        self._name = name
        self._process: JavaProcess | None = None

    @property
    def node_id(self) -> int:
        """Return the broker's id."""
        return self.ports.node_id

    @property
    def address(self) -> str:
        """Return the plaintext listener as host:port."""
        return f"127.0.0.1:{self.ports.client}"

    @property
    def process(self) -> JavaProcess:
        """Return the running JVM."""
        assert self._process is not None
        return self._process

    def launch(self) -> None:
        """Start the JVM without waiting until it serves."""
        self._process = JavaProcess(
            self._version,
            self._main,
            name=self._name,
            jvm=self._jvm,
            properties=() if self.jmx_port is None else jmx_properties(self.jmx_port),
        )

    def wait_until_serving(self) -> None:
        """Wait until the listener answers a request.

        Raises:
            BrokerFailedError: the JVM ended, or took more than 120 s.
        """
        deadline = time.monotonic() + START_SECONDS
        while not answers_api_versions("127.0.0.1", self.ports.client):
            if not self.process.is_running() or time.monotonic() > deadline:
                raise BrokerFailedError(f"{self._name} did not start; {self.process.log}:\n{self.process.log_tail()}")
            time.sleep(0.05)

    def start(self) -> None:
        """Start and wait until it serves."""
        self.launch()
        self.wait_until_serving()

    def stop(self) -> None:
        """Shut down in order: leadership moves to another replica first, if there is one."""
        if self._process:
            self._process.stop()

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._process:
            self._process.kill()


class KafkaCluster:
    """A cluster of one version, as a context manager; its data is removed with it, its logs stay in build/logs.

    Args:
        version: 4.3.1 (KRaft) or 3.9.1 (ZooKeeper).
        nodes: how many brokers; the first one of a KRaft cluster is also its controller.
        settings: further broker settings, for every node.
        advertised_port: the port that a single node advertises instead of its own plaintext port, or that of each named node.
        name: prefix of the names of its logs.
        jvm: settings of each broker's JVM.
        jmx: whether each broker serves JMX at its `jmx_port`.
    """

    def __init__(
        self,
        version: str = KRAFT,
        *,
        nodes: int = 1,
        settings: Mapping[str, str | int] | None = None,
        advertised_port: int | Mapping[int, int] | None = None,
        name: str = "",
        jvm: Jvm | None = None,
        jmx: bool = False,
    ) -> None:
        self.version = version
        self._jvm = jvm or Jvm()
        self._jmx = jmx
        self._name = name or f"kafka-{version}"
        self._directory = make_directory(self._name)
        self._zookeeper: JavaProcess | None = None
        self._zookeeper_port = free_port_range(1)
        first_id = files.first_node_id(version)
        self.ports = [_choose_ports(first_id + index) for index in range(nodes)]
        cluster_id = _new_cluster_id()
        extra = dict(settings or {})
        self._advertised = {first_id: advertised_port} if isinstance(advertised_port, int) else dict(advertised_port or {})
        self.nodes = {ports.node_id: self._make_node(ports, cluster_id, extra) for ports in self.ports}

    @property
    def bootstrap(self) -> str:
        """Return the plaintext addresses of all nodes."""
        return ",".join(node.address for node in self.nodes.values())

    @property
    def sasl_bootstrap(self) -> str:
        """Return the SASL_PLAINTEXT addresses of all nodes (users: settings.SASL_USERS)."""
        return ",".join(f"127.0.0.1:{node.ports.sasl}" for node in self.nodes.values())

    @property
    def zookeeper(self) -> str:
        """Return ZooKeeper's address; only a 3.9.1 cluster has one."""
        return f"127.0.0.1:{self._zookeeper_port}"

    def launch(self) -> None:
        """Start all JVMs and return at once; `wait_until_serving` does the rest."""
        if self.version == ZOOKEEPER:
            config = self._directory / "zookeeper.properties"
            files.write_properties(config, files.zookeeper_settings(self._zookeeper_port, self._directory))
            main = ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
            self._zookeeper = JavaProcess(self.version, main, name=f"{self._name}-zookeeper", jvm=Jvm(128))
        for node in self.nodes.values():
            node.launch()

    def wait_until_serving(self) -> None:
        """Wait until every node answers and knows all the others."""
        try:
            for node in self.nodes.values():
                node.wait_until_serving()
            self._wait_until_complete()
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Start all nodes and wait."""
        self.launch()
        self.wait_until_serving()

    def close(self) -> None:
        """End every process with SIGKILL and remove the data: records of tests need no orderly shutdown."""
        for node in self.nodes.values():
            node.kill()
        if self._zookeeper:
            self._zookeeper.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _make_node(self, ports: NodePorts, cluster_id: str, extra: Mapping[str, str | int]) -> KafkaNode:
        directory = self._directory / f"node-{ports.node_id}"
        directory.mkdir()
        config = directory / "server.properties"
        count = len(self.ports)
        if self.version == ZOOKEEPER:
            settings = files.zookeeper_broker_settings(ports, self._zookeeper_port, count, directory)
            main = ["kafka.Kafka", str(config)]
        else:
            settings = files.kraft_settings(ports, self.ports[0], count, directory)
            main = ["--format", cluster_id, "kafka.Kafka", str(config)]
        settings |= dict(extra)
        if ports.node_id in self._advertised:
            port = self._advertised[ports.node_id]
            settings["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{ports.sasl}"
        files.write_properties(config, settings)
        jmx_port = free_port_range(1) if self._jmx else None
        return KafkaNode(self.version, ports, main, f"{self._name}-node-{ports.node_id}", self._jvm, jmx_port)

    def _wait_until_complete(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        for node in self.nodes.values():
            while known_brokers("127.0.0.1", node.ports.client) < len(self.nodes):
                if time.monotonic() > deadline:
                    raise BrokerFailedError(f"node {node.node_id} does not see all {len(self.nodes)} brokers")
                time.sleep(0.05)


def _new_cluster_id() -> str:
    """Return an id as Kafka makes them, without a leading hyphen, which Kafka's tools would read as an option."""
    cluster_id = "-"
    while cluster_id.startswith("-"):
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return cluster_id


def _choose_ports(node_id: int) -> NodePorts:
    first = free_port_range(3)
    return NodePorts(node_id, client=first, sasl=first + 1, controller=first + 2)


def answers_api_versions(host: str, port: int) -> bool:
    """Whether a Kafka listener answers ApiVersions v0 there."""
    return len(_ask(host, port, key=18, version=0, body=b"")) > 6


def known_brokers(host: str, port: int) -> int:
    """Return how many brokers the node lists in Metadata v1 without topics; 0 when it does not answer."""
    answer = _ask(host, port, key=3, version=1, body=struct.pack(">i", 0))
    return int(struct.unpack_from(">i", answer, 4)[0]) if len(answer) >= 8 else 0


def _ask(host: str, port: int, *, key: int, version: int, body: bytes) -> bytes:
    request = struct.pack(">hhih", key, version, 1, -1) + body
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=5) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        stream = connection.makefile("rb")
        head = stream.read(4)
        return stream.read(struct.unpack(">i", head)[0]) if len(head) == 4 else b""
    return b""
