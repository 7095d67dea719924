"""Merges the `Counters` of several processes. `MERGE_MODES` has the rule for each number; a test compares it with the class."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import Final, Literal

import msgspec

from proxy.telemetry.counters import Counters, ThrottleHistogram
from proxy.telemetry.latency import APIS_MAX, OTHER_API, ApiLatencies

MergeMode = Literal["sum", "sum_now", "max_now", "min_now", "own"]
"""sum: counted since the start, added, also for processes that ended. sum_now: added over live processes. max_now, min_now: the largest or
smallest of live processes. own: has its own form, added bucket by bucket, or is not reported."""

MERGE_MODES: Final[dict[str, MergeMode]] = {
    "accepts_exhausted": "sum",
    "accepts_waited": "sum",
    "administration.audit_failures": "sum",
    "administration.authority_is_trusted": "min_now",
    "administration.changes": "sum",
    "administration.denials": "sum",
    "brokers_reached": "min_now",
    "buffer_bytes_max": "sum_now",
    "buffered_bytes": "sum_now",
    "bytes_from_brokers": "sum",
    "bytes_from_clients": "sum",
    "certificate_expiries_s": "min_now",
    "certificates_rejected": "sum",
    "closes": "sum",
    "config_reloads_rejected": "sum",
    "config_reloads_succeeded": "sum",
    "connections_accepted": "sum",
    "connections_open": "sum_now",
    "discarded_request_bytes": "sum",
    "gc_long": "sum",
    "gc_ns": "sum",
    "internal_errors": "sum",
    "latencies": "own",
    "live_page_bytes": "sum_now",
    "logins": "sum",
    "memory_pauses": "sum",
    "memory_pressure": "max_now",
    "metering.conversion_failures": "sum",
    "metering.decisions": "sum",
    "metering.done_bytes": "sum_now",
    "metering.dropped_decisions": "sum",
    "metering.dropped_usage_rows": "sum",
    "metering.file_sets_lost": "sum",
    "metering.file_sets_published": "sum",
    "metering.file_sets_removed": "sum",
    "metering.file_sets_to_upload": "sum_now",
    "metering.file_sets_uploaded": "sum",
    "metering.handed_bytes": "sum_now",
    "metering.last_error": "own",
    "metering.publish_failures": "sum",
    "metering.segments": "sum",
    "metering.upload_failures": "sum",
    "metering.uploaded_bytes": "sum",
    "metering.usage_rows": "sum",
    "metering.write_errors": "sum",
    "plain_exposed": "sum",
    "principal_builder_faults": "sum",
    "proxy_headers": "sum",
    "proxy_headers_waiting": "sum_now",
    "requests": "sum",
    "responses": "sum",
    "shadow.broker_ms": "sum",
    "shadow.difference_ms": "sum",
    "shadow.sluice_ms": "sum",
    "shadow.verdicts": "sum",
    "shared_rows_refused": "sum",
    "throttles": "own",
    "unmapped": "sum",
    "upstream_connect_failures": "sum",
    "upstream_connects": "sum",
}

Key = tuple[str, ...]
"""The keys of a number: none, one string, or two."""
_GET: Final = {name: attrgetter(name) for name, how in MERGE_MODES.items() if how != "own"}


class Counts(msgspec.Struct):
    """The counters of a worker.

    `numbers` is by name in `MERGE_MODES`; `latencies` by broker and API key; a throttle histogram is buckets and sum in ms.
    """

    numbers: dict[str, dict[Key, int | float]] = {}
    latencies: dict[tuple[str, int], list[int]] = {}
    throttles: dict[str, tuple[list[int], int]] = {}

    def add(self, other: Counts, *, lasting_only: bool = False) -> None:
        """Add those of another process; `lasting_only`: it has ended, so only its totals count."""
        for name, values in other.numbers.items():
            if lasting_only and MERGE_MODES[name] != "sum":
                continue
            mine = self.numbers.setdefault(name, {})
            for key, value in values.items():
                mine[key] = _joined(MERGE_MODES[name], mine[key], value) if key in mine else value
        for place, row in other.latencies.items():
            self.latencies[place] = _added(self.latencies.get(place, []), row)
        for quota_type, (buckets, sum_ms) in other.throttles.items():
            mine_buckets, mine_ms = self.throttles.get(quota_type, ([], 0))
            self.throttles[quota_type] = (_added(mine_buckets, buckets), mine_ms + sum_ms)


def counts_of(counters: Counters) -> Counts:
    """Return the counts of a process; any thread may call it."""
    return Counts(
        {name: _by_key(get(counters)) for name, get in _GET.items()},
        {place: row.copy() for place, row in list(counters.latencies.cells.items())},
        {quota_type: (histogram.buckets.copy(), histogram.sum_ms) for quota_type, histogram in list(counters.throttles.items())},
    )


def sum_of(parts: Iterable[Counts]) -> Counts:
    """Return the sum of the counts of several processes, which are not modified."""
    total = Counts()
    for part in parts:
        total.add(part)
    return total


def counters_of(counts: Counts, apis: Collection[int]) -> Counters:
    """Return counts in the form of pages.

    Args:
        apis: those with a latency row of their own, whatever workers have met since; see `rows_for`.
    """
    counters = Counters()
    for name, values in counts.numbers.items():
        part, _, field = name.rpartition(".")
        target = attrgetter(part)(counters) if part else counters
        if isinstance(getattr(target, field), dict):
            setattr(target, field, {key if len(key) > 1 else key[0]: value for key, value in values.items()})
        else:
            setattr(target, field, type(getattr(target, field))(values[()]))
    latencies = counters.latencies = ApiLatencies()
    for (broker, api), row in counts.latencies.items():
        latencies.add(broker, api if api in apis else OTHER_API, row)
    for quota_type, (buckets, sum_ms) in counts.throttles.items():
        histogram = counters.throttles[quota_type] = ThrottleHistogram()
        histogram.buckets, histogram.sum_ms = buckets, sum_ms
    return counters


def rows_for(counts: Counts, apis: dict[int, None]) -> None:
    """Give rows to the first 40 APIs; an API keeps its row, so that no bucket decreases."""
    for _, api in counts.latencies:
        if api != OTHER_API and len(apis) < APIS_MAX:
            apis.setdefault(api)


def _by_key(value: object) -> dict[Key, int | float]:
    match value:
        case int() | float():
            return {(): int(value) if isinstance(value, bool) else value}
        case dict():
            return {key if isinstance(key, tuple) else (key,): one for key, one in list(value.items())}
        case _:
            raise TypeError(f"no number: {value!r}")


def _joined(how: MergeMode, one: int | float, other: int | float) -> int | float:
    match how:
        case "max_now":
            return max(one, other)
        case "min_now":
            return min(one, other)
        case "sum" | "sum_now" | "own":
            return one + other


def _added(one: list[int], other: list[int]) -> list[int]:
    """Return the sum of two rows of buckets; an empty one counts nothing."""
    return [left + right for left, right in zip(one, other, strict=True)] if one and other else [*(one or other)]
