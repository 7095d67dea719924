"""Sluice in front of the shared brokers, without any quota unless a test starts its own."""

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
    """The same cluster seen twice: through Sluice and directly."""

    sluice: SluiceProcess
    kafka: KafkaCluster

    @property
    def bootstrap(self) -> str:
        """Return where clients under test connect."""
        return self.sluice.bootstrap

    @property
    def direct(self) -> str:
        """Return the brokers' own addresses: what is true is read from there."""
        return self.kafka.bootstrap

    def new_topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic at the broker; returns its full name."""
        return new_topic(self.direct, name, partitions=partitions)


def _route(kafka: KafkaCluster) -> Iterator[Route]:
    with SluiceProcess(kafka.bootstrap, name=f"sluice-{kafka.version}") as sluice:
        yield Route(sluice, kafka)


@pytest.fixture(autouse=True)
def watches_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stores learn from ZooKeeper they learn by its watches, not by the look that comes every few seconds anyway."""
    monkeypatch.setattr(zookeeper_worker, "POLL_INTERVAL_S", 3_600.0)


@pytest.fixture(autouse=True)
def commands_end(request: pytest.FixtureRequest) -> Iterator[None]:
    """No command of Kafka's tools outlives its test: its client would look for its server at a port that is another test's by then."""
    yield
    for value in request.node.funcargs.values():
        assert not isinstance(value, JavaTools) or not value.running


@pytest.fixture(scope="session")
def broker_bounds() -> BrokerBounds:
    """Whom `sasl_kafka` counts together, and against which bound."""
    return BrokerBounds()


@pytest.fixture(scope="session")
def sasl_kafka(tools: JavaTools, broker_bounds: BrokerBounds) -> Iterator[KafkaCluster]:
    """A Kafka 4.3.1 where clients log in by every mechanism; alice and a user with an odd name have SCRAM credentials."""
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
    """A cluster to lose nothing in front of: a real one or the mock."""

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
    """The mock, which keeps only 5 MiB per partition, and both real brokers."""
    if request.param != "mock":
        return _real_target(request)
    cluster: MockCluster = request.getfixturevalue("mock_cluster")
    return Target(cluster.bootstrap, 3, 16, 40_000, lambda name: _mock_topic(cluster, name, 16))


@pytest.fixture(params=[KRAFT_TARGET, ZOOKEEPER_TARGET])
def real_target(request: pytest.FixtureRequest) -> Target:
    """Both real brokers, where the mock does what no broker does: it answers Produce requests with acks=0."""
    return _real_target(request)


def _real_target(request: pytest.FixtureRequest) -> Target:
    kafka: KafkaCluster = request.getfixturevalue(request.param)
    return Target(kafka.bootstrap, 1, 3, 100_000, lambda name: new_topic(kafka.bootstrap, name, partitions=3))


def _mock_topic(cluster: MockCluster, name: str, partitions: int) -> str:
    cluster.create_topic(name, partitions)
    return name
