"""Throttles that connections of one group left behind when they ended: new connections of the group serve them.

A broker mutes a channel, and a channel that is gone needs no mute: a client that closes its connection after each request is never
throttled there. Here the throttle outlives its connection. Each new connection of the group takes the longest one that is left, before its
first request that counts for the group goes on. A group without debts of departed connections behaves exactly as Kafka's.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Final

from quota.entity import UNLIMITED
from quota.groups.group import QuotaGroup
from quota.groups.mutation_group import MutationGroup

DEBTS_MAX: Final = 1_024
"""Of one group. When more are left the longest one holds for every new connection until it is over."""

Stepper = QuotaGroup | MutationGroup
"""A group whose verdicts throttle connections, and which hands out age steps."""


class DepartedDebts:
    """The debts that connections of one group left, each as the time at which it is over."""

    __slots__ = ("_for_all_until_ms", "_until_ms")

    def __init__(self) -> None:
        self._until_ms: list[int] = []  # ascending
        self._for_all_until_ms = 0

    def __len__(self) -> int:
        return len(self._until_ms)

    def leave(self, until_ms: int, now_ms: int, *, instead_of_ms: int = 0) -> None:
        """Add a debt.

        Args:
            until_ms: when it is over.
            now_ms: monotonic milliseconds; what is over by then is dropped.
            instead_of_ms: what the same connection left before; taken back if no other connection has taken it.
        """
        debts = self._until_ms
        at = bisect_right(debts, instead_of_ms) - 1
        if instead_of_ms and at >= 0 and debts[at] == instead_of_ms:
            del debts[at]
        del debts[: bisect_right(debts, now_ms)]
        if now_ms < self._for_all_until_ms:
            self._for_all_until_ms = max(self._for_all_until_ms, until_ms)
        elif len(debts) >= DEBTS_MAX:
            self._for_all_until_ms = max(debts[-1], until_ms)
            debts.clear()
        else:
            insort(debts, until_ms)

    def longest_until_ms(self, now_ms: int) -> int:
        """Return when the longest debt is over; 0: none is left."""
        longest_ms = max(self._for_all_until_ms, self._until_ms[-1] if self._until_ms else 0)
        return longest_ms if longest_ms > now_ms else 0

    def take(self, now_ms: int) -> int:
        """Take the longest debt for a new connection; return when it is over, 0: none is left."""
        if now_ms < self._for_all_until_ms:
            return self._for_all_until_ms
        until_ms = self.longest_until_ms(now_ms)
        if until_ms:
            self._until_ms.pop()
        else:
            self._until_ms.clear()
        return until_ms


def leave_debt(group: Stepper, until_ms: int, now_ms: int, *, instead_of_ms: int = 0) -> None:
    """Leave a debt to a group; `instead_of_ms` as in `DepartedDebts.leave`."""
    debts = group.departed_debts
    if debts is None:
        debts = group.departed_debts = DepartedDebts()
    assert isinstance(debts, DepartedDebts)
    debts.leave(until_ms, now_ms, instead_of_ms=instead_of_ms)
    group.departed_until_ms = debts.longest_until_ms(now_ms)


def longest_debt(group: Stepper, now_ms: int) -> tuple[Stepper, int] | None:
    """Find the longest debt that was left to a group or to one that it is a part of.

    Returns:
        The group that it was left to, and when it is over; None: there is none.
    """
    found: Stepper | None = None
    member: Stepper | None = group
    while member is not None:
        longest_ms = now_ms if found is None else found.departed_until_ms
        if member.departed_until_ms > longest_ms and member.bound < UNLIMITED:
            found = member
        member = member.parent
    return None if found is None else (found, found.departed_until_ms)


def take_debt(group: Stepper, now_ms: int) -> tuple[Stepper, int] | None:
    """Take that debt for a new connection."""
    found = longest_debt(group, now_ms)
    if found is None:
        return None
    holder, until_ms = found
    debts = holder.departed_debts
    assert isinstance(debts, DepartedDebts)
    debts.take(now_ms)
    holder.departed_until_ms = debts.longest_until_ms(now_ms)
    return holder, until_ms
