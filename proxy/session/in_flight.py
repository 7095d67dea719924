"""The requests of one connection that have no answer yet, oldest first."""

from __future__ import annotations

from collections import deque

from proxy.session.known_head import PRODUCE, KnownHead
from proxy.session.mutations.ticket import Refusal

InFlight = deque[tuple[int | None, "KnownHead | Refusal | bytes", int, int, int]]
"""Correlation id, head, size, time read (ms), time sent on (ns); with None as the correlation id a reply of our own in its turn."""


def produced_bytes(in_flight: InFlight, head: KnownHead) -> int:
    """Bytes of Produce requests in flight that count for the client of `head`."""
    usage = head.client.usage
    return sum(size for _, one, size, _, _ in in_flight if isinstance(one, KnownHead) and one.kind == PRODUCE and one.client.usage is usage)
