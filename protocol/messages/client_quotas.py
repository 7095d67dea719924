"""DescribeClientQuotas (48) and AlterClientQuotas (49), versions 0 and 1: requests and responses, reading and writing (KIP-546)."""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from protocol.errors import BadRequestError, BadResponseError, ProtocolError
from protocol.headers import response_header_len
from protocol.limits import LENGTH_BYTES, MAX_QUOTA_REQUEST_PARTS, MAX_STRING_BYTES
from protocol.primitives import INT16, INT32, Buffer, IncompleteError, Reader, string, uvarint, with_length

VERSIONS: Final = (0, 1)
_FLOAT64: Final = Struct(">d")
_HEAD: Final = Struct(">hhi")  # key, version, correlation id
_NO_TAGS: Final = b"\x00"
INT8_MAX: Final = 127

Entity = tuple[tuple[str, str | None], ...]
"""Parts, type and name, as on the wire; None is the default entity."""


class FilterComponent(NamedTuple):
    """One condition: match type 0 is exact, 1 the default entity, 2 any."""

    entity_type: str
    match_type: int
    match: str | None


class QuotaOp(NamedTuple):
    """One key to set, or with None to remove."""

    key: str
    value: float | None


class WireOp(NamedTuple):
    """One change of a request; a removal may have a value, too."""

    key: str
    value: float
    remove: bool


class DescribeRequest(NamedTuple):
    """Conditions, all of which have to hold; `strict`: only entities without other types."""

    components: list[FilterComponent]
    strict: bool


class AlterRequest(NamedTuple):
    """Changes of entities, in order; `validate_only`: check them without making them."""

    entries: list[tuple[Entity, list[WireOp]]]
    validate_only: bool


class QuotaEntry(NamedTuple):
    """An entity and its values."""

    entity: Entity
    values: Mapping[str, float]


class AlterResult(NamedTuple):
    """The result of the alteration of one entity."""

    entity: Entity
    error_code: int
    error_message: str | None


class DescribeAnswer(NamedTuple):
    """The response; `entries` is None when there is an error."""

    error_code: int
    error_message: str | None
    entries: list[QuotaEntry] | None


def describe_request(version: int, correlation_id: int, client_id: str, components: Sequence[FilterComponent], *, strict: bool) -> bytes:
    """Return a DescribeClientQuotas request."""
    wire = _Writer(version)
    parts = [
        wire.string(kind) + bytes((match_type & 0xFF,)) + wire.nullable_string(match) + wire.tags for kind, match_type, match in components
    ]
    body = wire.array(parts) + bytes((strict,)) + wire.tags
    return wire.request(ApiKey.DESCRIBE_CLIENT_QUOTAS, correlation_id, client_id, body)


def alter_request(
    version: int, correlation_id: int, client_id: str, entries: Sequence[tuple[Entity, Sequence[QuotaOp]]], *, validate_only: bool
) -> bytes:
    """Return an AlterClientQuotas request."""
    wire = _Writer(version)
    written = [wire.entity(entity) + wire.array([wire.op(op) for op in ops]) + wire.tags for entity, ops in entries]
    body = wire.array(written) + bytes((validate_only,)) + wire.tags
    return wire.request(ApiKey.ALTER_CLIENT_QUOTAS, correlation_id, client_id, body)


