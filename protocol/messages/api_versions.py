"""ApiVersions responses (18): reduced to what Sluice can handle, and replaced when a broker's response is malformed.

Their header is always v0. A response with error 35 has a v0 body whatever the version of the request (KIP-511).
"""

from collections.abc import Container, Mapping
from struct import Struct
from typing import NamedTuple

from protocol.api_keys import ApiKey
from protocol.errors import BadResponseError
from protocol.layout import read_count, reading, skip_tags
from protocol.limits import HEAD_BYTES, LENGTH_BYTES, RESPONSE_HEAD_BYTES
from protocol.primitives import INT16, INT32, Buffer, string, uvarint, with_length

UNSUPPORTED_VERSION = 35
"""Kafka's error code for a version that the broker does not know."""

_FLEXIBLE_SINCE = 3
_ENTRY = Struct(">hhh")  # api key, lowest version, highest version
_ARRAY_AT = RESPONSE_HEAD_BYTES + 2
_NO_TAGS = b"\x00"


class _Entry(NamedTuple):
    """One entry and where it stands, its tag section included."""

    key: int
    min_version: int
    max_version: int
    at: int
    end: int


def error_code(frame: Buffer) -> int:
    """Return the error code of an ApiVersions response; its position is the same in all versions."""
    if len(frame) < _ARRAY_AT:
        raise BadResponseError(f"an ApiVersions response of {len(frame)} bytes")
    code: int = INT16.unpack_from(frame, RESPONSE_HEAD_BYTES)[0]
    return code


def read_api_keys(version: int, frame: bytes) -> list[tuple[int, int, int]]:
    """Return (key, lowest version, highest version) of every entry, in wire order.

    Raises:
        BadResponseError: the frame does not match its version, or v0 when it has error 35.
    """
    flexible = version >= _FLEXIBLE_SINCE and error_code(frame) != UNSUPPORTED_VERSION
    entries, _ = _read_entries(frame, flexible=flexible)
    return [entry[:3] for entry in entries]


def intersect(version: int, frame: bytes, maximum: Mapping[int, int], drop: Container[int], own: Mapping[int, tuple[int, int]]) -> bytes:
    """Return the response `frame` (to a request of `version`) with its version ranges reduced.

    A key in `own` gets exactly that range. Any other key in `drop` is removed; the rest are capped by `maximum`, and removed when
    no version remains. Keys of `own` that the broker lacks are appended. Minima are never raised: clients take a higher minimum of
    Produce for a broker that they cannot talk to (KAFKA-18659). All other bytes stay the same, and a response with error 35 is
    returned unchanged.

    Raises:
        BadResponseError: the frame does not match its version.
    """
    if error_code(frame) == UNSUPPORTED_VERSION:
        return frame
    flexible = version >= _FLEXIBLE_SINCE
    entries, after = _read_entries(frame, flexible=flexible)
    kept = [_cut(frame, entry, maximum, drop, own) for entry in entries]
    written = [entry for entry in kept if entry]
    present = {entry.key for entry in entries}
    written += [_ENTRY.pack(key, *own[key]) + _NO_TAGS * flexible for key in sorted(own) if key not in present]
    count = uvarint(len(written) + 1) if flexible else INT32.pack(len(written))
    return with_length(b"".join((frame[LENGTH_BYTES:_ARRAY_AT], count, *written, frame[after:])))


def _read_entries(frame: bytes, *, flexible: bool) -> tuple[list[_Entry], int]:
    """Return the entries and the offset after them."""
    entries: list[_Entry] = []
    error_code(frame)
    with reading():
        count, at = read_count(frame, _ARRAY_AT, compact=flexible)
        for _ in range(count):
            key, lowest, highest = _ENTRY.unpack_from(frame, at)
            end = skip_tags(frame, at + _ENTRY.size) if flexible else at + _ENTRY.size
            entries.append(_Entry(key, lowest, highest, at, end))
            at = end
    if at > len(frame):
        raise BadResponseError("the entries go past the end of the frame")
    return entries, at


def _cut(frame: bytes, entry: _Entry, maximum: Mapping[int, int], drop: Container[int], own: Mapping[int, tuple[int, int]]) -> bytes:
    """Return the new bytes of `entry`; empty when it is removed."""
    tags = frame[entry.at + _ENTRY.size : entry.end]
    if entry.key in own:
        return _ENTRY.pack(entry.key, *own[entry.key]) + tags
    if entry.key in drop:
        return b""
    highest = min(entry.max_version, maximum.get(entry.key, entry.max_version))
    return _ENTRY.pack(entry.key, entry.min_version, highest) + tags if highest >= entry.min_version else b""


def fallback_response(correlation_id: int, max_version: int) -> bytes:
    """Return the v0 response with error 35 that names the versions of ApiVersions itself (KIP-511)."""
    entry = _ENTRY.pack(ApiKey.API_VERSIONS, 0, max_version)
    return with_length(INT32.pack(correlation_id) + INT16.pack(UNSUPPORTED_VERSION) + INT32.pack(1) + entry)


def repair(version: int, frame: bytes, max_version: int) -> bytes:
    """Return `frame`, or a well-formed response in place of an error-35 response that is not valid v0.

    librdkafka's mock cluster sends such responses to requests of a flexible `version`: an element count of one byte where v0 has
    four. The replacement names the versions of ApiVersions that follow that byte, capped to `max_version`.

    Raises:
        BadResponseError: the frame is too short for an error code.
    """
    if error_code(frame) != UNSUPPORTED_VERSION or version < _FLEXIBLE_SINCE:
        return frame
    try:
        _, after = _read_entries(frame, flexible=False)
    except BadResponseError:
        after = -1
    if after == len(frame):
        return frame
    (correlation_id,) = INT32.unpack_from(frame, LENGTH_BYTES)
    return fallback_response(correlation_id, min(max_version, _highest_behind_short_count(frame)))


def _highest_behind_short_count(frame: bytes) -> int:
    """Return the highest version of ApiVersions in a response whose element count is one byte, 0 when it has none."""
    if len(frame) < _ARRAY_AT + 1:
        return 0
    count, first = frame[_ARRAY_AT], _ARRAY_AT + 1
    for at in range(first, min(first + count * _ENTRY.size, len(frame) - _ENTRY.size + 1), _ENTRY.size):
        key, _, highest = _ENTRY.unpack_from(frame, at)
        if key == ApiKey.API_VERSIONS:
            return max(0, int(highest))
    return 0


def request_v0(correlation_id: int, client_id: str) -> bytes:
    """Return an ApiVersions request v0, which every broker answers."""
    head = _ENTRY.pack(ApiKey.API_VERSIONS, 0, 0)[: HEAD_BYTES - LENGTH_BYTES - 4]
    return with_length(head + INT32.pack(correlation_id) + string(client_id, compact=False))
