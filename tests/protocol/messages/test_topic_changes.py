"""CreateTopics, DeleteTopics and CreatePartitions: read, reduced to some topics, refused topics inserted into answers; two oracles
compare.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from protocol.errors import BadRequestError, BadResponseError
from protocol.messages.topic_changes import NO_ID, cut_request, default_partitions_request
from protocol.messages.topic_results import result_entry, results_answer
from protocol.request_head import read_request_head
from protocol.steps import Pace, finished
from tests.support.frames import kafka_frames, layout_codec
from tests.support.frames.config_frames import body_at
from tests.support.frames.message_strategies import BODY_AT, bodies, damaged, frame_of
from tests.support.frames.oracles import ORACLES, plain
from tests.support.frames.topic_change_layouts import change_layout, topics_field
from tests.support.frames.whole_topics import insert_results, read_topic_changes, read_topic_results

KEYS = (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS)
VERSIONS = [api for api in API_VERSIONS.values() if api.key in KEYS]
BY_VERSION = pytest.mark.parametrize("api", VERSIONS, ids=lambda api: f"{api.name}-v{api.version}")
QUICK = settings(max_examples=25, deadline=None)
QUOTA_EXCEEDED = 89


def topics_of(tree: dict[str, Any]) -> tuple[str, list[Any]]:
    """Return the name and the value of the topic array in an oracle's tree."""
    return next((name, value) for name, value in tree.items() if name in ("topics", "topic_names", "responses", "results") and value)


@BY_VERSION
def test_cut_then_decode_is_decode_then_cut(api: ApiVersion) -> None:
    """For every oracle a reduced request is the same request with the kept topics only."""
    layout = change_layout(api, "request")
    judges = [oracle for oracle in ORACLES if oracle.covers(api.key, api.version, response=False)]
    assert judges

    @QUICK
    @given(body=bodies(layout), data=st.data())
    def check(body: dict[str, Any], data: st.DataObject) -> None:
        if not body[topics_field(api, "request")]:
            return
        frame = kafka_frames.request(api, layout_codec.encode(layout, body), 7)
        changes = read_topic_changes(api, frame, body_at(frame))
        keep = data.draw(st.sets(st.integers(0, len(changes.topics) - 1)))
        after = cut_request(api, frame, changes, keep)
        for oracle in judges:
            before = plain(oracle.decode(api.key, api.version, frame, body_at(frame), response=False))
            name, topics = topics_of(before)
            before[name] = [topic for place, topic in enumerate(topics) if place in keep]
            assert plain(oracle.decode(api.key, api.version, after, body_at(after), response=False)) == before, oracle.name

    check()


@BY_VERSION
def test_every_field_that_a_charge_needs_is_read(api: ApiVersion) -> None:
    """Name or id, partitions, replication factor and assignments equal those of the plain model, with or without unknown tagged fields."""
    layout = change_layout(api, "request")

    @QUICK
    @given(body=bodies(layout, unknown_tags=True))
    def check(body: dict[str, Any]) -> None:
        frame = kafka_frames.request(api, layout_codec.encode(layout, body), 7)
        changes = read_topic_changes(api, frame, body_at(frame))
        expected = []
        for topic in body[topics_field(api, "request")]:
            if isinstance(topic, str):
                expected.append((topic, NO_ID, 0, -1, -1))
                continue
            placed = topic.get("Assignments")
            count = topic.get("NumPartitions", topic.get("Count", 0))
            factor = topic.get("ReplicationFactor", -1)
            name = topic["Name"]
            expected.append((name, topic.get("TopicId", NO_ID), count, factor, -1 if placed is None else len(placed)))
        assert [topic[:5] for topic in changes.topics] == expected
        assert changes.validate_only == body.get("ValidateOnly", False)
        assert cut_request(api, frame, changes, range(len(expected))) == frame if expected else True

    check()


@BY_VERSION
def test_insert_then_decode_is_decode_then_insert(api: ApiVersion) -> None:
    """For every oracle an answer with refused topics inserted is the same answer with those entries at their positions."""
    layout = change_layout(api, "response")
    judges = [oracle for oracle in ORACLES if oracle.covers(api.key, api.version)]
    assert judges
    at = BODY_AT[api.response_header_version]

    @QUICK
    @given(body=bodies(layout), data=st.data())
    def check(body: dict[str, Any], data: st.DataObject) -> None:
        field = topics_field(api, "response")
        frame = frame_of(api, layout_codec.encode(layout, body))
        results = read_topic_results(api, frame)
        places = sorted(data.draw(st.lists(st.integers(0, len(results.entries)), max_size=3)))
        inserted = [(place, result_entry(api, f"refused-{place}", NO_ID, QUOTA_EXCEEDED)) for place in places]
        after = insert_results(api, frame, results, inserted)
        for shift, place in enumerate(places):
            body[field].insert(place + shift, refused(api, f"refused-{place}"))
        expected = frame_of(api, layout_codec.encode(layout, body))
        assert after == expected
        for oracle in judges:
            found = plain(oracle.decode(api.key, api.version, after, at))
            assert found == plain(oracle.decode(api.key, api.version, expected, at))
            named = [topic["name"] for topic in topics_of(found)[1]] if body[field] else []
            assert named == [topic["Name"] for topic in body[field]]

    check()


