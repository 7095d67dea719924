"""Where throttle_time_ms sits in each response; stamped in place."""

from protocol.api_keys import ApiVersion
from protocol.primitives import Buffer

NOT_HERE_YET = -1
"""`throttle_at` cannot tell before more bytes of the frame have arrived."""


def throttle_at(api: ApiVersion, data: Buffer, at: int = 0) -> int | None:
    """Return where the 4 bytes of throttle_time_ms stand, counted from `at`, the first byte of the frame's length.

    Returns:
        The offset; None when this frame has no such field; NOT_HERE_YET when more bytes are needed to tell.

    Raises:
        BadResponseError: the frame does not read as its API and version say.
    """
    raise NotImplementedError


def stamp(buffer: bytearray, at: int, throttle_ms: int) -> bool:
    """Raise the throttle time at `at` (absolute in `buffer`) to `throttle_ms`, never lower it; return whether it changed."""
    raise NotImplementedError
