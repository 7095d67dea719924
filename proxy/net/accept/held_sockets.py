"""Sockets of clients that connect too fast: they stay open, are never read, and are closed at the end of their delay.

A client whose connection is closed at once reconnects at once; a client that is held waits. Its socket is not read, so it costs only
a descriptor. Kafka's queue yields the latest deadline first, so a constant stream delays every close; here the earliest is first.
"""

from __future__ import annotations

import asyncio
import heapq
import socket
from collections.abc import Callable
from typing import Final

from proxy.base.clock import now_ms

HELD_MAX: Final = 1_024


class HeldSockets:
    """Closes each socket at its deadline, the earliest first, with one loop timer for all of them.

    Args:
        on_closed: called for each socket that was closed.
        clock: milliseconds, monotonic.
    """

    def __init__(self, on_closed: Callable[[], None], clock: Callable[[], int] = now_ms) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_closed = on_closed
        self._clock = clock
        self._heap: list[tuple[int, int, socket.socket]] = []
        self._sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def __len__(self) -> int:
        return len(self._heap)

    def hold(self, sock: socket.socket, until_ms: int) -> None:
        """Keep a socket unread until `until_ms`, then close it."""
        self._sequence += 1
        heapq.heappush(self._heap, (until_ms, self._sequence, sock))
        if self._timer is None or until_ms < self._timer_ms:
            self._arm(until_ms)

    def close(self) -> None:
        """Close all sockets now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._heap:
            self._close_first()

    def _arm(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = at_ms
        self._timer = self._loop.call_later(max(0, at_ms - self._clock()) / 1_000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            self._close_first()
        if self._heap:
            self._arm(self._heap[0][0])

    def _close_first(self) -> None:
        _, _, sock = heapq.heappop(self._heap)
        sock.close()
        self._on_closed()