def read_describe_answer(version: int, frame: Buffer) -> DescribeAnswer:
    """Read a whole DescribeClientQuotas response.

    BadResponseError: the frame does not match its version.
        BadResponseError: it does not match its version.
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
        BadResponseError: it does not match its version.
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


def read_describe_request(version: int, frame: Buffer, body_at: int) -> DescribeRequest:
    """Read a whole DescribeClientQuotas request whose body begins at `body_at`.

    Raises:
        BadRequestError: it does not match its version.
    """
    wire = _Reading(Reader(frame, body_at, len(frame), BadRequestError), version, BadRequestError)
    components = [wire.component() for _ in range(wire.count())]
    return DescribeRequest(components, wire.last_flag())


def read_alter_request(version: int, frame: Buffer, body_at: int) -> AlterRequest:
    """Read a whole AlterClientQuotas request whose body begins at `body_at`.

    Raises:
        BadRequestError: it does not match its version.
    """
    wire = _Reading(Reader(frame, body_at, len(frame), BadRequestError), version, BadRequestError)
    entries = [wire.alteration() for _ in range(wire.count())]
    return AlterRequest(entries, wire.last_flag())


def describe_answer(version: int, correlation_id: int, answer: DescribeAnswer, *, throttle_ms: int = 0) -> bytes:
    """Return a DescribeClientQuotas response. Strings that are too long for the wire are cut."""
    wire = _Writer(version, cuts=True)
    head = INT32.pack(throttle_ms) + INT16.pack(answer.error_code) + wire.nullable_string(answer.error_message)
    if answer.entries is None:
        entries = b"\x00" if version else INT32.pack(-1)
    else:
        entries = wire.array([wire.entity(entity) + wire.values(values) + wire.tags for entity, values in answer.entries])
    return wire.answer(correlation_id, head + entries)


def alter_answer(version: int, correlation_id: int, results: Sequence[AlterResult], *, throttle_ms: int = 0) -> bytes:
    """Return an AlterClientQuotas response. Strings that are too long for the wire are cut."""
    wire = _Writer(version, cuts=True)
    written = [
        INT16.pack(result.error_code) + wire.nullable_string(result.error_message) + wire.entity(result.entity) + wire.tags
        for result in results
    ]
    return wire.answer(correlation_id, INT32.pack(throttle_ms) + wire.array(written))


def _body(key: int, version: int, frame: Buffer) -> Reader:
    api: ApiVersion = API_VERSIONS[key << 16 | version]
    header_len = response_header_len(api, frame, 0)
    if header_len is None:
        raise BadResponseError("the frame ends inside its header")
    return Reader(frame, LENGTH_BYTES + header_len, len(frame), BadResponseError)


class _Reading:
    """Reads the parts of these messages."""

    def __init__(self, reader: Reader, version: int, error: type[ProtocolError] = BadResponseError) -> None:
        self._reader = reader
        self._error = error
        self._parts = 0
        self.compact = version > 0

    def count(self) -> int:
        """Read the length of a request's array, which is not null; at most the bytes left, and at most the limit of a request."""
        count = self._reader.length(compact=self.compact)
        if count < 0:
            raise self._error("null where an array has to be")
        self._parts += count
        if self._parts > MAX_QUOTA_REQUEST_PARTS:
            raise self._error(f"more than {MAX_QUOTA_REQUEST_PARTS} entities, parts and changes in one request")
        return count

    def last_flag(self) -> bool:
        """Read the last field of a request, a bool."""
        flag = self._reader.raw(1) != b"\x00"
        self._tags()
        return flag

    def component(self) -> FilterComponent:
        kind = self._text()
        match_type = self._reader.raw(1)[0]
        component = FilterComponent(
            kind, match_type - 256 if match_type > INT8_MAX else match_type, self._reader.nullable_string(compact=self.compact)
        )
        self._tags()
        return component

    def alteration(self) -> tuple[Entity, list[WireOp]]:
        parts = []
        for _ in range(self.count()):
            kind = self._text()
            parts.append((kind, self._reader.nullable_string(compact=self.compact)))
            self._tags()
        ops = [self._op() for _ in range(self.count())]
        self._tags()
        return tuple(parts), ops

    def _op(self) -> WireOp:
        key = self._text()
        (value,) = _FLOAT64.unpack(self._reader.raw(_FLOAT64.size))
        op = WireOp(key, value, self._reader.raw(1) != b"\x00")
        self._tags()
        return op

    def _text(self) -> str:
        text = self._reader.nullable_string(compact=self.compact)
        if text is None:
            raise self._error("null in a field that cannot be null")
        return text

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
    """Writes the parts of these messages in one version; from v1 on compact, with tag sections."""

    def __init__(self, version: int, *, cuts: bool = False) -> None:
        self._version = version
        self._cuts = cuts
        self._compact = version > 0
        self.tags = _NO_TAGS if self._compact else b""

    def request(self, key: int, correlation_id: int, client_id: str, body: bytes) -> bytes:
        head = _HEAD.pack(key, self._version, correlation_id) + string(client_id, compact=False) + self.tags
        return with_length(head + body)

    def answer(self, correlation_id: int, body: bytes) -> bytes:
        return with_length(INT32.pack(correlation_id) + self.tags + body + self.tags)

    def array(self, parts: Sequence[bytes]) -> bytes:
        return (uvarint(len(parts) + 1) if self._compact else INT32.pack(len(parts))) + b"".join(parts)

    def string(self, value: str) -> bytes:
        if self._cuts and len(value) > MAX_STRING_BYTES // 4:
            value = value.encode("utf-8", "replace")[:MAX_STRING_BYTES].decode("utf-8", "ignore")
        return string(value, compact=self._compact)

    def values(self, values: Mapping[str, float]) -> bytes:
        return self.array([self.string(key) + _FLOAT64.pack(value) + self.tags for key, value in values.items()])

    def nullable_string(self, value: str | None) -> bytes:
        if value is None:
            return b"\x00" if self._compact else INT16.pack(-1)
        return self.string(value)

    def entity(self, entity: Entity) -> bytes:
        return self.array([self.string(kind) + self.nullable_string(name) + self.tags for kind, name in entity])

    def op(self, op: QuotaOp) -> bytes:
        remove = op.value is None
        return self.string(op.key) + _FLOAT64.pack(op.value or 0.0) + bytes((remove,)) + self.tags
