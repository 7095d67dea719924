"""Handshakes take turns: a few steps in each round of the loop, so that a flood of them delays nobody else."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

STEPS_PER_TURN: Final = 8
"""A step with an RSA key takes most of a millisecond."""


class HandshakeQueue:
    """The steps that wait for their turn, oldest first."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._taken = 0
        self._is_due = False

    def ask(self, step: Callable[[], None]) -> None:
        """Take a step now if this round has room for it, else in one of the next."""
        if self._taken < STEPS_PER_TURN and not self._waiting:
            self._taken += 1
            self._next_round_soon()
            step()
        else:
            self._waiting.append(step)
            self._next_round_soon()

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
            self._waiting.popleft()()
