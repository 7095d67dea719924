"""Merges the usage of clients at all workers into one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import add

from proxy.observe.workers.packing import unpack
from proxy.observe.workers.report import Report, UsageRow
from proxy.telemetry.client_usage import OTHER, USAGES_MAX
from proxy.telemetry.counters import API_KEYS_MAX

Who = tuple[str, str]
"""User and client-id."""


class UsageSum:
    """The usage of one client at several workers: a `ShownUsage`."""

    __slots__ = (
        "client_id",
        "exempt_bytes_total",
        "fetch_bytes",
        "produce_bytes",
        "request_ns",
        "requests",
        "throttle_ms",
        "throttled_requests",
        "user",
    )

    def __init__(self, user: str, client_id: str) -> None:
        self.user = user
        self.client_id = client_id
        self.produce_bytes = 0
        self.fetch_bytes = 0
        self.request_ns = 0.0
        self.requests: list[int] = []
        self.throttled_requests: dict[tuple[str, str], int] = {}
        self.throttle_ms: dict[tuple[str, str], int] = {}
        self.exempt_bytes_total = 0

    def add(self, other: UsageRow | UsageSum) -> None:
        """Add the usage at one more worker."""
        self.produce_bytes += other.produce_bytes
        self.fetch_bytes += other.fetch_bytes
        self.request_ns += other.request_ns
        self.requests = list(map(add, self.requests, other.requests)) if self.requests else other.requests
        _add_to(self.throttled_requests, other.throttled_requests)
        _add_to(self.throttle_ms, other.throttle_ms)
        self.exempt_bytes_total += other.exempt_bytes_total


class MergedUsages:
    """Counts the first 10,000 clients separately, and later ones together, permanently, so that no number decreases."""

    def __init__(self, usages_max: int = USAGES_MAX) -> None:
        self._usages_max = usages_max
        self._known: set[Who] = set()
        self._ended: dict[Who, UsageSum] = {}
        self._ended_others = _others()

    def of(self, reports: Iterable[Report]) -> list[UsageSum]:
        """Return the usage of all clients at these workers and at ended ones; the last is that of all clients that are counted together."""
        others = _others()
        others.add(self._ended_others)
        sums: dict[Who, UsageSum] = {}
        for ended in self._ended.values():
            self._sum_for(sums, others, ended).add(ended)
        for report in reports:
            self._add(sums, others, report)
        return [*sums.values(), others]

    def end(self, report: Report) -> None:
        """Keep the usage at a worker that has ended."""
        self._add(self._ended, self._ended_others, report)

    def _add(self, sums: dict[Who, UsageSum], others: UsageSum, report: Report) -> None:
        *chunks, last = report.usages
        for chunk in chunks:
            self._add_rows(sums, others, unpack(chunk, list[UsageRow]))
        *named, rest = unpack(last, list[UsageRow])
        self._add_rows(sums, others, named)
        others.add(rest)

    def _add_rows(self, sums: dict[Who, UsageSum], others: UsageSum, rows: Iterable[UsageRow]) -> None:
        for row in rows:
            self._sum_for(sums, others, row).add(row)

    def _sum_for(self, sums: dict[Who, UsageSum], others: UsageSum, row: UsageRow | UsageSum) -> UsageSum:
        who = (row.user, row.client_id)
        found = sums.get(who)
        if found is not None:
            return found
        if who not in self._known:
            if len(self._known) >= self._usages_max:
                return others
            self._known.add(who)
        found = sums[who] = UsageSum(*who)
        return found


def _others() -> UsageSum:
    usage = UsageSum(OTHER, OTHER)
    usage.requests = [0] * API_KEYS_MAX
    return usage


def _add_to(mine: dict[tuple[str, str], int], more: Mapping[tuple[str, str], int]) -> None:
    for key, value in more.items():
        mine[key] = mine.get(key, 0) + value
