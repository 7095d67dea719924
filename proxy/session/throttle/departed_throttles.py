"""Throttles left by departed connections: new connections of the same group serve them.

A broker mutes a channel, and a closed channel is not muted: there, a client that closes its connection after each request is never
throttled. Here the throttle outlives its connection. Each new connection of the group takes the longest remaining one, before its
first request that counts for the group is forwarded. A group without such throttles behaves exactly as Kafka's.
"""

from __future__ import annotations

from proxy.enforcement.groups.enforced_groups import ThrottlingGroup
from quota.entity import UNLIMITED


def longest_throttle(group: ThrottlingGroup, now_ms: int) -> tuple[ThrottlingGroup, int] | None:
    """Find the longest throttle that was left to a group or to one of its parents.

    Returns:
        The group that it was left to, and when it is over; None: there is none.
    """
    found: ThrottlingGroup | None = None
    longest_ms = now_ms
    member: ThrottlingGroup | None = group
    while member is not None:
        until_ms = member.departed_until(now_ms) if member.bound < UNLIMITED else 0
        if until_ms > longest_ms:
            found, longest_ms = member, until_ms
        member = member.parent
    return None if found is None else (found, longest_ms)


def take_throttle(group: ThrottlingGroup, now_ms: int) -> tuple[ThrottlingGroup, int] | None:
    """Take the longest throttle for a new connection; the return value is that of `longest_throttle`."""
    found = longest_throttle(group, now_ms)
    if found is None:
        return None
    holder = found[0]
    until_ms = holder.take_throttle(now_ms)
    return None if until_ms == 0 else (holder, until_ms)
