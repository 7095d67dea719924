"""Requests that create or delete topics and partitions: CreateTopics (19), DeleteTopics (20), CreatePartitions (37).

They are small and rare, so they are read whole. A request is reduced to some of its topics; all its other bytes stay the same.
Source: Kafka's `CreateTopicsRequest.json`, `DeleteTopicsRequest.json`, `CreatePartitionsRequest.json`.
"""

from collections.abc import Container
from typing import NamedTuple

from protocol.api_keys import ApiKey, ApiVersion
from protocol.errors import BadRequestError, TooManyTopicsError
from protocol.limits import LENGTH_BYTES, MAX_CHANGE_PARTS, MAX_CHANGE_TOPICS
from protocol.primitives import INT16, INT32, Buffer, IncompleteError, Reader, string, uvarint, with_length
from protocol.steps import Pace, Steps

NO_ID = bytes(16)
"""The topic id of a topic that is named instead."""

_ID_BYTES = 16
_DELETE_SINCE_IDS = 6
_PROBE_VERSION = 5
_PROBE_TIMEOUT_MS = 30_000


class TopicChange(NamedTuple):
    """One topic of a request.

    Attributes:
        name: None where DeleteTopics names the topic by its id.
        topic_id: NO_ID where the topic is named.
        partitions: CreateTopics: their number, -1 for the broker's default; CreatePartitions: the new total; DeleteTopics: 0.
        replication_factor: CreateTopics; elsewhere -1.
        assignments: number of partitions with explicit replicas, -1 for null.
        at, end: offsets of the entry and of the next one in the frame.
    """

    name: str | None
    topic_id: bytes
    partitions: int
    replication_factor: int
    assignments: int
    at: int
    end: int


class TopicChanges(NamedTuple):
    """A whole request.

    Attributes:
        topics: in the order of the request.
        array_at: offset of the number of topics.
        validate_only: the broker creates nothing; always False in DeleteTopics.
    """

    topics: tuple[TopicChange, ...]
    array_at: int
    validate_only: bool


