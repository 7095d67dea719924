"""Responses that are parsed whole before they are sent: short ones at once, long ones in steps between other events."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final, NamedTuple

from protocol.primitives import Buffer
from protocol.steps import Steps

AT_ONCE_BYTES: Final = 4 * 1024
"""Most bytes of frames that are parsed in one call, in at most a millisecond; the rest is parsed in steps."""
SEND_STEP_BYTES: Final = 256 * 1024
"""Most bytes of a long answer that are sent in one step."""
NOT_SEARCHED: Final = -2
"""`ParsedResponse.throttle_at` of a response whose throttle time is found without walking over it."""

LongAnswer = Generator["bytes | memoryview | None", int, None]
"""Parses a response in steps, then yields the bytes that are sent; receives the time (ms)."""


class ParsedResponse(NamedTuple):
    """What was found in a whole response.

    Attributes:
        frame: the response to send, apart from its throttle time; empty when it is not for the client.
        throttle_ms: throttle time by a quota on the content of the response.
        throttle_at: offset of the throttle time, None without one, UNTOLD where it is found without walking.
    """

    frame: bytes | memoryview
    throttle_ms: int = 0
    throttle_at: int | None = NOT_SEARCHED


def in_pieces(buffers: Iterable[Buffer]) -> LongAnswer:
    """Cut buffers into pieces, one for each step; nothing is copied."""
    for buffer in buffers:
        view = memoryview(buffer)
        for at in range(0, len(view), SEND_STEP_BYTES):
            yield view[at : at + SEND_STEP_BYTES]


def as_it_came(frame: bytes | memoryview) -> Steps[ParsedResponse]:
    """Return the frame as received, without parsing it."""
    return ParsedResponse(frame)
    yield
