"""Requests and answers written by hand, so that the proxy's code does not check itself.

They have one topic with one partition. The records are arbitrary bytes, since no code under test reads them.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

PRODUCE, FETCH, METADATA, SASL_HANDSHAKE, API_VERSIONS = 0, 1, 3, 17, 18
TOPIC = "scenario"
TOPIC_ID = bytes.fromhex("5c1d0b7ea9f14a6e9d3f0badcafe0002")
CLIENT_ID = b"scripted"
FLEXIBLE_SINCE = {PRODUCE: 9, FETCH: 12, METADATA: 9, API_VERSIONS: 3}
PRODUCE_VERSIONS, FETCH_VERSIONS = range(3, 14), range(4, 19)
OFFERED = {
    PRODUCE: (0, 13),
    FETCH: (4, 18),
    METADATA: (0, 13),
    API_VERSIONS: (0, 4),
    2: (1, 10),
    8: (2, 9),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
}
"""The keys of the scripted broker's ApiVersions answer: those that tests send, and a few more."""
NO_OPERATIONS = struct.pack(">i", -(2**31))


class Request(NamedTuple):
    """A request as the broker received it."""

    key: int
    version: int
    correlation_id: int
    client_id: bytes | None
    frame: bytes
    """The complete frame, length included."""


class Node(NamedTuple):
    """A broker as Metadata names it."""

    node_id: int
    host: str
    port: int


