"""Topic sizes are asked for by Metadata and read from the response, as two independent codecs, the oracles, expect."""

from typing import Any

import pytest
from hypothesis import given, settings

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from protocol.errors import BadResponseError
from protocol.layout import layout_of
from protocol.messages.topic_changes import NO_ID
from protocol.messages.topic_sizes import TopicSize, all_topic_sizes_request
from protocol.request_head import read_request_head
from tests.support.frames import layout_codec
from tests.support.frames.message_strategies import bodies, damaged, frame_of
from tests.support.frames.oracles import ORACLES
from tests.support.frames.whole_topics import read_topic_sizes, topic_sizes_request

VERSIONS = [api for api in API_VERSIONS.values() if api.key == ApiKey.METADATA]
BY_VERSION = pytest.mark.parametrize("api", VERSIONS, ids=lambda api: f"v{api.version}")
AN_ID = bytes(range(16))


@BY_VERSION
def test_sizes_are_those_of_the_plain_model(api: ApiVersion) -> None:
    """Name, id, error and number of partitions of each topic are read in order."""
    layout = layout_of(api.key, "response", api.version)

    @settings(max_examples=30, deadline=None)
    @given(body=bodies(layout, unknown_tags=True))
    def check(body: dict[str, Any]) -> None:
        frame = frame_of(api, layout_codec.encode(layout, body))
        expected = tuple(
            TopicSize(topic["Name"], topic.get("TopicId", NO_ID), topic["ErrorCode"], len(topic["Partitions"]))
            for topic in body["Topics"] or []
        )
        assert read_topic_sizes(api, frame) == expected

    check()


@BY_VERSION
def test_damaged_answers_raise_bad_response_alone(api: ApiVersion) -> None:
    """A damaged response is either read or refused with BadResponseError."""
    layout = layout_of(api.key, "response", api.version)

    @settings(max_examples=30, deadline=None)
    @given(frame=damaged(bodies(layout).map(lambda body: frame_of(api, layout_codec.encode(layout, body)))))
    def check(frame: bytes) -> None:
        try:
            read_topic_sizes(api, frame)
        except BadResponseError:
            return

    check()


@pytest.mark.parametrize("version", range(4, 14))
def test_the_question_makes_no_topic_and_names_what_was_asked(version: int) -> None:
    """Every oracle reads a request for these topics with automatic creation off, in each version from 4 on."""
    ids = [AN_ID] if version >= 12 else []
    frame = topic_sizes_request(version, 9, b"etl", ["a"], ids)
    head = read_request_head(frame, 0, len(frame) - 4)
    assert head is not None
    assert (head.correlation_id, head.client_id) == (9, "etl")
    judges = [oracle for oracle in ORACLES if oracle.covers(ApiKey.METADATA, version, response=False)]
    assert judges
    for oracle in judges:
        tree = oracle.decode(ApiKey.METADATA, version, frame, head.body_at, response=False)
        assert tree["allow_auto_topic_creation"] is False
        assert not tree.get("include_topic_authorized_operations", False)
        assert [topic["name"] for topic in tree["topics"]] == ["a", *(None for _ in ids)]
    all_topics = all_topic_sizes_request(version, 9, None)
    head = read_request_head(all_topics, 0, len(all_topics) - 4)
    assert head is not None
    assert head.client_id is None
    for oracle in judges:
        tree = oracle.decode(ApiKey.METADATA, version, all_topics, head.body_at, response=False)
        assert (tree["topics"], tree["allow_auto_topic_creation"]) == (None, False)


@pytest.mark.parametrize(("version", "ids"), [(3, []), (11, [AN_ID])])
def test_a_version_that_cannot_ask_is_refused(version: int, ids: list[bytes]) -> None:
    """Versions below 4, which would create topics, and ids in versions below 12 are refused."""
    with pytest.raises(ValueError, match="cannot ask"):
        topic_sizes_request(version, 9, None, ["a"], ids)
