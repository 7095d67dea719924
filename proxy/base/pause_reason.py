"""Reasons not to read a socket. Each is set and cleared independently; the socket is read when none is set."""

from __future__ import annotations

from typing import Final

# Plain ints: an IntFlag costs a microsecond per operation, and these are set on the data path.
THROTTLE: Final = 1  # a quota: reading is off, or an answer is held
PEER_FULL: Final = 2  # the other side does not take what we have
IN_FLIGHT: Final = 4  # enough requests forwarded, or enough frames for one turn
DRAIN: Final = 8
MEMORY: Final = 16  # the process holds too much
LONG_ANSWER: Final = 32  # a long answer is looked at in steps
LONG_REQUEST: Final = 64  # the rest of a long request is read when its turn comes

REASON_NAMES: Final = {
    THROTTLE: "throttle",
    PEER_FULL: "peer_full",
    IN_FLIGHT: "in_flight",
    DRAIN: "drain",
    MEMORY: "memory",
    LONG_ANSWER: "long_answer",
    LONG_REQUEST: "long_request",
}
