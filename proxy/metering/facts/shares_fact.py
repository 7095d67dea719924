"""Converts the shares of members of paced groups to a fact for the writer."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.meter.batch import Fact
from proxy.meter.shares import MemberShares


def shares_fact(shares: MemberShares, second_ms: int, now_ms: int) -> Iterator[Fact]:
    """Take the shares since the last call; yield one fact with all rows of the second, if there are any.

    Args:
        second_ms: begin of the second, in wall-clock ms.
        now_ms: the time, in monotonic ms.
    """
    rows = shares.take(now_ms)
    if rows:
        yield {"shares": {"second_ms": second_ms, "rows": [row._asdict() for row in rows]}}
