"""Wake-up times of connections: one heap and one loop timer for all of them."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Protocol

from proxy.base.clock import now_ms

WAKES_PER_TURN = 500


class Waiter(Protocol):
    """An object with a wake-up time."""

    wake_at_ms: int
    """The wake-up time; 0: none. Owned by `ThrottledChannels`."""

    def wake(self, now_ms: int) -> None:
        """Called at the wake-up time."""


class ThrottledChannels:
    """Wakes each waiter at its deadline; only the last deadline of a waiter counts."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], int] = now_ms) -> None:
        self._loop = loop
        self._clock = clock
        self._heap: list[tuple[int, int, Waiter]] = []
        self._sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def __len__(self) -> int:
        return len({id(waiter) for at_ms, _, waiter in self._heap if waiter.wake_at_ms == at_ms})

    def schedule(self, waiter: Waiter, at_ms: int) -> None:
        """Wake `waiter` at `at_ms` instead of its previous time; 0 removes it."""
        if waiter.wake_at_ms == at_ms:
            return
        waiter.wake_at_ms = at_ms
        if not at_ms:
            return
        self._sequence += 1
        heapq.heappush(self._heap, (at_ms, self._sequence, waiter))
        if self._timer is None or at_ms < self._timer_ms:
            self._arm(at_ms)

    def close(self) -> None:
        """Stop waking channels."""
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = at_ms
        self._timer = self._loop.call_later(max(0, at_ms - self._clock()) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._clock()
        heap = self._heap
        for _ in range(WAKES_PER_TURN):
            if not heap or heap[0][0] > now:
                break
            at_ms, _, waiter = heapq.heappop(heap)
            if waiter.wake_at_ms == at_ms:
                waiter.wake_at_ms = 0
                waiter.wake(now)
        while heap and heap[0][2].wake_at_ms != heap[0][0]:
            heapq.heappop(heap)  # outdated: a later time was set, or the connection is gone
        if heap and (self._timer is None or heap[0][0] < self._timer_ms):  # `wake` may have set a later time
            self._arm(heap[0][0])
