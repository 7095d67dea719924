"""The brokers of the live page: throughput, whether they are reached, and latency."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from proxy.observe.live.head import QUANTILES, quantile_ms
from proxy.observe.live.table import rounded
from proxy.observe.rows.group_rows import TYPES
from proxy.observe.rows.live_rows import LiveRow, give_way

LATENCY_SPAN_MS: Final = 60_000
"""Quantiles are those of the responses of at least the last minute, at most two: so a broker that gets slow is seen soon."""


class RecentLatencies:
    """Rows of counts, less those of a minute ago."""

    def __init__(self) -> None:
        self._before: Mapping[str, Sequence[int]] = {}
        self._between: Mapping[str, Sequence[int]] = {}
        self._between_ms: int | None = None

    def of(self, rows: Mapping[str, Sequence[int]], now_ms: int) -> dict[str, list[int]]:
        """Return for each broker the counts since one to two minutes ago; until then, and for a new broker, all counts.

        Args:
            rows: by broker, all counts since the start.
        """
        if self._between_ms is None or now_ms - self._between_ms >= LATENCY_SPAN_MS:
            self._before, self._between, self._between_ms = self._between, dict(rows), now_ms
        return {broker: _less(row, self._before.get(broker, ())) for broker, row in rows.items()}


def brokers_of(
    rows: Iterable[LiveRow], reached: Mapping[str, int], latencies: Mapping[str, Sequence[int]], now_ms: int
) -> list[dict[str, Any]]:
    """Return each broker with the bytes per second that its groups measure, how many of them wait, and its latency in ms.

    Args:
        rows: the groups.
        reached: whether the last attempt to connect succeeded, by broker; brokers without groups, too.
        latencies: rows of counts by broker.
        now_ms: the time of sensors.
    """
    found = {broker: _no_groups(broker) for broker in reached}
    for at, row in enumerate(rows):
        give_way(at)
        broker = found.setdefault(row.broker, _no_groups(row.broker))
        kind = TYPES[row.type_at].lower()
        if kind in ("produce", "fetch"):
            broker[kind] += row.observed
        broker["groups"] += 1
        broker["waiting"] += row.throttled_until_ms > now_ms
    return [
        {
            **one,
            "produce": rounded(one["produce"]),
            "fetch": rounded(one["fetch"]),
            "is_reached": bool(reached[name]) if name in reached else None,
            "latency_ms": _quantiles_ms(latencies.get(name, ())),
        }
        for name, one in sorted(found.items())
    ]


def _no_groups(broker: str) -> dict[str, Any]:
    return {"broker": broker, "produce": 0.0, "fetch": 0.0, "groups": 0, "waiting": 0}


def _quantiles_ms(counts: Sequence[int]) -> list[float | None]:
    total = sum(counts)
    return [quantile_ms(counts, total, share) if total else None for share in QUANTILES]


def _less(row: Sequence[int], before: Sequence[int]) -> list[int]:
    return [max(0, now - then) for now, then in zip(row, before, strict=True)] if before else list(row)
