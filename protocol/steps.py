"""Walks over thousands of items in steps: a generator pauses after some items, so that the event loop can run other callbacks.

A walk receives the time (ms) at each pause. Walks that record what they find use it; the others ignore it.
"""

from collections.abc import Generator
from typing import Final, TypeVar

T = TypeVar("T")

Steps = Generator[None, int, T]
"""Pauses without a value, takes the time in milliseconds, and returns its result."""

ITEMS_PER_STEP: Final = 256
"""Most items (topics, partitions, configurations, tagged fields) that a walk processes between two pauses, in about a millisecond."""


class Pace:
    """Counts the items of one walk, and says when to pause.

    Attributes:
        items: number of items so far.
    """

    __slots__ = ("_pause_at", "items")

    def __init__(self) -> None:
        self.items = 0
        self._pause_at = ITEMS_PER_STEP

    def due(self, items: int = 1) -> bool:
        """Count items that were just processed; return whether the walk has to pause now."""
        self.items += items
        if self.items < self._pause_at:
            return False
        self._pause_at = self.items + ITEMS_PER_STEP
        return True


def finished(steps: Steps[T], now_ms: int = 0) -> T:
    """Run a walk to its end without pauses, at one time, and return its result."""
    try:
        next(steps)
        while True:
            steps.send(now_ms)
    except StopIteration as end:
        result: T = end.value
        return result
