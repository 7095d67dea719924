"""Answers to CreateTopics (19), DeleteTopics (20) and CreatePartitions (37): what became of each topic, and topics spliced in.

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
    """What became of one topic.

    Attributes:
        name: None where the answer names the topic only by its id.
        topic_id: NO_ID where the version has none.
        partitions: what a new topic has; -1 where the answer does not say.
        at, end: where the entry begins in the frame, and where the next one does.
    """

    name: str | None
    topic_id: bytes
    error_code: int
    partitions: int
    at: int
    end: int


class TopicResults(NamedTuple):
    """A whole answer: its entries in order, where their number stands and where they begin and end."""

    entries: tuple[TopicResult, ...]
    array_at: int
    entries_at: int
    entries_end: int


def topic_results_in_steps(api: ApiVersion, frame: Buffer) -> Steps[TopicResults]:
    """Read an answer, some of its entries at a time.

    Raises:
        BadResponseError: the frame does not read as its version says.
        TooManyTopicsError: it has more entries than a request that is judged.
    """
    header_len = response_header_len(api, frame, 0)
    if header_len is None:
        raise BadResponseError("the frame ends inside its header")
    reader = Reader(frame, LENGTH_BYTES + header_len, len(frame))
    reader.skip(4 if _has_throttle(api) else 0)
    array_at = reader.at
    count = reader.length(compact=api.flexible)
    if count > MAX_CHANGE_TOPICS:
        raise TooManyTopicsError(f"an answer about {count} topics, limit {MAX_CHANGE_TOPICS}")
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
    """Return the answer with entries of our own in it, written some bytes at a time.

    Args:
        inserted: (place, entry): the entry stands before the answer's own entry number `place`, in the given order.
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
    """Write the entry of a topic that failed, as Kafka does with a general error: without a message."""
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
    """Write a whole answer of these entries."""
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
