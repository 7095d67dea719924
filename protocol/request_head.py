"""The beginning of a request: its header, and for Produce and Fetch the fields that quotas need."""

from protocol.api_keys import API_VERSIONS, KNOWN_KEYS, ApiKey, ApiVersion, unknown_api_version
from protocol.errors import BadHeaderError, BadRequestError, UnknownApiError, UnknownVersionError
from protocol.limits import HEAD_BYTES, LENGTH_BYTES, MAX_HEADER_BYTES, MAX_TAGGED_FIELD_BYTES, MAX_TAGGED_FIELDS
from protocol.primitives import INT32, Buffer, IncompleteError, Reader

_FETCH_SINCE_MAX_BYTES = 3
_FETCH_SINCE_REPLICA_STATE = 15
_PRODUCE_SINCE_TRANSACTIONAL_ID = 3


class RequestHead:
    """The fields at the beginning of one request. Offsets count from the first byte of the frame's length.

    Attributes:
        client_id: None when null; invalid UTF-8 becomes U+FFFD, as in Kafka.
        client_id_bytes: the same, as in the frame.
        body_at: offset of the first byte after the header.
        head_len: number of bytes from the first byte of the length to the last byte read.
        acks, transactional_id: Produce.
        max_wait_ms, min_bytes, max_bytes and their offsets: Fetch and ShareFetch; None where the version has none.
    """

    __slots__ = (
        "acks",
        "api",
        "body_at",
        "client_id",
        "client_id_bytes",
        "correlation_id",
        "head_len",
        "max_bytes",
        "max_bytes_at",
        "max_wait_ms",
        "max_wait_ms_at",
        "min_bytes",
        "min_bytes_at",
        "transactional_id",
    )

    def __init__(self, api: ApiVersion, correlation_id: int, client_id_bytes: bytes | None, body_at: int) -> None:
        self.api = api
        self.correlation_id = correlation_id
        self.client_id_bytes = client_id_bytes
        self.client_id: str | None = None if client_id_bytes is None else client_id_bytes.decode("utf-8", "replace")
        self.body_at = body_at
        self.head_len = body_at
        self.acks: int | None = None
        self.transactional_id: str | None = None
        self.max_wait_ms: int | None = None
        self.max_wait_ms_at: int | None = None
        self.min_bytes: int | None = None
        self.min_bytes_at: int | None = None
        self.max_bytes: int | None = None
        self.max_bytes_at: int | None = None


def read_request_head(data: Buffer, at: int, frame_size: int, *, unknown_apis_pass: bool = False) -> RequestHead | None:
    """Read the beginning of the request whose length field is at `at`.

    Args:
        data: the bytes that have arrived.
        at: offset of the frame's length.
        frame_size: the value of that length, already compared with the limit.
        unknown_apis_pass: read the head of a key that is not in the table instead of raising.

    Returns:
        The head, or None when more bytes are needed.

    Raises:
        BadHeaderError: the header does not fit into the frame, or exceeds a limit.
        BadRequestError: the same for the fields of Produce and Fetch after it.
        UnknownApiError: the key is not in the table and unknown keys do not pass.
        UnknownVersionError: the version is not in the table; a newer ApiVersions is not an error (KIP-511).
    """
    if frame_size < HEAD_BYTES - LENGTH_BYTES:
        raise BadHeaderError(f"frame of {frame_size} bytes has no request header")
    if len(data) - at < HEAD_BYTES:
        return None
    (index,) = INT32.unpack_from(data, at + LENGTH_BYTES)
    api = API_VERSIONS.get(index) or _unknown(index, unknown_apis_pass=unknown_apis_pass)
    try:
        head = _read_header(data, at, at + LENGTH_BYTES + frame_size, api)
        _read_fields(data, at, at + LENGTH_BYTES + frame_size, head)
    except IncompleteError:
        return None
    return head


def _unknown(index: int, *, unknown_apis_pass: bool) -> ApiVersion:
    key, version = index >> 16, index & 0xFFFF
    from_the_future = key == ApiKey.API_VERSIONS and version < 0x8000
    if not from_the_future and key in KNOWN_KEYS:
        raise UnknownVersionError(f"version {version} of API key {key} is not known")
    if not from_the_future and not unknown_apis_pass:
        raise UnknownApiError(f"API key {key} is not known")
    return unknown_api_version(key, version)


def _read_header(data: Buffer, at: int, end: int, api: ApiVersion) -> RequestHead:
    limit = at + LENGTH_BYTES + MAX_HEADER_BYTES
    reader = Reader(data, at + HEAD_BYTES - 4, min(end, limit), BadHeaderError)
    correlation_id = reader.int32()
    client_id = reader.nullable_string_bytes(compact=False) if api.request_header_version >= 1 else None
    if api.request_header_version >= 2:
        reader.skip_tag_section(max_fields=MAX_TAGGED_FIELDS, max_field_bytes=MAX_TAGGED_FIELD_BYTES)
    return RequestHead(api, correlation_id, client_id, reader.at - at)


def _read_fields(data: Buffer, at: int, end: int, head: RequestHead) -> None:
    read = _FIELD_READERS.get(head.api.key)
    if read is not None:
        reader = Reader(data, at + head.body_at, end, BadRequestError)
        read(head, reader, at)
        head.head_len = reader.at - at


def _read_produce(head: RequestHead, reader: Reader, at: int) -> None:
    if head.api.version >= _PRODUCE_SINCE_TRANSACTIONAL_ID:
        head.transactional_id = reader.nullable_string(compact=head.api.flexible)
    head.acks = reader.int16()


def _read_fetch(head: RequestHead, reader: Reader, at: int) -> None:
    if head.api.version < _FETCH_SINCE_REPLICA_STATE:
        reader.int32()  # the replica id, which exempts no client
    _read_fetch_limits(head, reader, at)


def _read_share_fetch(head: RequestHead, reader: Reader, at: int) -> None:
    """Source: `ShareFetchRequest.json`, the same in all versions up to here: group id, member id, session epoch."""
    reader.skip(max(0, reader.string_length(compact=True)))
    reader.skip(max(0, reader.string_length(compact=True)))
    reader.int32()
    _read_fetch_limits(head, reader, at)


def _read_fetch_limits(head: RequestHead, reader: Reader, at: int) -> None:
    head.max_wait_ms_at = reader.at - at
    head.max_wait_ms = reader.int32()
    head.min_bytes_at = reader.at - at
    head.min_bytes = reader.int32()
    if head.api.key == ApiKey.SHARE_FETCH or head.api.version >= _FETCH_SINCE_MAX_BYTES:
        head.max_bytes_at = reader.at - at
        head.max_bytes = reader.int32()


_FIELD_READERS = {
    int(ApiKey.PRODUCE): _read_produce,
    int(ApiKey.FETCH): _read_fetch,
    int(ApiKey.SHARE_FETCH): _read_share_fetch,
}
