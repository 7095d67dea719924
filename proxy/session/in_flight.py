"""The requests of one connection that have no answer yet, oldest first."""

from __future__ import annotations

from collections import deque

from proxy.session.mutations.pending import Refusal
from proxy.session.request_context import PRODUCE, RequestContext
from quota.group import QuotaGroup

InFlight = deque[tuple[int | None, "RequestContext | Refusal | bytes", int, int, int]]
"""Correlation id, head, size, time read (ms), time sent on (ns); with None as the correlation id a reply of our own in its turn."""


def produced_bytes(in_flight: InFlight, group: QuotaGroup, now_ms: int) -> int:
    """Bytes of Produce requests in flight that count for `group`, or for another part of what it is a part of."""
    whole = _whole(group)
    return sum(
        size
        for _, head, size, _, _ in in_flight
        if isinstance(head, RequestContext) and head.kind == PRODUCE and _whole(head.client.produce(now_ms)) is whole
    )


def _whole(group: QuotaGroup | None) -> QuotaGroup | None:
    """The outermost of the groups that a group is a part of."""
    while group is not None and group.parent is not None:
        group = group.parent
    return group
