"""What the bytes of a response show: the offset of its throttle time, its size for quotas, whether it may have to be changed."""

from __future__ import annotations

from struct import Struct

from protocol.api_keys import ApiVersion
from protocol.errors import ProtocolError
from protocol.headers import response_header_len
from protocol.limits import LENGTH_BYTES, RESPONSE_HEAD_BYTES
from protocol.messages.fetch.tail import tail_is_bare
from protocol.messages.produce import walk_produce
from protocol.messages.throttle_time import stamp, throttle_at
from proxy.session.parsed_response import AT_ONCE_BYTES, NOT_SEARCHED, ParsedResponse
from proxy.session.request_context import ENDPOINTS, FETCH, PRODUCE, WALK, WHOLE, RequestContext

SIZE = Struct(">i")
HEAD = Struct(">ii")  # size, correlation id
STAMP_BYTES = 24  # enough of a Fetch response to reach its throttle time when the header has no tagged fields


def fetched_sizes(data: bytes | memoryview, at: int, count: int, header_version: int) -> list[int]:
    """Return the bytes that each of `count` responses to fetches counts, from `at` on; their headers have no tags: see `fetched_bytes`."""
    sizes = []
    for _ in range(count):
        (size,) = SIZE.unpack_from(data, at)
        sizes.append(size - header_version)
        at += size + LENGTH_BYTES
    return sizes


def fetched_bytes(api: ApiVersion, data: bytes | memoryview, at: int, size: int) -> int:
    """Return the bytes that the response to a Fetch counts: 4 + body, as in Kafka; the correlation id is the 4."""
    if not api.response_header_version:
        return size
    if size > LENGTH_BYTES and not data[at + RESPONSE_HEAD_BYTES]:
        return size - 1
    return size - ((response_header_len(api, data, at) or RESPONSE_HEAD_BYTES) - LENGTH_BYTES)


def bytes_to_stamp(api: ApiVersion, data: bytes | memoryview, at: int, frame_bytes: int) -> int:
    """Return how many bytes of a Fetch response reach its throttle time, when its header may have tagged fields."""
    if not api.response_header_version:
        return STAMP_BYTES
    header_bytes = response_header_len(api, data, at)
    return min(frame_bytes, len(data) - at + 1 if header_bytes is None else header_bytes + STAMP_BYTES)


def throttle_place(api: ApiVersion, frame: bytes | memoryview, parsed: ParsedResponse | None) -> int | None:
    """Return the offset of the throttle time in the available bytes of a response."""
    return throttle_at(api, frame) if parsed is None or parsed.throttle_at == NOT_SEARCHED else parsed.throttle_at


def announced(api: ApiVersion, piece: bytes | memoryview, announce_ms: int) -> bytes | memoryview:
    """Write the throttle time into the beginning of a response, before the response is parsed."""
    at = throttle_at(api, piece)
    return piece if at is None or at < 0 else stamped(piece, at, announce_ms)


def stamped(frame: bytes | memoryview, at: int, announce_ms: int) -> bytes | memoryview:
    """Write the throttle time into a response; one of Sluice's own is changed in place."""
    if isinstance(frame, memoryview) and not frame.readonly:
        stamp(frame, at, announce_ms)
        return frame
    patched = bytearray(frame)
    stamp(patched, at, announce_ms)
    return bytes(patched)


def is_parsed_whole(head: RequestContext, rewrite: int, here_bytes: int, frame_bytes: int) -> bool:
    """Whether a response has to be parsed whole; for a Fetch, unless it is certainly clean."""
    if head.whole:
        return head.ticket is not None or bool(rewrite) or head.kind == PRODUCE
    return rewrite == WALK and AT_ONCE_BYTES < frame_bytes <= here_bytes


def may_change(head: RequestContext, here_bytes: int, frame_bytes: int) -> bool:
    """Whether a short response may have to be changed."""
    return head.rewrite in (WHOLE, ENDPOINTS) or (head.rewrite == WALK and here_bytes == frame_bytes <= AT_ONCE_BYTES)


def is_clean(head: RequestContext, rewrite: int, data: bytes | memoryview, at: int, frame_bytes: int) -> bool:
    """Whether a complete response that might name new leaders names none, as nearly all; False also when that takes long to tell."""
    if rewrite == ENDPOINTS:
        return not walk_produce(head.api, data, at, at + frame_bytes, AT_ONCE_BYTES)[1]
    end = at + frame_bytes
    return rewrite == WALK and end <= len(data) and tail_is_bare(head.api, data, at, end)


def joined(pieces: list[bytes | memoryview]) -> bytes | memoryview | None:
    """Return the pieces as one; None: there are none."""
    return (pieces[0] if len(pieces) == 1 else b"".join(pieces)) if pieces else None


def is_plain(head: RequestContext, data: bytes | memoryview, at: int, end: int) -> bool:
    """Whether the complete response from `at` to `end` has a header without tags, and certainly needs no change."""
    if head.kind > FETCH or head.rewrite == WHOLE:
        return False
    if head.api.response_header_version and (end - at == RESPONSE_HEAD_BYTES or data[at + RESPONSE_HEAD_BYTES]):
        return False
    try:
        return not head.rewrite or is_clean(head, head.rewrite, data, at, end - at)
    except ProtocolError:  # for the types that can tell
        return False
