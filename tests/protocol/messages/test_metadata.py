"""The topology is read from Metadata responses, and requests for it are written, as by two independent codecs, the oracles."""

from typing import Any

import pytest
from hypothesis import given, settings

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from protocol.errors import BadResponseError
from protocol.layout import layout_of
from protocol.messages.metadata import Broker, Partition, Topology, metadata_request, read_topology
from protocol.request_head import read_request_head
from tests.support.frames import layout_codec
from tests.support.frames.message_strategies import BODY_AT, bodies, frame_of
from tests.support.frames.oracles import ORACLES

VERSIONS = [api for api in API_VERSIONS.values() if api.key == ApiKey.METADATA]
BY_VERSION = pytest.mark.parametrize("api", VERSIONS, ids=lambda api: f"v{api.version}")


def topology_of(tree: Any) -> Topology:
    """Return the topology of a response that an oracle decoded."""
    brokers = tuple(Broker(broker["node_id"], broker["host"], broker["port"], broker.get("rack")) for broker in tree["brokers"])
    partitions = tuple(
        Partition(topic["name"], partition["partition_index"], partition["leader_id"])
        for topic in tree["topics"]
        if topic["name"] is not None
        for partition in topic["partitions"]
    )
    return Topology(tree.get("cluster_id"), tree.get("controller_id", -1), brokers, partitions)


@BY_VERSION
def test_the_oracles_read_the_same_topology(api: ApiVersion) -> None:
    """Brokers, leaders, cluster id and controller are those that the oracles read."""
    layout = layout_of(api.key, "response", api.version)

    @settings(max_examples=30, deadline=None)
    @given(body=bodies(layout))
    def check(body: dict[str, Any]) -> None:
        frame = frame_of(api, layout_codec.encode(layout, body))
        judges = [oracle for oracle in ORACLES if oracle.covers(api.key, api.version)]
        assert judges
        for oracle in judges:
            assert read_topology(api, frame) == topology_of(
                oracle.decode(api.key, api.version, frame, BODY_AT[api.response_header_version])
            )

    check()


@BY_VERSION
def test_unknown_tagged_fields_do_not_matter(api: ApiVersion) -> None:
    """The brokers of a response with unknown tagged fields are read."""
    layout = layout_of(api.key, "response", api.version)

    @settings(max_examples=20, deadline=None)
    @given(body=bodies(layout, unknown_tags=True))
    def check(body: dict[str, Any]) -> None:
        found = read_topology(api, frame_of(api, layout_codec.encode(layout, body)))
        assert [broker.node_id for broker in found.brokers] == [broker["NodeId"] for broker in body["Brokers"]]

    check()


def test_a_cut_answer_is_refused() -> None:
    """A truncated response is refused."""
    api = API_VERSIONS[ApiKey.METADATA << 16]
    layout = layout_of(api.key, "response", api.version)
    partition = {"ErrorCode": 0, "PartitionIndex": 0, "LeaderId": 1, "ReplicaNodes": [1, 2, 3], "IsrNodes": [1, 2, 3]}
    topic = {"ErrorCode": 0, "Name": "t", "Partitions": [partition]}
    body = layout_codec.encode(layout, {"Brokers": [], "Topics": [topic]})
    assert read_topology(api, frame_of(api, body)).partitions == (Partition("t", 0, 1),)
    for end in range(len(body)):
        with pytest.raises(BadResponseError):
            read_topology(api, frame_of(api, body[:end]))


@pytest.mark.parametrize("all_topics", [True, False], ids=["all", "none"])
@pytest.mark.parametrize("version", range(14))
def test_requests_are_what_clients_send(version: int, *, all_topics: bool) -> None:
    """The oracles read a request for all topics or for none, without automatic creation; v0 can ask only for all."""
    if version == 0 and not all_topics:
        with pytest.raises(ValueError, match="no Metadata request"):
            metadata_request(version, 9, "sluice", all_topics=all_topics)
        return
    frame = metadata_request(version, 9, "sluice", all_topics=all_topics)
    head = read_request_head(frame, 0, len(frame) - 4)
    assert head is not None
    assert (head.api.key, head.api.version, head.correlation_id, head.client_id) == (ApiKey.METADATA, version, 9, "sluice")
    for oracle in ORACLES:
        if oracle.covers(ApiKey.METADATA, version, response=False):
            tree = oracle.decode(ApiKey.METADATA, version, frame, head.body_at, response=False)
            assert (tree["topics"] is None) is (all_topics and version > 0)
            assert not tree["topics"]
            assert not any(
                value for name, value in tree.items() if name.startswith("include") or (name.startswith("allow") and version >= 4)
            )
