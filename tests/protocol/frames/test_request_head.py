"""The request header: limits, truncation, and unknown APIs. Golden frames have the values."""

import struct

import pytest

from protocol.api_keys import ApiKey, Treatment
from protocol.errors import BadHeaderError, BadRequestError, ProtocolError, UnknownApiError, UnknownVersionError
from protocol.limits import MAX_STRING_BYTES, MAX_TAGGED_FIELD_BYTES, MAX_TAGGED_FIELDS
from protocol.request_head import RequestHead, read_request_head

METADATA_V12 = (ApiKey.METADATA, 12)


def head_bytes(key: int, version: int, client_id: bytes | None = b"app", rest: bytes = b"") -> bytes:
    """Return a frame with header v1 and then `rest`."""
    name = struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id)) + client_id
    body = struct.pack(">hhi", key, version, 7) + name + rest
    return struct.pack(">i", len(body)) + body


def read(frame: bytes, **options: bool) -> RequestHead | None:
    """Read the head of a complete frame."""
    return read_request_head(frame, 0, len(frame) - 4, **options)


def uvarint(value: int) -> bytes:
    """Return an unsigned varint of up to 21 bits."""
    return bytes([value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14])


def test_it_reads_where_the_frame_lies() -> None:
    """Offsets count from the frame's length field, wherever the frame begins in the chunk."""
    frame = head_bytes(ApiKey.PRODUCE, 9, rest=b"\x00\x00\xff\xff" + bytes(20))
    head = read_request_head(b"xxx" + frame + b"yyy", 3, len(frame) - 4)
    assert head is not None
    assert (head.correlation_id, head.client_id, head.acks, head.transactional_id) == (7, "app", -1, None)
    assert frame[: head.head_len].endswith(b"\x00\x00\xff\xff")


def test_every_cut_of_a_head_asks_for_more() -> None:
    """The head is None until its last byte has arrived, and the same from then on."""
    frame = head_bytes(ApiKey.FETCH, 12, rest=b"\x01\x05\x02ab" + struct.pack(">iiii", -1, 500, 1, 52428800) + bytes(30))
    whole = read(frame)
    assert whole is not None
    for end in range(len(frame)):
        head = read_request_head(frame[:end], 0, len(frame) - 4)
        assert (head is None) == (end < whole.head_len)
    assert (whole.max_wait_ms, whole.min_bytes, whole.max_bytes) == (500, 1, 52428800)


@pytest.mark.parametrize("size", range(8))
def test_a_frame_too_small_for_a_header_is_refused(size: int) -> None:
    """A frame whose length is below that of a header is refused before its body arrives."""
    with pytest.raises(BadHeaderError):
        read_request_head(struct.pack(">i", size) + bytes(20), 0, size)


def test_a_client_id_longer_than_the_frame_is_refused_at_once() -> None:
    """A client-id that is longer than its frame is refused without waiting for more bytes."""
    frame = struct.pack(">ihhih", 40, 3, 1, 7, 1000)
    with pytest.raises(BadHeaderError):
        read_request_head(frame, 0, 40)


@pytest.mark.parametrize("length", [-2, -32768])
def test_a_negative_length_is_refused(length: int) -> None:
    """A negative length of the client-id other than -1, which means null, is refused."""
    frame = struct.pack(">ihhih", 40, 3, 1, 7, length) + bytes(30)
    with pytest.raises(BadHeaderError):
        read(frame)


@pytest.mark.parametrize(("client_id", "expected"), [(None, None), (b"", ""), (b"\xff", "�"), (b"c" * MAX_STRING_BYTES, None)])
def test_client_ids(client_id: bytes | None, expected: str | None) -> None:
    """A client-id may be null, empty, not UTF-8, or as long as the protocol allows."""
    head = read(head_bytes(ApiKey.METADATA, 1, client_id, bytes(4)))
    assert head is not None
    assert head.client_id_bytes == client_id
    assert head.client_id == (expected if client_id is None or len(client_id) < 2 else client_id.decode())


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param(bytes([MAX_TAGGED_FIELDS + 1]) + b"\x01\x00" * (MAX_TAGGED_FIELDS + 1), id="too-many"),
        pytest.param(b"\x01\x01" + uvarint(MAX_TAGGED_FIELD_BYTES + 1) + bytes(MAX_TAGGED_FIELD_BYTES + 1), id="too-large"),
        pytest.param(b"\x03" + (b"\x01" + uvarint(60_000) + bytes(60_000)) * 3, id="header-too-large"),
        pytest.param(b"\x01\x01\xff\xff\xff\xff\x07", id="size-from-the-wire"),
        pytest.param(b"\xff\xff\xff\xff\xff\xff", id="endless-varint"),
    ],
)
def test_header_limits(tags: bytes) -> None:
    """A header with more than 64 tagged fields, one above 64 KiB or more than 160 KiB in all is refused."""
    with pytest.raises(BadHeaderError):
        read(head_bytes(*METADATA_V12, rest=tags + bytes(4)))


def test_as_many_tagged_fields_as_allowed() -> None:
    """A header with the largest allowed number of tagged fields is read."""
    tags = bytes([MAX_TAGGED_FIELDS]) + b"\x01\x00" * MAX_TAGGED_FIELDS
    head = read(head_bytes(*METADATA_V12, rest=tags + bytes(4)))
    assert head is not None
    assert head.body_at == head.head_len == 17 + len(tags)


def test_an_unknown_version_of_a_known_key() -> None:
    """An unknown version of a known API is an error with a close reason of its own."""
    with pytest.raises(UnknownVersionError) as caught:
        read(head_bytes(ApiKey.PRODUCE, 99))
    assert caught.value.reason == "version_unknown"


@pytest.mark.parametrize("key", [93, 10_000, -1])
def test_an_unknown_key(key: int) -> None:
    """An unknown API is an error unless the operator allows vendor APIs."""
    frame = head_bytes(key, 2, rest=bytes(10))
    with pytest.raises(UnknownApiError) as caught:
        read(frame)
    assert caught.value.reason == "api_unknown"
    head = read(frame, unknown_apis_pass=True)
    assert head is not None
    assert (head.correlation_id, head.client_id, head.api.treatment) == (7, "app", Treatment.PASS)


def test_api_versions_from_the_future_is_read() -> None:
    """An ApiVersions request of a version above the highest known one is read, as KIP-511 requires."""
    head = read(head_bytes(ApiKey.API_VERSIONS, 77, rest=b"\x00\x02a\x02b\x00"))
    assert head is not None
    assert (head.api.version, head.api.treatment, head.client_id) == (77, Treatment.ANSWER, "app")


def test_a_negative_version_of_api_versions_is_unknown() -> None:
    """An ApiVersions request of a negative version is an unknown version."""
    with pytest.raises(UnknownVersionError):
        read(head_bytes(ApiKey.API_VERSIONS, -1))


def test_a_produce_without_acks_is_a_bad_request() -> None:
    """A Produce request whose body ends before acks has the close reason of a bad request."""
    with pytest.raises(BadRequestError) as caught:
        read(head_bytes(ApiKey.PRODUCE, 3, rest=b"\xff\xff\x00"))
    assert caught.value.reason == "bad_request"


def test_every_error_has_a_reason() -> None:
    """Each class of ProtocolError has a close reason, and an instance may have a more specific one."""
    reasons = [kind.reason for kind in ProtocolError.__subclasses__()]
    assert len(set(reasons)) == len(reasons) == 9
    assert ProtocolError("no listener", reason="unmapped").reason == "unmapped"
