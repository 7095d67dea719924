"""Where throttle_time_ms sits in each response; stamped in place."""

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion, ThrottlePosition
from protocol.errors import BadResponseError
from protocol.headers import frame_end, response_header_len
from protocol.layout import Skip, layout_of, reading, skip_fields
from protocol.limits import LENGTH_BYTES, RESPONSE_HEAD_BYTES
from protocol.messages.api_versions import UNSUPPORTED_VERSION
from protocol.primitives import INT16, INT32, Buffer

NOT_HERE_YET = -1
"""`throttle_at` cannot tell before more bytes of the frame have arrived."""

_FIELD = "ThrottleTimeMs"
_FIELD_BYTES = 4


def _walker_of(api: ApiVersion) -> Skip:
    layout = layout_of(api.key, "response", api.version)
    return skip_fields(layout.before(_FIELD), flexible=layout.flexible)


_WALKERS = {api.index: _walker_of(api) for api in API_VERSIONS.values() if api.throttle is ThrottlePosition.WALK}


def throttle_at(api: ApiVersion, data: Buffer, at: int = 0) -> int | None:
    """Return where the 4 bytes of throttle_time_ms stand, counted from `at`, the first byte of the frame's length.

    Returns:
        The offset; None when this frame has no such field; NOT_HERE_YET when more bytes are needed to tell.

    Raises:
        BadResponseError: the frame does not read as its API and version say.
    """
    if api.throttle is ThrottlePosition.NONE:
        return None
    if len(data) < at + RESPONSE_HEAD_BYTES:
        return NOT_HERE_YET
    end = frame_end(data, at)
    header_len = response_header_len(api, data, at)
    found = None if header_len is None else _position(api, data, at + LENGTH_BYTES + header_len, end)
    if found is not None and found + _FIELD_BYTES > end:
        raise BadResponseError("the frame ends before its throttle time")
    if found is None:
        return None if _is_v0_error(api, data, at) else NOT_HERE_YET
    return found - at


def _position(api: ApiVersion, data: Buffer, body_at: int, end: int) -> int | None:
    """Return the absolute offset of the field, or None when it has none or the bytes do not reach there."""
    if api.throttle is ThrottlePosition.FIRST:
        return body_at
    if api.key == ApiKey.API_VERSIONS and (len(data) < body_at + 2 or INT16.unpack_from(data, body_at)[0] == UNSUPPORTED_VERSION):
        return None
    try:
        with reading():
            found = _WALKERS[api.index](data, body_at)
    except BadResponseError:
        if len(data) < end:
            return None
        raise
    return found if len(data) >= end or found <= len(data) else None


def _is_v0_error(api: ApiVersion, data: Buffer, at: int) -> bool:
    """Return whether this is an ApiVersions answer with error 35: a v0 body, which ends before the field."""
    code_at = at + RESPONSE_HEAD_BYTES
    return api.key == ApiKey.API_VERSIONS and len(data) >= code_at + 2 and INT16.unpack_from(data, code_at)[0] == UNSUPPORTED_VERSION


def stamp(buffer: bytearray, at: int, throttle_ms: int) -> bool:
    """Raise the throttle time at `at` (absolute in `buffer`) to `throttle_ms`, never lower it; return whether it changed."""
    if INT32.unpack_from(buffer, at)[0] >= throttle_ms:
        return False
    INT32.pack_into(buffer, at, throttle_ms)
    return True