def refused(api: ApiVersion, name: str) -> dict[str, Any]:
    """Return the entry of a refused topic, with every field that some version has."""
    every = {"Name": name, "TopicId": NO_ID, "ErrorCode": QUOTA_EXCEEDED, "ErrorMessage": None, "NumPartitions": -1}
    every |= {"ReplicationFactor": -1, "Configs": []}
    return every | {layout_codec.UNKNOWN: []} if api.flexible else every


@BY_VERSION
def test_results_read_as_the_plain_model(api: ApiVersion) -> None:
    """Name, id, error and number of partitions of every entry equal the plain model's, with or without unknown tagged fields."""
    layout = change_layout(api, "response")

    @QUICK
    @given(body=bodies(layout, unknown_tags=True))
    def check(body: dict[str, Any]) -> None:
        frame = frame_of(api, layout_codec.encode(layout, body))
        expected = [
            (topic["Name"], topic.get("TopicId", NO_ID), topic["ErrorCode"], topic.get("NumPartitions", -1))
            for topic in body[topics_field(api, "response")]
        ]
        assert [entry[:4] for entry in read_topic_results(api, frame).entries] == expected

    check()


@BY_VERSION
def test_an_answer_of_our_own_reads_as_one(api: ApiVersion) -> None:
    """For every oracle an answer that Sluice writes has the throttle time and the names, and nothing else."""
    entries = [result_entry(api, name, NO_ID, QUOTA_EXCEEDED) for name in ("a", "b")]
    frame = results_answer(api, 7, entries, 1234)
    layout = change_layout(api, "response")
    body: dict[str, Any] = {topics_field(api, "response"): [refused(api, "a"), refused(api, "b")], "ThrottleTimeMs": 1234}
    if api.flexible:
        body[layout_codec.UNKNOWN] = []
    assert frame == frame_of(api, layout_codec.encode(layout, body))
    for oracle in ORACLES:
        if oracle.covers(api.key, api.version):
            found = plain(oracle.decode(api.key, api.version, frame, BODY_AT[api.response_header_version]))
            assert [(topic["name"], topic["error_code"]) for topic in topics_of(found)[1]] in ([("a", 89), ("b", 89)],)


@BY_VERSION
def test_damaged_requests_and_answers_raise_errors_of_their_own_alone(api: ApiVersion) -> None:
    """A damaged message raises only the error of its side, or gives a message that can be reduced and spliced."""
    asks, answers = change_layout(api, "request"), change_layout(api, "response")

    @QUICK
    @given(frame=damaged(bodies(asks).map(lambda body: kafka_frames.request(api, layout_codec.encode(asks, body), 7))))
    def check_request(frame: bytes) -> None:
        try:
            changes = read_topic_changes(api, frame, body_at(kafka_frames.request(api, b"", 7)))
        except BadRequestError:
            return
        if changes.topics:
            cut_request(api, frame, changes, {0})

    @QUICK
    @given(frame=damaged(bodies(answers).map(lambda body: frame_of(api, layout_codec.encode(answers, body)))))
    def check_answer(frame: bytes) -> None:
        try:
            results = read_topic_results(api, frame)
        except BadResponseError:
            return
        insert_results(api, frame, results, [(0, b"x")])

    check_request()
    check_answer()


def test_the_question_for_the_default_reads_as_a_request_that_makes_nothing() -> None:
    """The request for the broker's defaults is a CreateTopics v5 with validate_only and the client's own client-id."""
    frame = finished(default_partitions_request(9, b"etl", ["a", "b"], Pace()))
    api = API_VERSIONS[ApiKey.CREATE_TOPICS << 16 | 5]
    assert frame[:4] == (len(frame) - 4).to_bytes(4, "big")
    head = read_request_head(frame, 0, len(frame) - 4)
    assert head is not None
    assert (head.api, head.correlation_id, head.client_id) == (api, 9, "etl")
    for oracle in ORACLES:
        tree = plain(oracle.decode(api.key, api.version, frame, head.body_at, response=False))
        assert tree["validate_only"] is True
        named = [(topic["name"], topic["num_partitions"], topic["replication_factor"]) for topic in tree["topics"]]
        assert named == [("a", -1, -1), ("b", -1, -1)]
        assert [len(topic["assignments"]) + len(topic["configs"]) for topic in tree["topics"]] == [0, 0]
