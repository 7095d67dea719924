"""The differential oracle: a broker's answer through Sluice equals its direct answer, byte for byte.

Addresses are mapped back before the comparison; the throttle time is 0 on both sides. ApiVersions, which Sluice reduces, has golden frames
of its own.
"""

import json

import pytest

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion, Treatment
from protocol.messages.addresses import splice
from protocol.messages.api_versions import read_api_keys, request_v0
from tests.integration.conftest import Route
from tests.support.clients import confluent
from tests.support.clients.topics import topic_id
from tests.support.frames.request_corpus import Existing, request_body
from tests.support.frames.wire import WireConnection, request_frame
from tests.support.places import ROOT
from tests.support.ports import split_address

pytestmark = pytest.mark.kafka
ATTEMPTS = 5
UNSTABLE = {"CreateTopics v7"}
"""APIs whose answers always vary: a validated topic gets a random id."""

QUOTA_KEYS = {ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS}
"""APIs that Sluice answers itself; `test_same_quota_answers` compares the answers."""

OF_A_USER = {"DescribeConfigs-v0-1"}
"""A golden frame with a resource of type 3, which Kafka does not have and Sluice reads as a user (KIP-422)."""

CLOSED = {"Produce v0", "Produce v1", "Produce v2"}
"""Versions that Kafka 4 offers for old clients, which read the minimum only; a request of them closes the connection."""


def test_every_answer_is_the_brokers_own(route: Route) -> None:
    """Through Sluice, each API and version that the broker offers to clients is answered with the broker's own bytes."""
    topic = route.new_topic("corpus", partitions=2)
    confluent.produce(route.direct, topic, [f"value-{number}".encode() for number in range(100)])
    corpus = _corpus(route, Existing(topic, topic_id(route.direct, topic)))
    differing = {name for name, (api, frame) in corpus.items() if not _same(route, name, api, frame)}
    assert sorted(differing - UNSTABLE) == []
    assert len(corpus) > 150
    print(f"{len(corpus)} API versions compared")


def _corpus(route: Route, existing: Existing) -> dict[str, tuple[ApiVersion, bytes]]:
    """Return name -> request for every API that the broker offers and Sluice forwards."""
    golden = _golden_requests()
    corpus: dict[str, tuple[ApiVersion, bytes]] = {}
    for api in _offered(route.direct):
        body = request_body(api, existing)
        frame = request_frame(api, body) if body is not None else golden.get(api.index)
        if api.treatment not in {Treatment.REFUSE, Treatment.ANSWER} and api.key not in QUOTA_KEYS and frame:
            corpus[f"{api.name} v{api.version}"] = (api, frame)
    return corpus


def _golden_requests() -> dict[int, bytes]:
    """Return index -> golden frame, for versions too old for the oracle, without requests that create topics or get no answer."""
    cases = json.loads((ROOT / "tests/vectors/frames/requests.json").read_text())["cases"]
    harmless = [case for case in cases if case["key"] != ApiKey.CREATE_TOPICS and case.get("acks") != 0 and case["name"] not in OF_A_USER]
    return {case["key"] << 16 | case["version"]: bytes.fromhex(case["frame"]) for case in harmless}


def _offered(direct: str) -> list[ApiVersion]:
    with WireConnection(direct) as connection:
        answer = connection.ask(request_v0(1, "corpus"))
    return [
        API_VERSIONS[key << 16 | version]
        for key, first, last in read_api_keys(0, answer)
        for version in range(first, last + 1)
        if key << 16 | version in API_VERSIONS
    ]


def _same(route: Route, name: str, api: ApiVersion, frame: bytes) -> bool:
    """Whether both answers have the same bytes; answers that vary by themselves get further attempts."""
    for _ in range(ATTEMPTS):
        answer = _ask(route, api, frame, through=False)
        assert answer or name in CLOSED, f"the broker itself closes on {name}: the corpus is wrong"
        if _steady(api, answer) == _steady(api, _ask(route, api, frame, through=True)):
            return True
    return False


def _steady(api: ApiVersion, answer: bytes) -> bytes:
    """Return an answer without the free bytes of the disk, which other work changes: 8 bytes before two empty tag sections."""
    has_disk = api.key == ApiKey.DESCRIBE_LOG_DIRS and api.version >= 4
    return answer[:-10] + answer[-2:] if has_disk else answer


def _ask(route: Route, api: ApiVersion, frame: bytes, *, through: bool) -> bytes:
    """Return the answer with Sluice's addresses mapped back to the broker's; b"" when the connection closes instead."""
    try:
        with WireConnection(route.bootstrap if through else route.direct) as connection:
            answer = connection.ask(frame)
    except ConnectionError:
        return b""
    if api.key == ApiKey.DESCRIBE_CONFIGS or not (through and api.splice):
        return answer
    [node] = route.kafka.nodes.values()
    return splice(api, answer, lambda node_id, host, port: split_address(node.address) if port in route.sluice.ports else None)
