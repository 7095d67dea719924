"""The frames that the benches send and answer, written by hand, so that the proxy's code does not check itself.

A request template carries its correlation id at offset 8, an answer template at offset 4; the sender patches those four bytes.
One topic with one partition, one broker with node id 1.
"""

import json
import struct
from dataclasses import dataclass
from importlib import resources

PRODUCE, FETCH, METADATA, OFFSET_COMMIT, FIND_COORDINATOR, API_VERSIONS = 0, 1, 3, 8, 10, 18
NODE_ID = 1
TOPIC = "bench"
TOPIC_ID = bytes.fromhex("5c1d0b7ea9f14a6e9d3f0badcafe0001")
CLUSTER_ID = "bench-cluster"
CLIENT_ID = "bench"
FLEXIBLE_SINCE = {PRODUCE: 9, FETCH: 12, METADATA: 9, OFFSET_COMMIT: 8, FIND_COORDINATOR: 3, API_VERSIONS: 3}
MADE_VERSIONS = {PRODUCE: range(3, 14), FETCH: range(4, 19), METADATA: range(14), API_VERSIONS: range(5)}


@dataclass(frozen=True, slots=True)
class Template:
    """One frame as `prefix`, `filler` zero bytes and `suffix`, so that 55 MiB of records are in memory only once."""

    key: int
    version: int
    prefix: bytes
    filler: int
    suffix: bytes

    @property
    def size(self) -> int:
        """Return the bytes on the wire, length field included."""
        return len(self.prefix) + self.filler + len(self.suffix)

    def whole(self) -> bytes:
        """Return the frame in one piece."""
        return self.prefix + bytes(self.filler) + self.suffix


