"""Quotas that another process announces in shared memory: they are applied before the next request is classified."""

from __future__ import annotations

from collections.abc import Callable


class AnnouncedQuotas:
    """The generation of quotas that another process has announced, and the generation in force here.

    Channels compare the two at every read, in place, since a call would cost each read as much as the comparison.

    Attributes:
        announced: one word of shared memory, which the other process writes.
        in_force: the generation in force here, or that of quotas that did not arrive in time.
        catch_up: applies the announced quotas, and sets `in_force`.
    """

    __slots__ = ("announced", "catch_up", "in_force")

    def __init__(self, announced: memoryview, catch_up: Callable[[int], None]) -> None:
        self.announced = announced
        self.catch_up = catch_up
        self.in_force = 0

    def apply(self) -> None:
        """Apply announced quotas that are not in force yet."""
        announced = self.announced[0]
        if announced > self.in_force:
            self.catch_up(announced)
