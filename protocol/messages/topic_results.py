"""Responses to CreateTopics (19), DeleteTopics (20) and CreatePartitions (37): reads the results, and inserts entries.

Source: Kafka's `CreateTopicsResponse.json`, `DeleteTopicsResponse.json`, `CreatePartitionsResponse.json`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from protocol.api_keys import ApiKey, ApiVersion
from protocol.errors import BadResponseError, TooManyTopicsError
from protocol.headers import response_header_len
from protocol.limits import LENGTH_BYTES, MAX_CHANGE_TOPICS
from protocol.messages.topic_changes import NO_ID
from protocol.patches import Patches
from protocol.primitives import INT16, INT32, Buffer, Reader, string, uvarint, with_length
from protocol.steps import Pace, Steps

_ID_BYTES = 16
_CREATE_SINCE_THROTTLE, _DELETE_SINCE_THROTTLE = 2, 1
_CREATE_SINCE_MESSAGE, _DELETE_SINCE_MESSAGE = 1, 5
_CREATE_SINCE_CONFIGS, _CREATE_SINCE_ID = 5, 7
_DELETE_SINCE_ID = 6


class TopicResult(NamedTuple):
    """The result of one topic.

    Attributes:
        name: None when the response has only the topic's id.
        topic_id: NO_ID where the version has none.
        partitions: number of partitions of a new topic; -1 when the response does not have it.
        at, end: offsets of the entry and of the next one in the frame.
    """

    name: str | None
    topic_id: bytes
    error_code: int
    partitions: int
    at: int
    end: int


class TopicResults(NamedTuple):
    """A whole response: its entries in order, and the offsets of their number, their beginning and their end."""

    entries: tuple[TopicResult, ...]
    array_at: int
    entries_at: int
    entries_end: int


def topic_results_in_steps(api: ApiVersion, frame: Buffer) -> Steps[TopicResults]:
    """Read a response, in steps.

    Raises:
        BadResponseError: the frame does not match its version.
        TooManyTopicsError: it has more entries than a request may have.
    """
    header_len = response_header_len(api, frame, 0)
    if header_len is None:
        raise BadResponseError("the frame ends inside its header")
    reader = Reader(frame, LENGTH_BYTES + header_len, len(frame))
    reader.skip(4 if _has_throttle(api) else 0)
    array_at = reader.at
    count = reader.length(compact=api.flexible)
    if count > MAX_CHANGE_TOPICS:
        raise TooManyTopicsError(f"a response about {count} topics, limit {MAX_CHANGE_TOPICS}")
    entries_at = reader.at
    pace = Pace()
    entries: list[TopicResult] = []
    for _ in range(count):
        entries.append((yield from _read_entry(reader, api, pace)))
        if pace.due():
            yield
    return TopicResults(tuple(entries), array_at, entries_at, reader.at)


def insert_in_steps(
    api: ApiVersion, frame: bytes | memoryview, results: TopicResults, inserted: Sequence[tuple[int, bytes]]
) -> Steps[bytes | memoryview]:
    """Return the response with entries of Sluice's own inserted, written in steps.

    Args:
        inserted: (index, entry): the entry is placed before the response's own entry number `index`, in the given order.
    """
    patches = Patches(frame)
    patches.add(results.array_at, results.entries_at, _count(api, len(results.entries) + len(inserted)))
    pace = Pace()
    for place, entry in inserted:
        at = results.entries[place].at if place < len(results.entries) else results.entries_end
        patches.add(at, at, entry)
        if pace.due():
            yield from patches.flush()
            yield
    return (yield from patches.written())


def result_entry(api: ApiVersion, name: str | None, topic_id: bytes, error_code: int) -> bytes:
    """Return the entry of a topic that failed, without a message, as Kafka does for a general error."""
    compact = api.flexible
    named = _nullable_string(name, compact=compact)
    error = INT16.pack(error_code)
    no_message = b"\x00" if compact else INT16.pack(-1)
    tags = b"\x00" if compact else b""
    if api.key == ApiKey.DELETE_TOPICS:
        has_id, has_message = api.version >= _DELETE_SINCE_ID, api.version >= _DELETE_SINCE_MESSAGE
        return named + topic_id * has_id + error + no_message * has_message + tags
    if api.key == ApiKey.CREATE_PARTITIONS:
        return named + error + no_message + tags
    has_message = api.version >= _CREATE_SINCE_MESSAGE
    unknown = INT32.pack(-1) + INT16.pack(-1) + b"\x01" if api.version >= _CREATE_SINCE_CONFIGS else b""
    return named + NO_ID * (api.version >= _CREATE_SINCE_ID) + error + no_message * has_message + unknown + tags


def results_answer(api: ApiVersion, correlation_id: int, entries: Sequence[bytes], throttle_ms: int = 0) -> bytes:
    """Return a response that consists of these entries."""
    header = INT32.pack(correlation_id) + b"\x00" * api.response_header_version
    throttle = INT32.pack(throttle_ms) if _has_throttle(api) else b""
    return with_length(b"".join((header, throttle, _count(api, len(entries)), *entries, b"\x00" * api.flexible)))


def _has_throttle(api: ApiVersion) -> bool:
    if api.key == ApiKey.CREATE_TOPICS:
        return api.version >= _CREATE_SINCE_THROTTLE
    return api.key == ApiKey.CREATE_PARTITIONS or api.version >= _DELETE_SINCE_THROTTLE


def _read_entry(reader: Reader, api: ApiVersion, pace: Pace) -> Steps[TopicResult]:
    at = reader.at
    name = reader.nullable_string(compact=api.flexible)
    is_create, is_delete = api.key == ApiKey.CREATE_TOPICS, api.key == ApiKey.DELETE_TOPICS
    has_id = (is_create and api.version >= _CREATE_SINCE_ID) or (is_delete and api.version >= _DELETE_SINCE_ID)
    topic_id = reader.raw(_ID_BYTES) if has_id else NO_ID
    error_code = reader.int16()
    no_message_before = _CREATE_SINCE_MESSAGE if is_create else _DELETE_SINCE_MESSAGE if is_delete else 0
    if api.version >= no_message_before:
        reader.skip(max(0, reader.string_length(compact=api.flexible)))
    partitions = -1
    if is_create and api.version >= _CREATE_SINCE_CONFIGS:
        partitions = reader.int32()
        reader.int16()  # replication factor
        for _ in range(reader.length(compact=True)):
            reader.skip(max(0, reader.string_length(compact=True)))  # name
            reader.skip(max(0, reader.string_length(compact=True)))  # value
            reader.skip(3)  # read only, source, is sensitive
            yield from _skip_tags(reader, pace)
            if pace.due():
                yield
    if api.flexible:
        yield from _skip_tags(reader, pace)
    return TopicResult(name, topic_id, error_code, partitions, at, reader.at)


def _skip_tags(reader: Reader, pace: Pace) -> Steps[None]:
    for _ in range(reader.uvarint()):
        reader.uvarint()
        reader.skip(reader.uvarint())
        if pace.due():
            yield


def _count(api: ApiVersion, count: int) -> bytes:
    return uvarint(count + 1) if api.flexible else INT32.pack(count)


def _nullable_string(value: str | None, *, compact: bool) -> bytes:
    if value is None:
        return b"\x00" if compact else INT16.pack(-1)
    return string(value, compact=compact)
