"""Requests of a client and answers of a broker, by kind and size; each is built once, and copies differ in the correlation id only."""

import functools
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from protocol.api_keys import MAX_VERSIONS, ApiKey
from tests.support.frames import kafka_frames, sasl_frames
from tests.support.frames.layout_codec import uvarint
from tests.support.frames.long_frames import PLACED, TOPIC, configs, coordinators, create_of, grow_of

ILLEGAL_SASL_STATE = 34
PRODUCE_VERSIONS = (3, 7, 9, 11)
FETCH_VERSIONS = (4, 11, 12, 16)
RANGES = [(int(key), 0, highest) for key, highest in MAX_VERSIONS.items()]
ASKED = (
    (ApiKey.METADATA, 9),
    (ApiKey.API_VERSIONS, 3),
    (ApiKey.JOIN_GROUP, 0),
    (ApiKey.HEARTBEAT, 0),
    (ApiKey.FIND_COORDINATOR, 0),
    (ApiKey.SASL_HANDSHAKE, 1),
    (ApiKey.OFFSET_FETCH, 0),
    (ApiKey.LIST_OFFSETS, 1),
)
"""APIs other than Produce and Fetch; a request of them takes time of a broker's threads."""


class Head(NamedTuple):
    """The head of a request, as a broker reads it."""

    key: int
    version: int
    correlation_id: int
    size: int
    client_id: str


@functools.lru_cache(maxsize=256)
def produce(size: int, version: int, acks: int, client_id: str) -> bytes:
    """Return a Produce request with this many bytes of records."""
    return kafka_frames.produce(0, size=size, acks=acks, version=version, client_id=client_id)


@functools.lru_cache(maxsize=256)
def fetch(bytes_max: int, version: int, client_id: str) -> bytes:
    """Return a Fetch request with this `max_bytes`."""
    return kafka_frames.fetch(0, max_bytes=bytes_max, version=version, client_id=client_id)


@functools.lru_cache(maxsize=64)
def ask(key: int, version: int, client_id: str) -> bytes:
    """Return a small request of another API."""
    if key == ApiKey.SASL_HANDSHAKE:
        return sasl_frames.handshake("PLAIN", version=version, client_id=client_id)
    if key == ApiKey.API_VERSIONS:
        return kafka_frames.api_versions(0, version, client_id)
    if key == ApiKey.METADATA:
        return kafka_frames.metadata(0, version, client_id)
    return kafka_frames.plain(0, key, version, client_id)  # the body of a JoinGroup begins with group `g` and a session timeout of 0


@functools.lru_cache(maxsize=16)
def change_quotas(size: int) -> bytes:
    """Return an AlterClientQuotas request of this many bytes, which the proxy answers itself once the whole request has arrived."""
    return kafka_frames.request(kafka_frames.api_of(ApiKey.ALTER_CLIENT_QUOTAS, 0), bytes(size), 0)


def _topics(count: int) -> bytes:
    return create_of(uvarint(count + 1) + (TOPIC + b"\1\1\0") * count)


def _placed(count: int) -> bytes:
    return create_of(b"\2" + TOPIC + uvarint(count + 1) + PLACED * count + b"\1\0")


def _grown(count: int) -> bytes:
    return grow_of(b"\2\2t" + struct.pack(">i", 9) + uvarint(count + 1) + b"\2\0\0\0\1\0" * count + b"\0")


def _deleted(count: int) -> bytes:
    body = uvarint(count + 1) + (b"\2t" + bytes(16) + b"\0") * count + struct.pack(">i", 30_000) + b"\0"
    return kafka_frames.request(kafka_frames.api_of(ApiKey.DELETE_TOPICS, 6), body, 0)


def _described(count: int) -> bytes:
    body = uvarint(count + 1) + b"\2\2t\0\0" * count + b"\0\0\0"
    return kafka_frames.request(kafka_frames.api_of(ApiKey.DESCRIBE_CONFIGS, 4), body, 0)


def _found(_count: int) -> bytes:
    return kafka_frames.plain(0, ApiKey.FIND_COORDINATOR, 4)


_WALKED: tuple[tuple[ApiKey, Callable[[int], bytes]], ...] = (
    (ApiKey.CREATE_TOPICS, _topics),
    (ApiKey.CREATE_TOPICS, _placed),
    (ApiKey.CREATE_PARTITIONS, _grown),
    (ApiKey.DELETE_TOPICS, _deleted),
    (ApiKey.DESCRIBE_CONFIGS, _described),
    (ApiKey.FIND_COORDINATOR, _found),
)
"""APIs whose requests or answers the proxy walks."""
WALKED = len(_WALKED)


@functools.lru_cache(maxsize=64)
def walked(kind: int, count: int) -> tuple[int, bytes]:
    """Return an API whose requests the proxy reads item by item, and a request of that API with this many items."""
    key, made = _WALKED[kind % WALKED]
    return key, made(count)