def uvarint(value: int) -> bytes:
    """Return Kafka's unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Shape:
    """Writes strings, arrays and tag sections of one version of one API: with int lengths, or compact."""

    def __init__(self, key: int, version: int) -> None:
        self.flexible = version >= FLEXIBLE_SINCE[key]
        self.tags = b"\0" if self.flexible else b""

    def string(self, text: str | None) -> bytes:
        raw = None if text is None else text.encode()
        if self.flexible:
            return b"\0" if raw is None else uvarint(len(raw) + 1) + raw
        return b"\xff\xff" if raw is None else struct.pack(">h", len(raw)) + raw

    def count(self, elements: int) -> bytes:
        """Write the length of an array or of a bytes field, -1 for null."""
        return uvarint(elements + 1) if self.flexible else struct.pack(">i", elements)


def request(key: int, version: int, body: bytes, filler: int = 0, suffix: bytes = b"", client_id: str = CLIENT_ID) -> Template:
    """Return a request with its header (v1 or v2) and correlation id 0."""
    tags = Shape(key, version).tags
    head = struct.pack(">hhih", key, version, 0, len(client_id)) + client_id.encode() + tags
    return _framed(key, version, head + body, filler, suffix)


def _answer(key: int, version: int, body: bytes, filler: int = 0, suffix: bytes = b"") -> Template:
    tags = b"" if key == API_VERSIONS else Shape(key, version).tags
    return _framed(key, version, bytes(4) + tags + body, filler, suffix)


def _framed(key: int, version: int, prefix: bytes, filler: int, suffix: bytes) -> Template:
    size = len(prefix) + filler + len(suffix)
    return Template(key, version, struct.pack(">i", size) + prefix, filler, suffix)


def produce_request(
    version: int,
    records: bytes = b"",
    filler: int = 0,
    *,
    acks: int = 1,
    client_id: str = CLIENT_ID,
    topic: str = TOPIC,
    partition: int = 0,
) -> Template:
    """Produce v3-v13 of one batch: `records` as they are, then `filler` zero bytes."""
    shape = Shape(PRODUCE, version)
    topic_name = TOPIC_ID if version >= 13 else shape.string(topic)
    body = shape.string(None) + struct.pack(">hi", acks, 30_000) + shape.count(1) + topic_name + shape.count(1)
    body += struct.pack(">i", partition) + shape.count(len(records) + filler) + records
    return request(PRODUCE, version, body, filler, shape.tags * 3, client_id)


def fetch_request(
    version: int,
    *,
    max_bytes: int = 64 << 20,
    partition_max_bytes: int = 64 << 20,
    max_wait_ms: int = 500,
    offset: int = 0,
    client_id: str = CLIENT_ID,
    topic: str = TOPIC,
    partition: int = 0,
) -> Template:
    """Fetch v4-v18 of one partition, outside of a fetch session."""
    shape = Shape(FETCH, version)
    body = b"" if version >= 15 else struct.pack(">i", -1)
    body += struct.pack(">iiib", max_wait_ms, 1, max_bytes, 0)
    body += struct.pack(">ii", 0, -1) if version >= 7 else b""
    body += shape.count(1) + (TOPIC_ID if version >= 13 else shape.string(topic)) + shape.count(1)
    body += struct.pack(">i", partition) + (struct.pack(">i", -1) if version >= 9 else b"") + struct.pack(">q", offset)
    body += struct.pack(">i", -1) if version >= 12 else b""
    body += struct.pack(">q", -1) if version >= 5 else b""
    body += struct.pack(">i", partition_max_bytes) + shape.tags * 2
    body += shape.count(0) if version >= 7 else b""
    body += shape.string("") if version >= 11 else b""
    return request(FETCH, version, body + shape.tags, client_id=client_id)


def api_versions_request(version: int = 3) -> Template:
    """ApiVersions v0-v4."""
    shape = Shape(API_VERSIONS, version)
    body = shape.string("bench") + shape.string("1") + shape.tags if version >= 3 else b""
    return request(API_VERSIONS, version, body)


def metadata_request(version: int = 12, *, client_id: str = CLIENT_ID) -> Template:
    """Metadata v0-v13 of all topics."""
    shape = Shape(METADATA, version)
    body = shape.count(-1 if version >= 1 else 0) + (b"\0" if version >= 4 else b"")
    body += {8: b"\0\0", 9: b"\0\0", 10: b"\0\0"}.get(version, b"\0" if version >= 11 else b"")
    return request(METADATA, version, body + shape.tags, client_id=client_id)


def find_coordinator_request(group: str, *, client_id: str = CLIENT_ID) -> Template:
    """FindCoordinator v2 of a group."""
    return request(FIND_COORDINATOR, 2, Shape(FIND_COORDINATOR, 2).string(group) + b"\0", client_id=client_id)


def offset_commit_request(group: str, topic: str, *, client_id: str = CLIENT_ID) -> Template:
    """OffsetCommit v7 of one partition without a member id: a group without members accepts it."""
    shape = Shape(OFFSET_COMMIT, 7)
    body = shape.string(group) + struct.pack(">i", -1) + shape.string("") + shape.string(None) + shape.count(1) + shape.string(topic)
    return request(OFFSET_COMMIT, 7, body + shape.count(1) + struct.pack(">iqi", 0, 1, -1) + shape.string(""), client_id=client_id)


def produce_answer(version: int) -> Template:
    """One partition, no error."""
    shape = Shape(PRODUCE, version)
    topic_name = TOPIC_ID if version >= 13 else shape.string(TOPIC)
    body = shape.count(1) + topic_name + shape.count(1) + struct.pack(">ihqq", 0, 0, 4_711, -1)
    body += struct.pack(">q", 0) if version >= 5 else b""
    body += shape.count(0) + shape.string(None) if version >= 8 else b""
    return _answer(PRODUCE, version, body + shape.tags * 2 + bytes(4) + shape.tags)


def fetch_answer(version: int, record_bytes: int) -> Template:
    """One partition with `record_bytes` zero bytes in the place of records."""
    shape = Shape(FETCH, version)
    body = bytes(4) + (bytes(6) if version >= 7 else b"")
    body += shape.count(1) + (TOPIC_ID if version >= 13 else shape.string(TOPIC)) + shape.count(1)
    body += struct.pack(">ihqq", 0, 0, 1 << 40, 1 << 40) + (bytes(8) if version >= 5 else b"")
    body += shape.count(0) + (struct.pack(">i", -1) if version >= 11 else b"") + shape.count(record_bytes)
    return _answer(FETCH, version, body, record_bytes, shape.tags * 3)


def metadata_answer(version: int, host: str, port: int) -> Template:
    """One broker at `host`:`port` that leads the single partition."""
    shape = Shape(METADATA, version)
    one = shape.count(1) + struct.pack(">i", NODE_ID)
    body = bytes(4) if version >= 3 else b""
    body += one + shape.string(host) + struct.pack(">i", port) + (shape.string(None) if version >= 1 else b"") + shape.tags
    body += shape.string(CLUSTER_ID) if version >= 2 else b""
    body += struct.pack(">i", NODE_ID) if version >= 1 else b""
    body += shape.count(1) + bytes(2) + shape.string(TOPIC) + (TOPIC_ID if version >= 10 else b"") + (b"\0" if version >= 1 else b"")
    body += shape.count(1) + struct.pack(">hii", 0, 0, NODE_ID) + (bytes(4) if version >= 7 else b"") + one + one
    body += shape.count(0) if version >= 5 else b""
    body += shape.tags + (struct.pack(">i", -(2**31)) if version >= 8 else b"") + shape.tags
    body += struct.pack(">i", -(2**31)) if 8 <= version <= 10 else b""
    body += bytes(2) if version >= 13 else b""
    return _answer(METADATA, version, body + shape.tags)


def api_versions_answer(version: int) -> Template:
    """The list of a Kafka 4.3.1 broker, so that reducing it costs as much as with a real one."""
    shape = Shape(API_VERSIONS, version)
    keys = _broker_api_keys()
    rows = b"".join(struct.pack(">hhh", *row) + shape.tags for row in keys)
    throttle = bytes(4) if version >= 1 else b""
    return _answer(API_VERSIONS, version, bytes(2) + shape.count(len(keys)) + rows + throttle + shape.tags)


def _broker_api_keys() -> list[tuple[int, int, int]]:
    table = json.loads(resources.files("protocol").joinpath("apis.json").read_text())["apis"]
    rows = [(api["key"], *api["advertised"]["4.3.1-kraft"]) for api in table if api["advertised"].get("4.3.1-kraft")]
    made = {key: versions[-1] for key, versions in MADE_VERSIONS.items()}
    return [(key, low, made.get(key, high)) for key, low, high in rows]


def answers(host: str, port: int, fetch_record_bytes: int) -> list[Template]:
    """Return all answers of the stub broker, one template per API and version."""
    made = [produce_answer(v) for v in MADE_VERSIONS[PRODUCE]]
    made += [fetch_answer(v, fetch_record_bytes) for v in MADE_VERSIONS[FETCH]]
    made += [metadata_answer(v, host, port) for v in MADE_VERSIONS[METADATA]]
    return made + [api_versions_answer(v) for v in MADE_VERSIONS[API_VERSIONS]]


def write_templates(templates: list[Template]) -> bytes:
    """Write the templates as a file for `peer.c`: per template key, version, prefix length, filler, suffix length; then the bytes."""
    heads = [struct.pack("<hhiqi", t.key, t.version, len(t.prefix), t.filler, len(t.suffix)) + t.prefix + t.suffix for t in templates]
    return b"".join(heads)
