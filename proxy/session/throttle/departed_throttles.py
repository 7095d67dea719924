"""Throttles left by departed connections: new connections of the same group serve them.

A broker mutes a channel, and a closed channel is not muted: there, a client that closes its connection after each request is never
throttled. Here the throttle outlives its connection. Each new connection of the group takes the longest remaining one, before its
first request that counts for the group is forwarded. A group without such throttles behaves exactly as Kafka's.
"""

from __future__ import annotations

from proxy.enforcement.groups.departed_throttles import DepartedThrottles
from proxy.enforcement.groups.enforced_groups import ThrottlingGroup
from quota.entity import UNLIMITED


def leave_throttle(group: ThrottlingGroup, until_ms: int, now_ms: int, *, instead_of_ms: int = 0) -> None:
    """Leave a throttle to a group; `instead_of_ms` as in `DepartedThrottles.leave`."""
    throttles = group.departed_throttles
    if throttles is None:
        throttles = group.departed_throttles = DepartedThrottles()
    throttles.leave(until_ms, now_ms, instead_of_ms=instead_of_ms)
    group.departed_until_ms = throttles.longest_until_ms(now_ms)


def longest_throttle(group: ThrottlingGroup, now_ms: int) -> tuple[ThrottlingGroup, int] | None:
    """Find the longest throttle that was left to a group or to one of its parents.

    Returns:
        The group that it was left to, and when it is over; None: there is none.
    """
    found: ThrottlingGroup | None = None
    member: ThrottlingGroup | None = group
    while member is not None:
        longest_ms = now_ms if found is None else found.departed_until_ms
        if member.departed_until_ms > longest_ms and member.bound < UNLIMITED:
            found = member
        member = member.parent
    return None if found is None else (found, found.departed_until_ms)


def take_throttle(group: ThrottlingGroup, now_ms: int) -> tuple[ThrottlingGroup, int] | None:
    """Take the longest throttle for a new connection; the return value is that of `longest_throttle`."""
    found = longest_throttle(group, now_ms)
    if found is None:
        return None
    holder, until_ms = found
    throttles = holder.departed_throttles
    if throttles is not None:
        throttles.take(now_ms)
        holder.departed_until_ms = throttles.longest_until_ms(now_ms)
    return holder, until_ms
