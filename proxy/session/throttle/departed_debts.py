"""Throttles that connections of one group left behind when they ended: new connections of the group serve them.

A broker mutes a channel, and a channel that is gone needs no mute: a client that closes its connection after each request is never
throttled there. Here the throttle outlives its connection. Each new connection of the group takes the longest one that is left, before its
first request that counts for the group goes on. A group without debts of departed connections behaves exactly as Kafka's.
"""

from __future__ import annotations

from proxy.enforcement.groups.departed_debts import DepartedDebts
from proxy.enforcement.groups.enforced_groups import Stepper
from quota.entity import UNLIMITED


def leave_debt(group: Stepper, until_ms: int, now_ms: int, *, instead_of_ms: int = 0) -> None:
    """Leave a debt to a group; `instead_of_ms` as in `DepartedDebts.leave`."""
    debts = group.departed_debts
    if debts is None:
        debts = group.departed_debts = DepartedDebts()
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
    if debts is not None:
        debts.take(now_ms)
        holder.departed_until_ms = debts.longest_until_ms(now_ms)
    return holder, until_ms