@functools.lru_cache(maxsize=16)
def _walked_answer(key: int, items: int) -> bytes:
    return configs(0, items) if key == ApiKey.DESCRIBE_CONFIGS else coordinators(0, items)


def numbered_request(frame: bytes, correlation_id: int) -> list[bytes | memoryview]:
    """Return a request with this correlation id, in pieces."""
    return [frame[:8] + struct.pack(">i", correlation_id), memoryview(frame)[12:]]


@functools.lru_cache(maxsize=64)
def _produced(version: int) -> bytes:
    return kafka_frames.produced(0, version=version)


@functools.lru_cache(maxsize=64)
def _fetched(version: int, size: int) -> bytes:
    return kafka_frames.fetched(0, version=version, size=size)


@functools.lru_cache(maxsize=64)
def _answered(key: int, version: int, node: tuple[str, int], metadata_bytes: int) -> bytes:
    if key == ApiKey.METADATA and metadata_bytes:
        topic = {"Name": "t" * 200, "Partitions": []}
        return kafka_frames.metadata_answer(0, {1: node}, version, topics=[topic] * (metadata_bytes // 200))
    if key == ApiKey.API_VERSIONS:
        return kafka_frames.api_versions_answer(0, RANGES, version)
    if key == ApiKey.METADATA:
        return kafka_frames.metadata_answer(0, {1: node}, version)
    return kafka_frames.answered(0, key, version)


def fetch_overhead_bytes(version: int) -> int:
    """Return how many bytes of a Fetch answer are not records."""
    return len(_fetched(version, 100)) - 100


def answer(head: Head, node: tuple[str, int], record_bytes: int = 0, metadata_bytes: int = 0, items: int = 0) -> list[bytes | memoryview]:
    """Return the answer to a request, in pieces; `items` is the number of settings or coordinators in it."""
    if head.key == ApiKey.PRODUCE:
        frame = _produced(head.version)
    elif head.key == ApiKey.FETCH:
        frame = _fetched(head.version, record_bytes)
    elif items and head.key in (ApiKey.DESCRIBE_CONFIGS, ApiKey.FIND_COORDINATOR) and head.version == 4:
        frame = _walked_answer(head.key, items)
    else:
        frame = _answered(head.key, head.version, node, metadata_bytes)
    return [frame[:4] + struct.pack(">i", head.correlation_id), memoryview(frame)[8:]]


class FrameReader:
    """Follows length-prefixed frames; keeps the first bytes of each, and counts the rest.

    Args:
        keep_bytes: how many bytes of a frame are kept, its length included.
        on_bytes: called each time bytes of a frame arrive after its head is complete, with the head and the number of bytes.
    """

    def __init__(self, keep_bytes: int) -> None:
        self._keep_bytes = keep_bytes
        self._head = bytearray()
        self._size = -1
        self._have = 0

    @property
    def in_frame(self) -> bool:
        """Whether a frame has begun and is not complete."""
        return self._have > 0

    def feed(self, data: bytes | memoryview, on_part: Callable[[bytearray, int], None] | None = None) -> Iterator[tuple[bytes, int]]:
        """Take in bytes; for each frame that is complete now, yield its kept head and its size without the length field."""
        at, end = 0, len(data)
        while at < end:
            if self._size < 0:
                taken = min(4 - self._have, end - at)
                self._head += data[at : at + taken]
                self._have += taken
                at += taken
                if self._have < 4:
                    return
                (self._size,) = struct.unpack(">i", self._head)
            taken = min(4 + self._size - self._have, end - at)
            kept = min(taken, self._keep_bytes - len(self._head))
            if kept > 0:
                self._head += data[at : at + kept]
            self._have += taken
            at += taken
            if on_part is not None and taken:
                on_part(self._head, taken)
            if self._have == 4 + self._size:
                head, size = bytes(self._head), self._size
                self._head, self._size, self._have = bytearray(), -1, 0
                yield head, size


def read_head(data: bytes, size: int) -> Head:
    """Read the head of a request."""
    key, version, correlation_id, length = struct.unpack_from(">hhih", data, 4)
    client_id = "" if length < 0 else data[14 : 14 + length].decode()
    return Head(key, version, correlation_id, size, client_id)


def acks_of(head: Head, data: bytes) -> int:
    """Return the acks of a Produce request."""
    at = 14 + len(head.client_id)
    at += (1 + 1) if head.version >= 9 else 2  # a flexible header has a tag section, and the transactional id is null
    (acks,) = struct.unpack_from(">h", data, at)
    return int(acks)


def fetch_bytes_max(head: Head, data: bytes) -> int:
    """Return the `max_bytes` of a Fetch request."""
    at = 14 + len(head.client_id) + (1 if head.version >= 12 else 0)
    at += (4 if head.version < 15 else 0) + 8
    (bytes_max,) = struct.unpack_from(">i", data, at)
    return int(bytes_max)


Pieces = deque[memoryview]
