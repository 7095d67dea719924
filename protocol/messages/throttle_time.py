"""Position of throttle_time_ms in each response; it is stamped in place."""

import struct

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion, ThrottlePosition
from protocol.errors import BadResponseError
from protocol.headers import frame_end, response_header_len
from protocol.layout import Skip, layout_of, skip_fields
from protocol.limits import LENGTH_BYTES, RESPONSE_HEAD_BYTES
from protocol.messages.api_versions import UNSUPPORTED_VERSION
from protocol.primitives import INT16, INT32, Buffer

NEEDS_MORE_BYTES = -1
"""`throttle_at` needs more bytes of the frame."""

_FIELD = "ThrottleTimeMs"
_FIELD_BYTES = 4
_ERROR_CODE_BYTES = 2


def _walker_of(api: ApiVersion) -> Skip:
    layout = layout_of(api.key, "response", api.version)
    return skip_fields(layout.before(_FIELD), flexible=layout.flexible)


_WALKERS = {api.index: _walker_of(api) for api in API_VERSIONS.values() if api.throttle is ThrottlePosition.WALK}


def throttle_at(api: ApiVersion, data: Buffer, at: int = 0) -> int | None:
    """Return the offset of the 4 bytes of throttle_time_ms, counted from `at`, the first byte of the frame's length.

    Returns:
        The offset; None when this frame has no such field; NEEDS_MORE_BYTES when more bytes are needed to tell.

    Raises:
        BadResponseError: the frame does not match its API and version.
    """
    if api.throttle is ThrottlePosition.NONE:
        return None
    if len(data) < at + RESPONSE_HEAD_BYTES:
        return NEEDS_MORE_BYTES
    end = frame_end(data, at)
    header_len = response_header_len(api, data, at)
    if header_len is None:
        return _not_here(data, end)
    body_at = at + LENGTH_BYTES + header_len
    if api.throttle is ThrottlePosition.FIRST:
        found = body_at
    elif api.key != ApiKey.API_VERSIONS:
        found = _walk(api, data, body_at, end)
    elif len(data) < body_at + _ERROR_CODE_BYTES:
        return _not_here(data, end)
    elif INT16.unpack_from(data, body_at)[0] == UNSUPPORTED_VERSION:
        return None  # a v0 body, whatever the version of the request
    else:
        found = _walk(api, data, body_at, end)
    if found + _FIELD_BYTES > end:
        raise BadResponseError("the frame ends before its throttle time")
    return found if found == NEEDS_MORE_BYTES else found - at


def _walk(api: ApiVersion, data: Buffer, body_at: int, end: int) -> int:
    """Return the absolute offset of the field, or NEEDS_MORE_BYTES."""
    try:
        return _WALKERS[api.index](data, body_at)
    except (IndexError, struct.error):
        return _not_here(data, end)


def _not_here(data: Buffer, end: int) -> int:
    if len(data) >= end:
        raise BadResponseError("the frame ends before its throttle time")
    return NEEDS_MORE_BYTES


def stamp(buffer: bytearray | memoryview, at: int, throttle_ms: int) -> bool:
    """Raise the throttle time at `at` (an offset in `buffer`) to `throttle_ms`, never lower it; return whether it changed."""
    if INT32.unpack_from(buffer, at)[0] >= throttle_ms:
        return False
    INT32.pack_into(buffer, at, throttle_ms)
    return True
