"""Limits handshakes to a few steps in each turn of the event loop, so that many or stalled ones do not delay other clients."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from typing import Final, Protocol

STEPS_PER_TURN: Final = 8
"""A step with an RSA key takes most of a millisecond."""
UNDER_WAY_MAX: Final = 64
STALLED_S: Final = 1.0
"""A peer is stalled when it has sent nothing for this time during its handshake."""


class Handshake(Protocol):
    """One end of a connection whose handshake is under way."""

    def continue_handshake(self) -> None:
        """Take one step with what the peer has sent."""

    def stalled(self) -> None:
        """End the handshake, because others need its place."""


class HandshakeQueue:
    """The queue of handshake steps, oldest first, and the handshakes under way.

    A peer whose handshake has begun costs memory. With more than `UNDER_WAY_MAX` handshakes, a new one ends the one that has been silent
    for longest, if that is longer than `STALLED_S`; a handshake that makes progress is never ended, and none waits for stalled ones.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Handshake] = deque()
        self._under_way: dict[Handshake, float] = {}  # time of the last progress, the oldest first
        self._taken = 0
        self._is_due = False

    @property
    def under_way(self) -> int:
        """Number of peers whose handshake has begun and is not finished."""
        return len(self._under_way)

    def ask(self, one: Handshake) -> None:
        """Do a step now if the limit of this turn allows, else in a later turn."""
        self._under_way.pop(one, None)
        self._under_way[one] = now_s = self._loop.time()
        if len(self._under_way) > UNDER_WAY_MAX:
            self._end_the_stalled(now_s)
        if self._taken < STEPS_PER_TURN and not self._waiting:
            self._taken += 1
            self._next_round_soon()
            one.continue_handshake()
        else:
            self._waiting.append(one)
            self._next_round_soon()

    def done(self, one: Handshake) -> None:
        """The handshake has ended, successfully or not."""
        self._under_way.pop(one, None)

    def _end_the_stalled(self, now_s: float) -> None:
        """End up to two stalled handshakes for each new one, so that their number decreases."""
        for one in list(itertools.islice(self._under_way, 2)):
            if len(self._under_way) <= UNDER_WAY_MAX or now_s - self._under_way[one] < STALLED_S:
                return
            del self._under_way[one]
            one.stalled()

    def _next_round_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._next_round)

    def _next_round(self) -> None:
        self._is_due = False
        self._taken = min(len(self._waiting), STEPS_PER_TURN)
        if self._waiting:
            self._next_round_soon()
        for _ in range(self._taken):
            self._waiting.popleft().continue_handshake()
