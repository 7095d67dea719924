"""The requests of one connection that have no response yet, oldest first."""

from __future__ import annotations

from collections import deque

from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.session.mutations.pending import Refusal
from proxy.session.request_context import PRODUCE, RequestContext

Entry = tuple[int | None, RequestContext, int, int, int]
"""Correlation id, request context, size in bytes, time of the read (ms), time of forwarding (ns).

The correlation id is None for a reply of Sluice's own, whose request the broker has not seen. A tuple, because an object with slots costs
140 ns more per request: docs/adr/0009.
"""

InFlight = deque[Entry]
"""The FIFO of one connection. A plain deque, since methods of a subclass are slower by 40 ns per request."""

EnteredRun = tuple[tuple[int, ...], int, Entry, Entry]
"""Requests with one context and one size that were entered together: their correlation ids, their size in bytes, the first and the last
entry. While the FIFO has these two at its ends and as many entries, it has nothing else.
"""


class OwnReplies:
    """The replies of Sluice's own that wait in the FIFO for their turn."""

    __slots__ = ("_in_flight", "_replies")

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self._replies: list[bytes | Refusal] = []  # one per entry without a correlation id, in the same order

    @property
    def are_due(self) -> bool:
        """Whether a reply is waiting."""
        return bool(self._replies)

    def append(self, reply: bytes | Refusal, context: RequestContext, size_bytes: int, read_ms: int, now_ns: int) -> None:
        """Add `reply` as the response to a request behind all others."""
        self._in_flight.append((None, context, size_bytes, read_ms, now_ns))
        self._replies.append(reply)

    def put_first(self, reply: bytes, context: RequestContext, now_ms: int, now_ns: int) -> None:
        """Make `reply` the next response."""
        self._in_flight.appendleft((None, context, 0, now_ms, now_ns))
        self._replies.insert(0, reply)

    def pop(self) -> bytes | Refusal:
        """Remove the oldest entry, a reply of Sluice's own, from the FIFO and return it."""
        self._in_flight.popleft()
        return self._replies.pop(0)


def produced_bytes(in_flight: InFlight, group: EnforcedGroup, now_ms: int) -> int:
    """Return the bytes of Produce requests that count for `group`, or for any group with the same outermost parent."""
    whole = _whole(group)
    return sum(
        size
        for correlation_id, context, size, _, _ in in_flight
        if context.kind == PRODUCE and correlation_id is not None and _whole(context.client.produce(now_ms)) is whole
    )


def _whole(group: EnforcedGroup | None) -> EnforcedGroup | None:
    """The outermost parent of a group."""
    while group is not None and group.parent is not None:
        group = group.parent
    return group
