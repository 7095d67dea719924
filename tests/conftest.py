"""Fixtures and hooks of all layers: the order of a run, its times by layer, and the brokers; each broker starts once, on first use."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import hypothesis
import pytest

from proxy.demo.mock_cluster import MockCluster
from tests.support.clients.librdkafka import end_clients_left
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT, ZOOKEEPER, KafkaUnavailableError, class_path
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.zookeeper import ZookeeperServer
from tests.support.side_by_side import divide, is_worker
from tests.support.time_shares import TimeShares, rank
from tests.support.tools import in_ci

if TYPE_CHECKING:
    from tests.support.metering.object_store import Bucket

hypothesis.settings.register_profile("sluice", deadline=None)  # no test checks how fast a busy machine is
hypothesis.settings.load_profile("sluice")


def pytest_configure(config: pytest.Config) -> None:
    """Hide warnings that client libraries raise about themselves; measure times also when pytest is called without tests/run.py."""
    for pattern in ("(read|open)_text is deprecated:DeprecationWarning", ".*:DeprecationWarning:kafka"):  # kafka-python's own warning
        config.addinivalue_line("filterwarnings", f"ignore:{pattern}")
    if not any(isinstance(plugin, TimeShares) for plugin in config.pluginmanager.get_plugins()):
        config.pluginmanager.register(TimeShares())


@pytest.hookimpl(tryfirst=True)  # pytest-xdist writes the groups into the test ids in the same hook, and ignores a group that is set later
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a run of one process, order the layers from short to long; within a layer the order stays."""
    if is_worker(config):
        divide(items)
    else:
        items.sort(key=lambda item: rank(item.nodeid))


def pytest_runtest_logfinish() -> None:
    """End every librdkafka client that a test left behind."""
    end_clients_left()


def _require(version: str) -> None:
    """Skip a test that needs this Kafka when it is not available; fail in CI."""
    try:
        class_path(version)
    except KafkaUnavailableError as problem:
        reason = f"no Apache Kafka {version}: {problem}"
        if in_ci():
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


def _cluster(version: str, *, nodes: int = 1, name: str = "") -> Iterator[KafkaCluster]:
    _require(version)
    with KafkaCluster(version, nodes=nodes, name=name) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kraft_classes() -> None:
    """Skip or fail without the classes of Kafka 4.3.1, for a test that starts a broker with settings of its own."""
    _require(KRAFT)


@pytest.fixture(scope="session")
def kraft() -> Iterator[KafkaCluster]:
    """A single Kafka 4.3.1 in KRaft mode."""
    yield from _cluster(KRAFT)


@pytest.fixture(scope="session")
def zookeeper_kafka() -> Iterator[KafkaCluster]:
    """A single Kafka 3.9.1 with its ZooKeeper."""
    yield from _cluster(ZOOKEEPER)


@pytest.fixture(scope="module")
def kraft_pair() -> Iterator[KafkaCluster]:
    """Two nodes of Kafka 4.3.1; node 1 is also the controller. One pair per module: its tests may stop nodes."""
    yield from _cluster(KRAFT, nodes=2, name="kafka-pair")


@pytest.fixture(scope="session")
def tools() -> Iterator[JavaTools]:
    """Kafka's own tools, version 4.3.1."""
    _require(KRAFT)
    with JavaTools(KRAFT) as running:
        yield running


@pytest.fixture(scope="session")
def old_tools() -> Iterator[JavaTools]:
    """Kafka's own tools, version 3.9.1."""
    _require(ZOOKEEPER)
    with JavaTools(ZOOKEEPER) as running:
        yield running


@pytest.fixture
def mock_cluster() -> Iterator[MockCluster]:
    """A fresh mock cluster of three brokers."""
    with MockCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZookeeperServer]:
    """A ZooKeeper alone."""
    _require(ZOOKEEPER)
    with ZookeeperServer() as server:
        yield server


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The URL of an S3 server in this process."""
    from tests.support.metering.object_store import s3_server  # imported here, since few tests need its packages

    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, s3_endpoint: str) -> "Bucket":
    """An empty bucket of that server, which this process and its children reach."""
    from tests.support.metering.object_store import new_bucket

    return new_bucket(monkeypatch, s3_endpoint)