def uvarint(value: int) -> bytes:
    """Return Kafka's unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Shape:
    """Writes strings, arrays and tag sections of one version of an API: with int lengths, or compact."""

    def __init__(self, key: int, version: int) -> None:
        self.flexible = version >= FLEXIBLE_SINCE.get(key, 1 << 15)
        self.tags = b"\0" if self.flexible else b""

    def string(self, text: str | None) -> bytes:
        """Write a nullable string."""
        raw = None if text is None else text.encode()
        if self.flexible:
            return b"\0" if raw is None else uvarint(len(raw) + 1) + raw
        return b"\xff\xff" if raw is None else struct.pack(">h", len(raw)) + raw

    def count(self, elements: int) -> bytes:
        """Write the length of an array or of bytes; -1 for null."""
        return uvarint(elements + 1) if self.flexible else struct.pack(">i", elements)


def framed(body: bytes) -> bytes:
    """Add the length field."""
    return struct.pack(">i", len(body)) + body


# --- requests


def request(
    key: int,
    version: int,
    body: bytes,
    correlation_id: int = 1,
    *,
    client_id: bytes | None = CLIENT_ID,
    header_tags: bytes | None = None,
    flexible: bool | None = None,
) -> bytes:
    """A request with header v1, or v2 where the version is flexible."""
    is_flexible = Shape(key, version).flexible if flexible is None else flexible
    name = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id
    tags = (b"\0" if header_tags is None else header_tags) if is_flexible else b""
    return framed(struct.pack(">hhi", key, version, correlation_id) + name + tags + body)


def produce_request(
    correlation_id: int = 1,
    records: bytes = b"r" * 100,
    *,
    version: int = 9,
    acks: int = 1,
    client_id: bytes | None = CLIENT_ID,
    transactional_id: str | None = None,
    header_tags: bytes | None = None,
) -> bytes:
    """Produce v3-v13 of one batch."""
    shape = Shape(PRODUCE, version)
    topic = TOPIC_ID if version >= 13 else shape.string(TOPIC)
    body = shape.string(transactional_id) + struct.pack(">hi", acks, 30_000) + shape.count(1) + topic + shape.count(1)
    body += struct.pack(">i", 0) + shape.count(len(records)) + records + shape.tags * 3
    return request(PRODUCE, version, body, correlation_id, client_id=client_id, header_tags=header_tags)


def produce_of_size(
    size_bytes: int, correlation_id: int = 1, *, version: int = 7, acks: int = 1, client_id: bytes | None = CLIENT_ID
) -> bytes:
    """Produce with a frame of exactly `size_bytes`, its length field included (not every size is possible in flexible versions)."""
    empty = produce_request(correlation_id, b"", version=version, acks=acks, client_id=client_id)
    frame = produce_request(correlation_id, bytes(size_bytes - len(empty)), version=version, acks=acks, client_id=client_id)
    assert len(frame) == size_bytes, (len(frame), size_bytes)
    return frame


def fetch_request(
    correlation_id: int = 1,
    *,
    version: int = 12,
    max_bytes: int = 50 << 20,
    min_bytes: int = 1,
    max_wait_ms: int = 500,
    replica_id: int = -1,
    client_id: bytes | None = CLIENT_ID,
) -> bytes:
    """Fetch v4-v18 of one partition, outside of a fetch session."""
    shape = Shape(FETCH, version)
    body = b"" if version >= 15 else struct.pack(">i", replica_id)
    body += struct.pack(">iiib", max_wait_ms, min_bytes, max_bytes, 0)
    body += struct.pack(">ii", 0, -1) if version >= 7 else b""
    body += shape.count(1) + (TOPIC_ID if version >= 13 else shape.string(TOPIC)) + shape.count(1)
    body += struct.pack(">i", 0) + (struct.pack(">i", -1) if version >= 9 else b"") + struct.pack(">q", 0)
    body += struct.pack(">i", -1) if version >= 12 else b""
    body += struct.pack(">q", -1) if version >= 5 else b""
    body += struct.pack(">i", max_bytes) + shape.tags * 2
    body += shape.count(0) if version >= 7 else b""
    body += shape.string("") if version >= 11 else b""
    replica_state = b"\x01\x01\x0d" + struct.pack(">iq", replica_id, -1) + b"\0"  # tag 1 of 13 bytes
    tags = replica_state if version >= 15 and replica_id >= 0 else shape.tags
    return request(FETCH, version, body + tags, correlation_id, client_id=client_id)


def metadata_request(correlation_id: int = 1, *, version: int = 12, client_id: bytes | None = CLIENT_ID) -> bytes:
    """Metadata v0-v13 of all topics."""
    shape = Shape(METADATA, version)
    body = shape.count(-1 if version >= 1 else 0) + (b"\0" if version >= 4 else b"")
    body += b"\0\0" if 8 <= version <= 10 else b"\0" if version >= 11 else b""
    return request(METADATA, version, body + shape.tags, correlation_id, client_id=client_id)


def api_versions_request(correlation_id: int = 1, *, version: int = 3, client_id: bytes | None = CLIENT_ID) -> bytes:
    """ApiVersions v0-v4, and later ones as v4."""
    shape = Shape(API_VERSIONS, version)
    body = shape.string("scripted") + shape.string("1") + shape.tags if version >= 3 else b""
    return request(API_VERSIONS, version, body, correlation_id, client_id=client_id)


# --- answers


def answer(key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """An answer with header v0, or v1 where the version is flexible; ApiVersions never has v1."""
    tags = b"" if key == API_VERSIONS else Shape(key, version).tags
    return framed(struct.pack(">i", correlation_id) + tags + body)


def produce_answer(version: int, correlation_id: int, *, throttle_ms: int = 0) -> bytes:
    """One partition, no error."""
    shape = Shape(PRODUCE, version)
    topic = TOPIC_ID if version >= 13 else shape.string(TOPIC)
    body = shape.count(1) + topic + shape.count(1) + struct.pack(">ihqq", 0, 0, 4_711, -1)
    body += struct.pack(">q", 0) if version >= 5 else b""
    body += shape.count(0) + shape.string(None) if version >= 8 else b""
    return answer(PRODUCE, version, correlation_id, body + shape.tags * 2 + struct.pack(">i", throttle_ms) + shape.tags)


def fetch_answer_head(version: int, correlation_id: int, record_bytes: int, *, throttle_ms: int = 0) -> tuple[bytes, bytes]:
    """Return the bytes before and after the records of a Fetch answer of one partition; the length includes the records."""
    shape = Shape(FETCH, version)
    body = struct.pack(">i", throttle_ms) + (bytes(6) if version >= 7 else b"")
    body += shape.count(1) + (TOPIC_ID if version >= 13 else shape.string(TOPIC)) + shape.count(1)
    body += struct.pack(">ihqq", 0, 0, 1 << 40, 1 << 40) + (bytes(8) if version >= 5 else b"")
    body += shape.count(0) + (struct.pack(">i", -1) if version >= 11 else b"") + shape.count(record_bytes)
    head = struct.pack(">i", correlation_id) + shape.tags + body
    suffix = shape.tags * 3
    return struct.pack(">i", len(head) + record_bytes + len(suffix)) + head, suffix


def fetch_answer(version: int, correlation_id: int, records: bytes, *, throttle_ms: int = 0) -> bytes:
    """One partition with these records."""
    head, suffix = fetch_answer_head(version, correlation_id, len(records), throttle_ms=throttle_ms)
    return head + records + suffix


def metadata_answer(version: int, correlation_id: int, nodes: Sequence[Node], *, cluster_id: str = "scenario-cluster") -> bytes:
    """These brokers; the first one leads the single partition."""
    shape = Shape(METADATA, version)
    leader = struct.pack(">i", nodes[0].node_id)
    body = bytes(4) if version >= 3 else b""
    body += shape.count(len(nodes))
    for node in nodes:
        body += struct.pack(">i", node.node_id) + shape.string(node.host) + struct.pack(">i", node.port)
        body += (shape.string(None) if version >= 1 else b"") + shape.tags
    body += shape.string(cluster_id) if version >= 2 else b""
    body += leader if version >= 1 else b""
    body += shape.count(1) + bytes(2) + shape.string(TOPIC) + (TOPIC_ID if version >= 10 else b"") + (b"\0" if version >= 1 else b"")
    body += shape.count(1) + bytes(6) + leader + (bytes(4) if version >= 7 else b"") + (shape.count(1) + leader) * 2
    body += shape.count(0) if version >= 5 else b""
    body += shape.tags + (NO_OPERATIONS if version >= 8 else b"") + shape.tags
    body += NO_OPERATIONS if 8 <= version <= 10 else b""
    body += bytes(2) if version >= 13 else b""
    return answer(METADATA, version, correlation_id, body + shape.tags)


def api_versions_answer(version: int, correlation_id: int, offered: dict[int, tuple[int, int]] | None = None) -> bytes:
    """The keys and versions of `offered`."""
    shape = Shape(API_VERSIONS, version)
    ranges = OFFERED if offered is None else offered
    rows = b"".join(struct.pack(">hhh", key, *bounds) + shape.tags for key, bounds in sorted(ranges.items()))
    body = bytes(2) + shape.count(len(ranges)) + rows + (bytes(4) if version >= 1 else b"")
    return answer(API_VERSIONS, version, correlation_id, body + shape.tags)


# --- reading


def read_request(frame: bytes) -> Request:
    """Read a request's header."""
    key, version, correlation_id, length = struct.unpack_from(">hhih", frame, 4)
    return Request(key, version, correlation_id, None if length < 0 else frame[14 : 14 + length], frame)


def acks_of(asked: Request) -> int:
    """Return the acks of a Produce without header tags and without transactional id."""
    at = 14 + len(asked.client_id or b"") + 2  # a null string and, where flexible, no header tags: two bytes either way
    (acks,) = struct.unpack_from(">h", asked.frame, at)
    return int(acks)


def correlation_id_of(frame: bytes) -> int:
    """Return the correlation id of an answer."""
    return int.from_bytes(frame[4:8], "big", signed=True)


def throttle_ms_of(key: int, version: int, frame: bytes) -> int:
    """Return the throttle time in an answer of `produce_answer` or `fetch_answer`."""
    at = len(frame) - 4 - len(Shape(key, version).tags) if key == PRODUCE else 8 + len(Shape(key, version).tags)
    return int.from_bytes(frame[at : at + 4], "big", signed=True)


def split_frames(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the complete frames in `data`, and the rest."""
    frames, at = [], 0
    while at + 4 <= len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            break
        frames.append(data[at:end])
        at = end
    return frames, data[at:]