class _Parts(Pace):
    """Counts topics and their parts; refuses too many by the length of an array, before any of its elements is read."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        super().__init__()
        self._left = MAX_CHANGE_PARTS

    def claim(self, parts: int) -> int:
        """Return `parts`, the length of the next array; null has length 0.

        Raises:
            TooManyTopicsError: the sum exceeds the limit.
        """
        self._left -= max(0, parts)
        if self._left < 0:
            raise TooManyTopicsError(f"more than {MAX_CHANGE_PARTS} assignments, configurations and tagged fields in one request")
        return parts


def check_topic_count(api: ApiVersion, data: Buffer, body_at: int, end: int) -> None:
    """Check the number of topics in a request that may be incomplete; `end` is the offset of its end.

    Raises:
        BadRequestError: it does not match its version.
        TooManyTopicsError: more than MAX_CHANGE_TOPICS.
    """
    try:
        count = Reader(data, body_at, end, BadRequestError).length(compact=api.flexible)
    except IncompleteError:
        return
    if count > MAX_CHANGE_TOPICS:
        raise TooManyTopicsError(f"{count} topics in one request, limit {MAX_CHANGE_TOPICS}")


def topic_changes_in_steps(api: ApiVersion, frame: Buffer, body_at: int) -> Steps[TopicChanges]:
    """Read the request `frame` whose body begins at `body_at`, in steps.

    Raises:
        BadRequestError: the frame does not match its version.
        TooManyTopicsError: more topics than MAX_CHANGE_TOPICS, or more parts of them than MAX_CHANGE_PARTS.
    """
    check_topic_count(api, frame, body_at, len(frame))
    reader = Reader(frame, body_at, len(frame), BadRequestError)
    count = reader.length(compact=api.flexible)
    read_topic = _READERS[api.key]
    parts = _Parts()
    topics: list[TopicChange] = []
    for _ in range(count):
        topics.append((yield from read_topic(reader, api, parts)))
        if parts.due():
            yield
    reader.int32()  # timeout
    has_flag = api.key == ApiKey.CREATE_PARTITIONS or (api.key == ApiKey.CREATE_TOPICS and api.version >= 1)
    validate_only = has_flag and reader.raw(1) != b"\x00"
    yield from _skip_tags(reader, api, parts)
    return TopicChanges(tuple(topics), body_at, validate_only)


def cut_request(api: ApiVersion, frame: Buffer, changes: TopicChanges, keep: Container[int]) -> bytes:
    """Return the request with only the topics whose index is in `keep`."""
    kept = [frame[topic.at : topic.end] for place, topic in enumerate(changes.topics) if place in keep]
    count = uvarint(len(kept) + 1) if api.flexible else INT32.pack(len(kept))
    entries_end = changes.topics[-1].end
    return with_length(b"".join((frame[LENGTH_BYTES : changes.array_at], count, *kept, frame[entries_end:])))


def default_partitions_request(correlation_id: int, client_id: bytes | None, names: list[str], pace: Pace) -> Steps[bytes]:
    """Return a CreateTopics request v5 that only validates, and whose response has the default number of partitions; written in steps."""
    topics: list[bytes] = []
    for name in names:
        topics.append(string(name, compact=True) + INT32.pack(-1) + INT16.pack(-1) + b"\x01\x01\x00")  # no assignments, no configs, no tags
        if pace.due():
            yield
    header = INT16.pack(ApiKey.CREATE_TOPICS) + INT16.pack(_PROBE_VERSION) + INT32.pack(correlation_id) + client_id_field(client_id)
    validate_only = b"\x01"
    body = uvarint(len(names) + 1) + b"".join(topics) + INT32.pack(_PROBE_TIMEOUT_MS) + validate_only + b"\x00"
    return with_length(header + b"\x00" + body)


def client_id_field(client_id: bytes | None) -> bytes:
    """Return the bytes of the client id in a request header, as the client sent them."""
    return INT16.pack(-1) if client_id is None else INT16.pack(len(client_id)) + client_id


def _read_create(reader: Reader, api: ApiVersion, parts: _Parts) -> Steps[TopicChange]:
    compact, at = api.flexible, reader.at
    name = reader.string(compact=compact)
    partitions, replication_factor = reader.int32(), reader.int16()
    assignments = reader.length(compact=compact)
    for _ in range(parts.claim(assignments)):
        reader.int32()  # partition
        reader.skip(4 * max(0, reader.length(compact=compact)))  # brokers
        yield from _skip_tags(reader, api, parts)
        if parts.due():
            yield
    for _ in range(parts.claim(reader.length(compact=compact))):  # configs
        reader.skip(max(0, reader.string_length(compact=compact)))
        reader.skip(max(0, reader.string_length(compact=compact)))
        yield from _skip_tags(reader, api, parts)
        if parts.due():
            yield
    yield from _skip_tags(reader, api, parts)
    return TopicChange(name, NO_ID, partitions, replication_factor, assignments, at, reader.at)


def _read_delete(reader: Reader, api: ApiVersion, parts: _Parts) -> Steps[TopicChange]:
    at = reader.at
    if api.version < _DELETE_SINCE_IDS:
        name: str | None = reader.string(compact=api.flexible)
        return TopicChange(name, NO_ID, 0, -1, -1, at, reader.at)
    name = reader.nullable_string(compact=True)
    topic_id = reader.raw(_ID_BYTES)
    yield from _skip_tags(reader, api, parts)
    return TopicChange(name, topic_id, 0, -1, -1, at, reader.at)


def _read_grow(reader: Reader, api: ApiVersion, parts: _Parts) -> Steps[TopicChange]:
    compact, at = api.flexible, reader.at
    name, total = reader.string(compact=compact), reader.int32()
    assignments = reader.length(compact=compact)
    for _ in range(parts.claim(assignments)):
        reader.skip(4 * max(0, reader.length(compact=compact)))  # brokers
        yield from _skip_tags(reader, api, parts)
        if parts.due():
            yield
    yield from _skip_tags(reader, api, parts)
    return TopicChange(name, NO_ID, total, -1, assignments, at, reader.at)


def _skip_tags(reader: Reader, api: ApiVersion, parts: _Parts) -> Steps[None]:
    if not api.flexible:
        return
    for _ in range(parts.claim(reader.uvarint())):
        reader.uvarint()
        reader.skip(reader.uvarint())
        if parts.due():
            yield


_READERS = {
    int(ApiKey.CREATE_TOPICS): _read_create,
    int(ApiKey.DELETE_TOPICS): _read_delete,
    int(ApiKey.CREATE_PARTITIONS): _read_grow,
}
