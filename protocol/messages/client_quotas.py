"""DescribeClientQuotas (48) and AlterClientQuotas (49), versions 0 and 1: asked, and their answers read (KIP-546)."""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from protocol.errors import BadResponseError
from protocol.headers import response_header_len
from protocol.limits import LENGTH_BYTES
from protocol.primitives import INT16, INT32, Buffer, IncompleteError, Reader, string, uvarint, with_length

VERSIONS: Final = (0, 1)
_FLOAT64: Final = Struct(">d")
_HEAD: Final = Struct(">hhi")  # key, version, correlation id
_NO_TAGS: Final = b"\x00"

Entity = tuple[tuple[str, str | None], ...]
"""Parts, type and name, as they stand on the wire; None is the default entity."""


class FilterComponent(NamedTuple):
    """One condition: match type 0 is exact, 1 the default entity, 2 any."""

    entity_type: str
    match_type: int
    match: str | None


class QuotaOp(NamedTuple):
    """Set a key, or, with None, remove it."""

    key: str
    value: float | None


class QuotaEntry(NamedTuple):
    """An entity and its values."""

    entity: Entity
    values: dict[str, float]


class AlterResult(NamedTuple):
    """What became of the alteration of an entity."""

    entity: Entity
    error_code: int
    error_message: str | None


class DescribeAnswer(NamedTuple):
    """Entries are None with an error."""

    error_code: int
    error_message: str | None
    entries: list[QuotaEntry] | None


def describe_request(version: int, correlation_id: int, client_id: str, components: Sequence[FilterComponent], *, strict: bool) -> bytes:
    """Write a DescribeClientQuotas request."""
    wire = _Writer(version)
    parts = [
        wire.string(kind) + bytes((match_type & 0xFF,)) + wire.nullable_string(match) + wire.tags for kind, match_type, match in components
    ]
    body = wire.array(parts) + bytes((strict,)) + wire.tags
    return wire.request(ApiKey.DESCRIBE_CLIENT_QUOTAS, correlation_id, client_id, body)


def alter_request(
    version: int, correlation_id: int, client_id: str, entries: Sequence[tuple[Entity, Sequence[QuotaOp]]], *, validate_only: bool
) -> bytes:
    """Write an AlterClientQuotas request."""
    wire = _Writer(version)
    written = [wire.entity(entity) + wire.array([wire.op(op) for op in ops]) + wire.tags for entity, ops in entries]
    body = wire.array(written) + bytes((validate_only,)) + wire.tags
    return wire.request(ApiKey.ALTER_CLIENT_QUOTAS, correlation_id, client_id, body)


def read_describe_answer(version: int, frame: Buffer) -> DescribeAnswer:
    """Read a whole DescribeClientQuotas response.

    Raises:
        BadResponseError: it does not read as its version says.
    """
    try:
        reader = _body(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, frame)
        wire = _Reading(reader, version)
        reader.int32()  # throttle time
        code, message = reader.int16(), reader.nullable_string(compact=wire.compact)
        count = reader.length(compact=wire.compact)
        entries = None if count < 0 else [wire.entry() for _ in range(count)]
        wire.end()
    except IncompleteError as error:
        raise BadResponseError("a DescribeClientQuotas response that ends too early") from error
    return DescribeAnswer(code, message, entries)


def read_alter_answer(version: int, frame: Buffer) -> list[AlterResult]:
    """Read a whole AlterClientQuotas response.

    Raises:
        BadResponseError: it does not read as its version says.
    """
    try:
        reader = _body(ApiKey.ALTER_CLIENT_QUOTAS, version, frame)
        wire = _Reading(reader, version)
        reader.int32()  # throttle time
        results = [wire.result() for _ in range(reader.length(compact=wire.compact))]
        wire.end()
    except IncompleteError as error:
        raise BadResponseError("an AlterClientQuotas response that ends too early") from error
    return results


def _body(key: int, version: int, frame: Buffer) -> Reader:
    api: ApiVersion = API_VERSIONS[key << 16 | version]
    header_len = response_header_len(api, frame, 0)
    if header_len is None:
        raise BadResponseError("the frame ends inside its header")
    return Reader(frame, LENGTH_BYTES + header_len, len(frame), BadResponseError)


class _Reading:
    """Reads the parts that both answers have."""

    def __init__(self, reader: Reader, version: int) -> None:
        self._reader = reader
        self.compact = version > 0

    def end(self) -> None:
        if self.compact:
            self._reader.skip_tag_section()
        if self._reader.left():
            raise BadResponseError(f"{self._reader.left()} bytes behind the end of the response")

    def entity(self) -> Entity:
        parts = []
        for _ in range(self._reader.length(compact=self.compact)):
            kind = self._reader.string(compact=self.compact)
            parts.append((kind, self._reader.nullable_string(compact=self.compact)))
            self._tags()
        return tuple(parts)

    def entry(self) -> QuotaEntry:
        entity = self.entity()
        values = {}
        for _ in range(self._reader.length(compact=self.compact)):
            key = self._reader.string(compact=self.compact)
            (values[key],) = _FLOAT64.unpack(self._reader.raw(_FLOAT64.size))
            self._tags()
        self._tags()
        return QuotaEntry(entity, values)

    def result(self) -> AlterResult:
        code, message = self._reader.int16(), self._reader.nullable_string(compact=self.compact)
        result = AlterResult(self.entity(), code, message)
        self._tags()
        return result

    def _tags(self) -> None:
        if self.compact:
            self._reader.skip_tag_section()


class _Writer:
    """Writes in one version: from 1 on compact, with tag sections."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._compact = version > 0
        self.tags = _NO_TAGS if self._compact else b""

    def request(self, key: int, correlation_id: int, client_id: str, body: bytes) -> bytes:
        head = _HEAD.pack(key, self._version, correlation_id) + string(client_id, compact=False) + self.tags
        return with_length(head + body)

    def array(self, parts: Sequence[bytes]) -> bytes:
        return (uvarint(len(parts) + 1) if self._compact else INT32.pack(len(parts))) + b"".join(parts)

    def string(self, value: str) -> bytes:
        return string(value, compact=self._compact)

    def nullable_string(self, value: str | None) -> bytes:
        if value is None:
            return b"\x00" if self._compact else INT16.pack(-1)
        return self.string(value)

    def entity(self, entity: Entity) -> bytes:
        return self.array([self.string(kind) + self.nullable_string(name) + self.tags for kind, name in entity])

    def op(self, op: QuotaOp) -> bytes:
        remove = op.value is None
        return self.string(op.key) + _FLOAT64.pack(op.value or 0.0) + bytes((remove,)) + self.tags
