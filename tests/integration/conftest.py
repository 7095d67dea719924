"""Sluice in front of the shared brokers, without a quota unless a test starts its own Sluice."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from proxy.demo.mock_cluster import MockCluster
from proxy.quota_store.zookeeper import worker as zookeeper_worker
from tests.support.clients.topics import new_topic
from tests.support.kafka import sasl_cluster
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.broker_bounds import BrokerBounds
from tests.support.kafka.java_tools import JavaTools
from tests.support.processes.sluice_process import SluiceProcess


@dataclass(frozen=True, slots=True)
class Route:
    """One cluster with two addresses: through Sluice, and direct."""

    sluice: SluiceProcess
    kafka: KafkaCluster

    @property
    def bootstrap(self) -> str:
        """Return the address through Sluice, which the clients under test use."""
        return self.sluice.bootstrap

    @property
    def direct(self) -> str:
        """Return the addresses of the brokers themselves, from which tests read the expected state."""
        return self.kafka.bootstrap

    def new_topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic at the broker; return its full name."""
        return new_topic(self.direct, name, partitions=partitions)


def _route(kafka: KafkaCluster) -> Iterator[Route]:
    with SluiceProcess(kafka.bootstrap, name=f"sluice-{kafka.version}") as sluice:
        yield Route(sluice, kafka)


@pytest.fixture(autouse=True)
def watches_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the periodic read of ZooKeeper, so that stores learn of changes from their watches only."""
    monkeypatch.setattr(zookeeper_worker, "POLL_INTERVAL_S", 3_600.0)


@pytest.fixture(autouse=True)
def commands_end(request: pytest.FixtureRequest) -> Iterator[None]:
    """Assert that every command of Kafka's tools has ended: later its client would connect to a port of another test."""
    yield
    for value in request.node.funcargs.values():
        assert not isinstance(value, JavaTools) or not value.running


@pytest.fixture(scope="session")
def broker_bounds() -> BrokerBounds:
    """Return the quota groups of `sasl_kafka` with their bounds."""
    return BrokerBounds()


@pytest.fixture(scope="session")
def sasl_kafka(tools: JavaTools, broker_bounds: BrokerBounds) -> Iterator[KafkaCluster]:
    """A Kafka 4.3.1 with every SASL mechanism; alice and a user with special characters in its name have SCRAM credentials."""
    with sasl_cluster.new_cluster(settings=broker_bounds.settings) as running:
        sasl_cluster.add_scram_users(tools, running.bootstrap, sasl_cluster.SCRAM_USER, "alice")
        yield running


@pytest.fixture(scope="session")
def kraft_route(kraft: KafkaCluster) -> Iterator[Route]:
    """Sluice in front of Kafka 4.3.1."""
    yield from _route(kraft)


@pytest.fixture(scope="session")
def zookeeper_route(zookeeper_kafka: KafkaCluster) -> Iterator[Route]:
    """Sluice in front of Kafka 3.9.1 with ZooKeeper."""
    yield from _route(zookeeper_kafka)


@pytest.fixture(params=["kraft_route", "zookeeper_route"], ids=["kafka-4.3.1", "kafka-3.9.1-zookeeper"])
def route(request: pytest.FixtureRequest) -> Route:
    """Sluice in front of each broker in turn."""
    return request.getfixturevalue(request.param)


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster for tests of lost records: a real one or the mock."""

    bootstrap: str
    brokers: int
    partitions: int
    records: int
    topic: Callable[[str], str]


KRAFT_TARGET = pytest.param("kraft", marks=pytest.mark.kafka, id="kafka-4.3.1")
ZOOKEEPER_TARGET = pytest.param("zookeeper_kafka", marks=pytest.mark.kafka, id="kafka-3.9.1-zookeeper")


TARGETS = [pytest.param("mock", marks=pytest.mark.mock), KRAFT_TARGET, ZOOKEEPER_TARGET]


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> Target:
    """The mock cluster, which keeps only 5 MiB per partition, and both real brokers."""
    if request.param != "mock":
        return _real_target(request)
    cluster: MockCluster = request.getfixturevalue("mock_cluster")
    return Target(cluster.bootstrap, 3, 16, 40_000, lambda name: _mock_topic(cluster, name, 16))


@pytest.fixture(params=[KRAFT_TARGET, ZOOKEEPER_TARGET])
def real_target(request: pytest.FixtureRequest) -> Target:
    """Both real brokers, for tests in which the mock differs from a broker: it answers Produce requests with acks=0."""
    return _real_target(request)


def _real_target(request: pytest.FixtureRequest) -> Target:
    kafka: KafkaCluster = request.getfixturevalue(request.param)
    return Target(kafka.bootstrap, 1, 3, 100_000, lambda name: new_topic(kafka.bootstrap, name, partitions=3))


def _mock_topic(cluster: MockCluster, name: str, partitions: int) -> str:
    cluster.create_topic(name, partitions)
    return name
