"""Every address that clients receive is one of Sluice: in each answer that carries an address, and after a leader change."""

import itertools
import re
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from tests.integration.conftest import Route
from tests.support.clients import confluent
from tests.support.clients.recorder import IDEMPOTENT, RecordingProducer, as_stored
from tests.support.clients.topics import leaders, new_topic, topic_id
from tests.support.frames.oracles import Kio
from tests.support.frames.request_corpus import Existing, request_body
from tests.support.frames.wire import WireConnection, request_frame
from tests.support.kafka.broker import KafkaCluster
from tests.support.processes.ledger import Ledger
from tests.support.processes.sluice_process import SluiceProcess

pytestmark = pytest.mark.kafka
HANG_SECONDS = 60


@pytest.fixture(scope="module")
def pair_route(kraft_pair: KafkaCluster) -> Iterator[Route]:
    """Sluice in front of a cluster of two nodes."""
    with SluiceProcess(kraft_pair.bootstrap, name="sluice-pair") as sluice:
        yield Route(sluice, kraft_pair)


def _addresses(tree: Any) -> Iterator[tuple[str, int]]:
    """Return every (host, port) at any depth of a decoded answer."""
    if isinstance(tree, dict):
        if {"host", "port"} <= tree.keys() and tree["host"]:
            yield tree["host"], tree["port"]
        for value in tree.values():
            yield from _addresses(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _addresses(value)


def _decode(api: ApiVersion, answer: bytes) -> Any:
    return Kio().decode(api.key, api.version, answer, 8 + api.response_header_version)


def _id(api: ApiVersion) -> str:
    return f"{api.name}-v{api.version}"


def _versions(key: ApiKey) -> list[ApiVersion]:
    return [api for api in API_VERSIONS.values() if api.key == key and api.splice and Kio().covers(api.key, api.version)]


@pytest.mark.parametrize(
    "api", [*_versions(ApiKey.METADATA), *_versions(ApiKey.FIND_COORDINATOR), *_versions(ApiKey.DESCRIBE_CLUSTER)], ids=_id
)
def test_answers_name_only_sluice(pair_route: Route, api: ApiVersion) -> None:
    """In each version of the three answers that list brokers, every broker has Sluice's host and its own port of Sluice, whichever port is
    asked.
    """
    body = request_body(api, Existing("absent", None))
    assert body is not None
    brokers = pair_route.kafka.nodes
    for port in (pair_route.sluice.port, *(pair_route.sluice.broker_port(node_id) for node_id in brokers)):
        reported = _reported(f"127.0.0.1:{port}", api, body)
        assert {host for host, _ in reported} == {"127.0.0.1"}
        assert {port for _, port in reported} <= {pair_route.sluice.broker_port(node_id) for node_id in brokers}
        if api.key != ApiKey.FIND_COORDINATOR:
            assert len(reported) == len(brokers)


def _reported(address: str, api: ApiVersion, body: bytes) -> list[tuple[str, int]]:
    """Repeat a request until the answer has an address: a coordinator may take a moment to be found."""
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        with WireConnection(address) as connection:
            reported = list(_addresses(_decode(api, connection.ask(request_frame(api, body)))))
        if reported:
            return reported
        assert time.monotonic() < deadline, f"no address in any answer of {api.name} v{api.version}"
        time.sleep(0.1)


def test_broker_configuration_names_no_address(pair_route: Route) -> None:
    """DescribeConfigs of a broker through Sluice returns listeners and voters without values; directly from the broker they have values."""
    ports = {str(port) for node in pair_route.kafka.nodes.values() for port in (node.ports.client, node.ports.sasl, node.ports.controller)}
    assert _ports_in_configuration(pair_route.direct, ports)
    assert not _ports_in_configuration(pair_route.bootstrap, ports)


def _ports_in_configuration(bootstrap: str, ports: set[str]) -> list[str]:
    """Return, for each version of the API, the names of broker settings whose value has one of the ports as a number."""
    found = []
    for api in API_VERSIONS.values():
        if api.key == ApiKey.DESCRIBE_CONFIGS and Kio().covers(api.key, api.version):
            body = _describe_broker(api)
            with WireConnection(bootstrap) as connection:
                [result] = _decode(api, connection.ask(request_frame(api, body)))["results"]
            found += [setting["name"] for setting in result["configs"] if ports.intersection(re.findall(r"\d+", str(setting)))]
    return found


def _describe_broker(api: ApiVersion) -> bytes:
    """Return a DescribeConfigs request for all settings of broker 1 with their synonyms."""
    if not api.flexible:
        documentation = b"\1" if api.version >= 3 else b""
        return struct.pack(">ibh1siB", 1, 4, 1, b"1", -1, 1) + documentation
    return b"\x02\x04\x021\x00\x00" + b"\x01" + b"\x01" + b"\x00"


LEADER_APIS = [
    api for api in API_VERSIONS.values() if api.splice and api.key in {ApiKey.PRODUCE, ApiKey.FETCH} and Kio().covers(api.key, api.version)
]


@pytest.mark.parametrize("api", LEADER_APIS, ids=_id)
def test_the_new_leaders_address_is_sluices(pair_route: Route, api: ApiVersion) -> None:
    """KIP-951: Produce and Fetch at a broker that is not the leader return the leader's address as one of Sluice."""
    topic = new_topic(pair_route.direct, "led-by-2", assignment=[[2]])
    body = _body_for(api, topic, pair_route)
    direct, through = (
        _decode(api, _ask(address, request_frame(api, body)))
        for address in (pair_route.kafka.nodes[1].address, f"127.0.0.1:{pair_route.sluice.broker_port(1)}")
    )
    assert list(_addresses(direct)) == [("127.0.0.1", pair_route.kafka.nodes[2].ports.client)]
    assert list(_addresses(through)) == [("127.0.0.1", pair_route.sluice.broker_port(2))]
    assert _without_endpoints(through) == _without_endpoints(direct)


def _ask(address: str, frame: bytes) -> bytes:
    with WireConnection(address) as connection:
        return connection.ask(frame)


def _without_endpoints(tree: Any) -> Any:
    return {key: value for key, value in tree.items() if key != "node_endpoints"}


def _body_for(api: ApiVersion, topic: str, route: Route) -> bytes:
    existing = Existing(topic, topic_id(route.direct, topic))
    body = request_body(api, existing, at_existing_topic=True)
    assert body is not None
    return body


def test_producer_and_consumer_follow_a_leader_change(pair_route: Route) -> None:
    """While leadership moves back and forth, a producer and then a consumer lose nothing and see only Sluice's addresses."""
    topic = new_topic(pair_route.direct, "moving", assignment=[[1, 2], [2, 1]])
    ledger = Ledger()
    producer = RecordingProducer(ledger, pair_route.bootstrap, topic, 2, {**IDEMPOTENT, "client.id": "mover"})
    admin = AdminClient({"bootstrap.servers": pair_route.direct})
    before = leaders(admin, topic)
    producer.send(itertools.repeat(200, 2_000))
    _wait_until_answered(producer, 1_000)
    pair_route.kafka.nodes[2].stop()
    producer.send(itertools.repeat(200, 2_000))
    _wait_until_answered(producer, 2_500)
    assert set(leaders(AdminClient({"bootstrap.servers": pair_route.kafka.nodes[1].address}), topic).values()) == {1}
    pair_route.kafka.nodes[2].start()
    producer.finish()
    assert set(before.values()) == {1, 2}
    stored = as_stored(confluent.read_all(pair_route.direct, topic, 2))
    assert ledger.judge(producer.acknowledged, stored).problems() == {}
    assert len(stored) == 4_000
    assert len(confluent.consume(pair_route.bootstrap, topic, 4_000, f"group-of-{topic}")) == 4_000


def _wait_until_answered(producer: RecordingProducer, count: int) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while len(producer.acknowledged) < count:
        producer.poll(0.05)
        assert time.monotonic() < deadline, f"{len(producer.acknowledged)} of {count} answers"
