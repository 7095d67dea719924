"""The requests of one connection that have no answer yet, oldest first."""

from __future__ import annotations

from collections import deque

from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.session.mutations.pending import Refusal
from proxy.session.request_context import PRODUCE, RequestContext

Entry = tuple[int | None, RequestContext, int, int, int]
"""Correlation id, what is known of the request, its size in bytes, time read (ms), time sent on (ns).

The correlation id is None where Sluice answers: the broker has not seen that request. A tuple, because an object with slots costs 140 ns
more for each request: docs/adr/0009.
"""

InFlight = deque[Entry]
"""The FIFO of one connection. A deque itself: methods of a subclass are called in a slower way, which costs 40 ns for each request."""


class OwnReplies:
    """The replies of Sluice's own that wait in the FIFO for their turn."""

    __slots__ = ("_in_flight", "_replies")

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self._replies: list[bytes | Refusal] = []  # one for each entry without a correlation id, in the same order

    @property
    def are_due(self) -> bool:
        """Whether one waits for its turn."""
        return bool(self._replies)

    def append(self, reply: bytes | Refusal, context: RequestContext, size_bytes: int, read_ms: int, now_ns: int) -> None:
        """Let `reply` answer a request behind all others."""
        self._in_flight.append((None, context, size_bytes, read_ms, now_ns))
        self._replies.append(reply)

    def put_first(self, reply: bytes, context: RequestContext, now_ms: int, now_ns: int) -> None:
        """Let `reply` be the next answer that leaves."""
        self._in_flight.appendleft((None, context, 0, now_ms, now_ns))
        self._replies.insert(0, reply)

    def pop(self) -> bytes | Refusal:
        """Take the oldest entry, which is a reply of Sluice's own, out of the FIFO."""
        self._in_flight.popleft()
        return self._replies.pop(0)


def produced_bytes(in_flight: InFlight, group: EnforcedGroup, now_ms: int) -> int:
    """Return the bytes of Produce requests that count for `group`, or for another part of what it is a part of."""
    whole = _whole(group)
    return sum(
        size
        for correlation_id, context, size, _, _ in in_flight
        if context.kind == PRODUCE and correlation_id is not None and _whole(context.client.produce(now_ms)) is whole
    )


def _whole(group: EnforcedGroup | None) -> EnforcedGroup | None:
    """The outermost of the groups that a group is a part of."""
    while group is not None and group.parent is not None:
        group = group.parent
    return group
