"""What stands in the bytes of an answer: where its throttle time is, what it counts, whether anything in it may have to change."""

from __future__ import annotations

from struct import Struct

from protocol.api_keys import ApiVersion
from protocol.errors import ProtocolError
from protocol.headers import response_header_len
from protocol.limits import LENGTH_BYTES, RESPONSE_HEAD_BYTES
from protocol.messages.fetch import tail_is_bare
from protocol.messages.produce import walk_produce
from protocol.messages.throttle_time import stamp, throttle_at
from proxy.session.looked import AT_ONCE_BYTES, UNTOLD, Looked
from proxy.session.request_context import ENDPOINTS, FETCH, PRODUCE, WALK, WHOLE, RequestContext

SIZE = Struct(">i")
STAMP_BYTES = 24  # enough of a Fetch answer to reach its throttle time when the header carries no tagged fields


def fetched_sizes(data: bytes | memoryview, at: int, count: int, header_version: int) -> list[int]:
    """What so many answers to fetches count each, from `at` on; their headers have no tags: see `fetched_bytes`."""
    sizes = []
    for _ in range(count):
        (size,) = SIZE.unpack_from(data, at)
        sizes.append(size - header_version)
        at += size + LENGTH_BYTES
    return sizes


def fetched_bytes(api: ApiVersion, data: bytes | memoryview, at: int, size: int) -> int:
    """What the answer to a Fetch counts: 4 + body, as Kafka meters it; the correlation id is the 4."""
    if not api.response_header_version:
        return size
    if size > LENGTH_BYTES and not data[at + RESPONSE_HEAD_BYTES]:
        return size - 1
    return size - ((response_header_len(api, data, at) or RESPONSE_HEAD_BYTES) - LENGTH_BYTES)


def bytes_to_stamp(api: ApiVersion, data: bytes | memoryview, at: int, frame_bytes: int) -> int:
    """How much of a Fetch answer it takes to reach its throttle time, when its header may carry tagged fields."""
    if not api.response_header_version:
        return STAMP_BYTES
    header_bytes = response_header_len(api, data, at)
    return min(frame_bytes, len(data) - at + 1 if header_bytes is None else header_bytes + STAMP_BYTES)


def throttle_place(api: ApiVersion, frame: bytes | memoryview, looked: Looked | None) -> int | None:
    """Where the throttle time stands in what is here of an answer."""
    return throttle_at(api, frame) if looked is None or looked.throttle_at == UNTOLD else looked.throttle_at


def announced(api: ApiVersion, piece: bytes | memoryview, announce_ms: int) -> bytes | memoryview:
    """Announce so much in the beginning of an answer, before anything in it is looked at."""
    at = throttle_at(api, piece)
    return piece if at is None or at < 0 else stamped(piece, at, announce_ms)


def stamped(frame: bytes | memoryview, at: int, announce_ms: int) -> bytes | memoryview:
    """Announce so much in an answer; one that is ours alone is changed where it lies."""
    if isinstance(frame, memoryview) and not frame.readonly:
        stamp(frame, at, announce_ms)
        return frame
    patched = bytearray(frame)
    stamp(patched, at, announce_ms)
    return bytes(patched)


def is_looked_at(head: RequestContext, rewrite: int, here_bytes: int, frame_bytes: int) -> bool:
    """Whether something is looked for in all of an answer, of which so much is here; of a Fetch that is not clean for certain."""
    if head.whole:
        return head.ticket is not None or bool(rewrite) or head.kind == PRODUCE
    return rewrite == WALK and AT_ONCE_BYTES < frame_bytes <= here_bytes


def may_change(head: RequestContext, here_bytes: int, frame_bytes: int) -> bool:
    """Whether something may have to change in a short answer, of which so much is here."""
    return head.rewrite in (WHOLE, ENDPOINTS) or (head.rewrite == WALK and here_bytes == frame_bytes <= AT_ONCE_BYTES)


def is_clean(head: RequestContext, rewrite: int, data: bytes | memoryview, at: int, frame_bytes: int) -> bool:
    """Whether an answer that might name new leaders is here in whole and names none, as nearly all of them; False where that takes long."""
    if rewrite == ENDPOINTS:
        return not walk_produce(head.api, data, at, at + frame_bytes, AT_ONCE_BYTES)[1]
    end = at + frame_bytes
    return rewrite == WALK and end <= len(data) and tail_is_bare(head.api, data, at, end)


def joined(pieces: list[bytes | memoryview]) -> bytes | memoryview | None:
    """What may leave, in one piece; None: nothing."""
    return (pieces[0] if len(pieces) == 1 else b"".join(pieces)) if pieces else None


def is_plain(head: RequestContext, data: bytes | memoryview, at: int, end: int) -> bool:
    """Whether the whole answer from `at` to `end` has a header without tags, and nothing in it may have to change."""
    if head.kind > FETCH or head.rewrite == WHOLE:
        return False
    if head.api.response_header_version and (end - at == RESPONSE_HEAD_BYTES or data[at + RESPONSE_HEAD_BYTES]):
        return False
    try:
        return not head.rewrite or is_clean(head, head.rewrite, data, at, end - at)
    except ProtocolError:  # for who can say so
        return False
