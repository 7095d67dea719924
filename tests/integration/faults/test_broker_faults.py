"""Rows A1, A2, A4 and A8 with brokers that store records: mock brokers drop connections; real ones are killed, stopped and restarted."""

import itertools
import signal
import time
from collections.abc import Iterator

import pytest

from protocol.api_keys import API_VERSIONS, ApiKey
from proxy.demo.mock_cluster import DISCONNECT, MockCluster
from tests.integration.conftest import Route
from tests.support.clients import confluent
from tests.support.clients.recorder import IDEMPOTENT, RecordingProducer, as_stored
from tests.support.clients.topics import new_topic
from tests.support.frames.wire import WireConnection, produce_frame, request_frame
from tests.support.kafka.broker import KafkaCluster
from tests.support.patience import stop_process
from tests.support.processes.ledger import Ledger
from tests.support.processes.sluice_process import SluiceProcess

pytestmark = pytest.mark.long

HANG_SECONDS = 60
QUICK: confluent.Settings = {**IDEMPOTENT, "reconnect.backoff.max.ms": 500, "topic.metadata.refresh.fast.interval.ms": 100}
BROKERS_FAULT = {"broker_closed", "broker_reset", "upstream_unreachable"}
PRODUCE = 0
ASK = request_frame(API_VERSIONS[ApiKey.API_VERSIONS << 16], b"")


@pytest.fixture(scope="module")
def pair_route(kraft_pair: KafkaCluster) -> Iterator[Route]:
    """Sluice in front of a cluster of two nodes."""
    with SluiceProcess(kraft_pair.bootstrap, name="sluice-broker-faults") as sluice:
        yield Route(sluice, kraft_pair)


def _until_answered(producer: RecordingProducer, count: int) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while len(producer.acknowledged) < count:
        producer.poll(0.05)
        assert time.monotonic() < deadline, f"{len(producer.acknowledged)} of {count} answers"


def _send(producer: RecordingProducer, count: int) -> None:
    producer.send(itertools.repeat(200, count))


def _closes(sluice: SluiceProcess) -> set[str]:
    """Return the close reasons of connections, except those closed by clients."""
    return {event["reason"] for event in sluice.events("connection_closed")} - {"client_closed", "client_reset", "drain"}


# --- the mock cluster


@pytest.mark.mock
def test_a01_a04_a_broker_of_the_mock_is_down_for_a_while(mock_cluster: MockCluster) -> None:
    """While a mock broker is down its connections close and others continue, and afterwards every acknowledged record is stored."""
    mock_cluster.create_topic("down", 3)
    ledger = Ledger()
    with SluiceProcess(mock_cluster.bootstrap, name="sluice-mock-down") as sluice:
        producer = RecordingProducer(ledger, sluice.bootstrap, "down", 3, QUICK)
        _send(producer, 3_000)
        _until_answered(producer, 3_000)
        mock_cluster.set_down(1)
        _send(producer, 3_000)
        _until_answered(producer, 5_000)  # other brokers lead two of three partitions
        assert len(producer.acknowledged) == 5_000
        mock_cluster.set_up(1)
        producer.finish()
        stored = as_stored(confluent.read_all(mock_cluster.bootstrap, "down", 3))
        verdict = ledger.judge(producer.acknowledged, stored)
        assert len(producer.acknowledged) == 6_000
        assert (verdict.lost, verdict.corrupt, verdict.foreign) == ([], [], [])
        assert _closes(sluice) <= BROKERS_FAULT


@pytest.mark.mock
def test_a01_a_broker_of_the_mock_drops_connections_instead_of_answering(mock_cluster: MockCluster) -> None:
    """Each drop closes the client's connection, and Sluice repeats no request: only records that the client sent twice are stored twice."""
    mock_cluster.create_topic("drops", 1)
    ledger = Ledger()
    with SluiceProcess(mock_cluster.bootstrap, name="sluice-mock-drops") as sluice:
        producer = RecordingProducer(ledger, sluice.bootstrap, "drops", 1, QUICK)
        mock_cluster.push_request_errors(PRODUCE, [DISCONNECT] * 5)
        _send(producer, 2_000)
        producer.finish()
        stored = as_stored(confluent.read_all(mock_cluster.bootstrap, "drops", 1))
        verdict = ledger.judge(producer.acknowledged, stored)
        assert len(producer.acknowledged) == 2_000
        assert (verdict.lost, verdict.corrupt, verdict.out_of_order) == ([], [], [])
        assert len([event for event in sluice.events("connection_closed") if event["reason"] in BROKERS_FAULT]) >= 5


