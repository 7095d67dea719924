"""Responses that are parsed whole before they are sent: short ones at once, long ones in steps between other events."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final, NamedTuple

from protocol.primitives import Buffer
from protocol.steps import Steps

AT_ONCE_BYTES: Final = 4 * 1024
"""So many bytes of frames are looked at in one call, a millisecond at most; what is beyond is looked at in steps."""
LEAVING_BYTES: Final = 256 * 1024
"""Most bytes of a long answer that are sent in one step."""
UNTOLD: Final = -2
"""`Looked.throttle_at` of answers whose throttle time stands where nothing has to be walked for it."""

LongAnswer = Generator["bytes | memoryview | None", int, None]
"""Looks at an answer in steps, then lets it leave; yields what leaves now and is given the time (ms)."""


class Looked(NamedTuple):
    """What was found in a whole answer.

    Attributes:
        frame: as it may leave, apart from its throttle time; nothing where it is not the client's.
        throttle_ms: how long the quota of what the answer tells wants its client to wait.
        throttle_at: where the throttle time stands, None where there is none, UNTOLD where it is cheap to find.
    """

    frame: bytes | memoryview
    throttle_ms: int = 0
    throttle_at: int | None = UNTOLD


def in_pieces(buffers: Iterable[Buffer]) -> LongAnswer:
    """Cut what leaves into pieces that are sent one in a step; nothing is copied."""
    for buffer in buffers:
        view = memoryview(buffer)
        for at in range(0, len(view), LEAVING_BYTES):
            yield view[at : at + LEAVING_BYTES]


def as_it_came(frame: bytes | memoryview) -> Steps[Looked]:
    """Nothing has to be looked at."""
    return Looked(frame)
    yield
