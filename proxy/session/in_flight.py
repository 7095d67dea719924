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


class InFlight(deque[Entry]):
    """The FIFO of requests, and the replies of Sluice's own that wait in it for their turn.

    Attributes:
        answers: those that have begun.
    """

    __slots__ = ("_own_replies", "answers")

    def __init__(self) -> None:
        super().__init__()
        self.answers = 0
        self._own_replies: list[bytes | Refusal] = []  # one for each entry without a correlation id, in the same order

    @property
    def owes_own_reply(self) -> bool:
        """Whether a reply of Sluice's own waits for its turn."""
        return bool(self._own_replies)

    def append_reply(self, reply: bytes | Refusal, context: RequestContext, size_bytes: int, read_ms: int, now_ns: int) -> None:
        """Let `reply` answer a request behind all others."""
        self.append((None, context, size_bytes, read_ms, now_ns))
        self._own_replies.append(reply)

    def reply_next(self, reply: bytes, context: RequestContext, now_ms: int, now_ns: int) -> None:
        """Let `reply` be the next answer that leaves."""
        self.appendleft((None, context, 0, now_ms, now_ns))
        self._own_replies.insert(0, reply)

    def pop_reply(self) -> bytes | Refusal:
        """Take the oldest entry, which is a reply of Sluice's own, out of the FIFO."""
        self.popleft()
        return self._own_replies.pop(0)

    def produced_bytes(self, group: EnforcedGroup, now_ms: int) -> int:
        """Return the bytes of Produce requests that count for `group`, or for another part of what it is a part of."""
        whole = _whole(group)
        return sum(
            size
            for correlation_id, context, size, _, _ in self
            if context.kind == PRODUCE and correlation_id is not None and _whole(context.client.produce(now_ms)) is whole
        )


def _whole(group: EnforcedGroup | None) -> EnforcedGroup | None:
    """The outermost of the groups that a group is a part of."""
    while group is not None and group.parent is not None:
        group = group.parent
    return group
