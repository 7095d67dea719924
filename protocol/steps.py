"""Walks over thousands of items in steps: a generator pauses after some items, so that the event loop can run other callbacks.

A walk is a generator. It is given the time (ms) at each pause, for walks that record what they find; the others do not look at it.
"""

from collections.abc import Generator
from typing import Final, TypeVar

T = TypeVar("T")

Steps = Generator[None, int, T]
"""Pauses without a value, takes the time in milliseconds, and returns its result."""

ITEMS_PER_STEP: Final = 256
"""Most items (topics, partitions, configurations, tagged fields) that a walk looks at between two pauses: about a millisecond's work."""


class Pace:
    """Counts the items of one walk: says when to pause, and adds up what was walked.

    Attributes:
        items: how many were counted.
    """

    __slots__ = ("_pause_at", "items")

    def __init__(self) -> None:
        self.items = 0
        self._pause_at = ITEMS_PER_STEP

    def due(self, items: int = 1) -> bool:
        """Count items that were just looked at; return whether the walk has to pause now."""
        self.items += items
        if self.items < self._pause_at:
            return False
        self._pause_at = self.items + ITEMS_PER_STEP
        return True


def finished(steps: Steps[T], now_ms: int = 0) -> T:
    """Run a walk to its end at once, at one time, and return its result."""
    try:
        next(steps)
        while True:
            steps.send(now_ms)
    except StopIteration as end:
        result: T = end.value
        return result
