"""Requests that create and delete topics, as a client writes them, and their parsed answers."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from protocol.api_keys import ApiKey
from protocol.request_head import read_request_head
from tests.support.frames import layout_codec
from tests.support.frames.kafka_frames import CLIENT_ID, api_of, message, request
from tests.support.frames.message_strategies import BODY_AT
from tests.support.frames.topic_change_layouts import change_layout, topics_field

QUOTA_EXCEEDED = 89


class Answer(NamedTuple):
    """An answer as a client reads it: the error of each topic in order, and the throttle time (0 where the version has none)."""

    errors: list[tuple[str | None, int]]
    throttle_ms: int


def create(
    correlation_id: int, topics: Mapping[str, int], *, version: int = 7, validate_only: bool = False, client_id: str = CLIENT_ID
) -> bytes:
    """Return a CreateTopics request: names and numbers of partitions."""
    entries = [{"Name": name, "NumPartitions": count, "ReplicationFactor": 1} for name, count in topics.items()]
    return _request(ApiKey.CREATE_TOPICS, version, correlation_id, client_id, Topics=entries, ValidateOnly=validate_only)


def create_entries(correlation_id: int, entries: Sequence[dict[str, Any]], *, version: int = 7, validate_only: bool = False) -> bytes:
    """Return a CreateTopics request with exactly these entries."""
    return _request(ApiKey.CREATE_TOPICS, version, correlation_id, CLIENT_ID, Topics=list(entries), ValidateOnly=validate_only)


def delete(correlation_id: int, names: Sequence[str] = (), *, topic_ids: Sequence[bytes] = (), version: int = 6) -> bytes:
    """Return a DeleteTopics request by name and, from version 6 on, by id."""
    entries = [{"Name": name} for name in names] + [{"Name": None, "TopicId": topic_id} for topic_id in topic_ids]
    return _request(ApiKey.DELETE_TOPICS, version, correlation_id, CLIENT_ID, Topics=entries, TopicNames=list(names))


def grow(correlation_id: int, topics: Mapping[str, int], *, version: int = 3, validate_only: bool = False) -> bytes:
    """Return a CreatePartitions request: names and new totals."""
    entries = [{"Name": name, "Count": total, "Assignments": None} for name, total in topics.items()]
    return _request(ApiKey.CREATE_PARTITIONS, version, correlation_id, CLIENT_ID, Topics=entries, ValidateOnly=validate_only)


def read_answer(key: int, version: int, frame: bytes) -> Answer:
    """Read the answer to a request of this API and version."""
    api = api_of(key, version)
    body, end = layout_codec.decode(change_layout(api, "response"), frame, BODY_AT[api.response_header_version])
    assert end == len(frame), "bytes behind the answer"
    errors = [(entry["Name"], entry["ErrorCode"]) for entry in body[topics_field(api, "response")]]
    return Answer(errors, body.get("ThrottleTimeMs", 0))


def body_of(frame: bytes) -> tuple[int, int, dict[str, Any]]:
    """Return the key, the version and the body of a request that creates or deletes topics."""
    head = read_request_head(frame, 0, len(frame) - 4)
    assert head is not None
    body, end = layout_codec.decode(change_layout(head.api, "request"), frame, head.body_at)
    assert end == len(frame), "bytes behind the request"
    return head.api.key, head.api.version, body


def names_in(frame: bytes) -> list[str]:
    """Return the names in a request that creates or deletes topics."""
    key, version, body = body_of(frame)
    entries = body[topics_field(api_of(key, version), "request")]
    return [entry if isinstance(entry, str) else entry["Name"] for entry in entries]


def _request(key: ApiKey, version: int, correlation_id: int, client_id: str, **values: Any) -> bytes:
    api = api_of(key, version)
    return request(api, message(change_layout(api, "request"), TimeoutMs=30_000, **values), correlation_id, client_id)