# --- real brokers


@pytest.mark.kafka
def test_a01_a04_the_leader_is_killed_and_comes_back(pair_route: Route) -> None:
    """When the leader is killed and restarted during a run, the other broker takes over, and no record is lost or duplicated."""
    topic = new_topic(pair_route.direct, "killed", assignment=[[2, 1], [1, 2]])
    ledger = Ledger()
    producer = RecordingProducer(ledger, pair_route.bootstrap, topic, 2, QUICK)
    _send(producer, 3_000)
    _until_answered(producer, 1_000)
    pair_route.kafka.nodes[2].kill()
    _send(producer, 3_000)
    _until_answered(producer, 6_000)
    pair_route.kafka.nodes[2].start()
    producer.finish()
    _nothing_is_lost(pair_route, topic, ledger, producer)
    with WireConnection(f"127.0.0.1:{pair_route.sluice.broker_port(2)}") as again:
        assert again.ask(ASK)
    assert _closes(pair_route.sluice) <= BROKERS_FAULT


@pytest.mark.kafka
def test_a02_a_stopped_broker_stops_only_its_own_clients(pair_route: Route) -> None:
    """While a broker is stopped by SIGSTOP the other broker's clients get answers, and waiting requests are answered once after SIGCONT."""
    led = [new_topic(pair_route.direct, f"stopped-{node_id}", assignment=[[node_id]]) for node_id in (1, 2)]
    ledgers = [Ledger(), Ledger()]
    here, there = (RecordingProducer(ledger, pair_route.bootstrap, topic, 1, QUICK) for ledger, topic in zip(ledgers, led, strict=True))
    for producer in (here, there):
        _send(producer, 500)
        _until_answered(producer, 500)
    before = _closes(pair_route.sluice)
    stopped = pair_route.kafka.nodes[2].process
    stop_process(stopped.pid)
    try:
        for producer in (there, here):
            _send(producer, 500)
        _until_answered(here, 1_000)
        there.poll(0.5)
        assert len(there.acknowledged) == 500
    finally:
        stopped.signal(signal.SIGCONT)
    for topic, ledger, producer in zip(led, ledgers, (here, there), strict=True):
        producer.finish()
        _nothing_is_lost(pair_route, topic, ledger, producer, partitions=1)
    assert _closes(pair_route.sluice) == before, "no client was disconnected"


@pytest.mark.kafka
def test_a04_rolling_restart(pair_route: Route) -> None:
    """While each broker in turn shuts down and restarts under a producer, no record is lost, duplicated or reordered."""
    topic = new_topic(pair_route.direct, "rolling", assignment=[[1, 2], [2, 1]])
    ledger = Ledger()
    producer = RecordingProducer(ledger, pair_route.bootstrap, topic, 2, QUICK)
    for node in pair_route.kafka.nodes.values():
        answered = len(producer.acknowledged)
        _send(producer, 2_000)
        _until_answered(producer, answered + 500)
        node.stop()
        _send(producer, 2_000)
        producer.poll(0.2)
        node.start()
    producer.finish()
    assert len(producer.acknowledged) == 8_000
    _nothing_is_lost(pair_route, topic, ledger, producer)


def _nothing_is_lost(route: Route, topic: str, ledger: Ledger, producer: RecordingProducer, partitions: int = 2) -> None:
    stored = as_stored(confluent.read_all(route.direct, topic, partitions))
    assert ledger.judge(producer.acknowledged, stored).problems() == {}
    assert len(stored) == len(producer.acknowledged)


@pytest.mark.kafka
def test_a08_kafka_closes_to_signal_an_error_with_acks_0(pair_route: Route) -> None:
    """A Produce with acks=0 for a partition that the broker does not have closes the client's connection, as it does without Sluice."""
    for address in (pair_route.kafka.nodes[1].address, f"127.0.0.1:{pair_route.sluice.broker_port(1)}"):
        with WireConnection(address) as connection:
            connection.send(produce_frame("no-such-topic", b"value", acks=0))
            with pytest.raises(ConnectionError):
                connection.ask(ASK)
