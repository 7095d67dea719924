"""Frames of one length in a row: one call compares the heads of all of them.

A loop over the frames costs several hundred ns for each; these calls cost about a third of it. Only frames that equal the first one are
found here; the callers follow all others one by one.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

from protocol.limits import HEAD_BYTES, LENGTH_BYTES, RESPONSE_HEAD_BYTES

EQUAL_FRAMES_MIN = 4  # fewer frames are followed faster one by one
_KNOWN_STRUCTS_MAX = 128  # making one costs less than following its frames one by one


@lru_cache(_KNOWN_STRUCTS_MAX)
def _requests(size: int, prefix_bytes: int, count: int) -> Struct:
    rest_bytes = LENGTH_BYTES + size - HEAD_BYTES - prefix_bytes
    return Struct(">" + f"Qi{prefix_bytes}s{rest_bytes}x" * count)


@lru_cache(_KNOWN_STRUCTS_MAX)
def _responses(size: int, count: int) -> Struct:
    return Struct(">" + f"ii{LENGTH_BYTES + size - RESPONSE_HEAD_BYTES}x" * count)


def equal_requests(data: bytes | bytearray, at: int, size: int, index: int, prefix: bytes, count: int) -> tuple[int, ...] | None:
    """Return the correlation ids of `count` requests from `at` on; None: not all of them have this size and head.

    Args:
        data: contains all the requests, whole.
        at: the offset of the first.
        size: the size of each, without its length field, in bytes; at least that of its head.
        index: API key and version of each, as one number.
        prefix: the bytes of each behind its correlation id.
        count: number of requests.
    """
    fields = _requests(size, len(prefix), count).unpack_from(data, at)
    if fields[::3].count(size << 32 | index) != count or fields[2::3].count(prefix) != count:
        return None
    return fields[1::3]


def equal_responses(data: bytes | memoryview, at: int, size: int, count: int) -> tuple[int, ...] | None:
    """Return the correlation ids of `count` responses from `at` on; None: not all of them have this size.

    Args:
        data: contains all the responses, whole.
        at: the offset of the first.
        size: the size of each, without its length field, in bytes; at least that of a correlation id.
        count: number of responses.
    """
    fields = _responses(size, count).unpack_from(data, at)
    return fields[1::2] if fields[::2].count(size) == count else None
