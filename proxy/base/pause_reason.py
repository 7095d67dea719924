"""Reasons to pause reading a socket. Each is set and cleared independently; the socket is read when none is set."""

from __future__ import annotations

from typing import Final

# Plain ints: an IntFlag costs a microsecond per operation, and these are set on the data path.
THROTTLE: Final = 1  # a quota: reading is off, or a response is held
PEER_FULL: Final = 2  # the other side does not read
IN_FLIGHT: Final = 4  # the limit of requests in flight, or of frames in one turn
DRAIN: Final = 8
MEMORY: Final = 16  # the process exceeds its buffer budget
LONG_ANSWER: Final = 32  # a long response is parsed in steps
LONG_REQUEST: Final = 64  # the rest of a long request is read in its turn

REASON_NAMES: Final = {
    THROTTLE: "throttle",
    PEER_FULL: "peer_full",
    IN_FLIGHT: "in_flight",
    DRAIN: "drain",
    MEMORY: "memory",
    LONG_ANSWER: "long_answer",
    LONG_REQUEST: "long_request",
}
