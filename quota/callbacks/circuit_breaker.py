"""When to stop calling a callback that keeps failing."""

from collections import deque
from typing import Final

FAILURES_MAX: Final = 5
WITHIN_MS: Final = 30_000
OPEN_MS: Final = 30_000


class CircuitBreaker:
    """Opens for 30 s after 5 failures within 30 s, then lets calls through again.

    Attributes:
        opened: how often the breaker has opened.
        open_until_ms: no calls are made before this time.
    """

    __slots__ = ("_failures_ms", "open_until_ms", "opened")

    def __init__(self) -> None:
        self._failures_ms: deque[int] = deque(maxlen=FAILURES_MAX)
        self.open_until_ms = -(2**63)
        self.opened = 0

    def is_open(self, now_ms: int) -> bool:
        """Whether calls are suspended."""
        return now_ms < self.open_until_ms

    def failed(self, now_ms: int) -> None:
        """Count a failure, and open after too many."""
        self._failures_ms.append(now_ms)
        if len(self._failures_ms) == FAILURES_MAX and now_ms - self._failures_ms[0] <= WITHIN_MS:
            self._failures_ms.clear()
            self.open_until_ms = now_ms + OPEN_MS
            self.opened += 1
