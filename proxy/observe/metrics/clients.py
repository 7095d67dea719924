"""Families with names of clients: the busiest have series of their own, within a budget; the others are `__other__`.

A reader that may not see names gets the same families with every client as `__other__`, and no limit or rate of a group.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.metrics_core import Metric

from proxy.observe.metrics.api_names import API_NAMES
from proxy.observe.metrics.families import counter, counters, gauge, gauges
from proxy.observe.metrics.series import Fold, Labels, label
from proxy.observe.shown import ShownGroup, ShownUsage
from proxy.observe.snapshot import Snapshot
from proxy.telemetry.client_usage import OTHER

GROUP_SERIES: Final = 3
"""Limit, rate and utilization."""
OTHER_SERIES_MAX: Final = 150
"""Series that `__other__` may need: two directions, every API, every quota type and its rule."""

_BYTES, _REQUESTS, _REQUEST_NS, _THROTTLED, _THROTTLE_MS = "bytes", "requests", "request_ns", "throttled", "throttle_ms"
_UNITS_PER_SECOND: Final = {_THROTTLE_MS: 1_000, _REQUEST_NS: 1_000_000_000}


class ClientFamilies:
    """Makes the families of each scrape, and remembers between them which clients were folded."""

    def __init__(self) -> None:
        self._fold: Fold[tuple[str, str]] = Fold(_without_rule)

    def families(self, snapshot: Snapshot, series_max: int) -> Iterator[Metric]:
        """Return families of together at most `series_max` series."""
        group_budget = max(0, series_max // 2 - 2 * GROUP_SERIES)
        groups = _most_urgent(snapshot, group_budget // GROUP_SERIES, snapshot.now_ms)
        tokens = _tokens(groups, snapshot.now_ms)
        yield from _group_families(groups, snapshot)
        yield gauges("kafka_quota_mutation_tokens", "The balance of a group's mutations; refused below 0.", ("quota_entity",), tokens)
        left = series_max - GROUP_SERIES * len(groups) - len(tokens) - 2 - OTHER_SERIES_MAX
        yield from self._usage_families(snapshot.usages, left)
        yield from self._counts(snapshot)

    def sums(self, snapshot: Snapshot) -> Iterator[Metric]:
        """Return the families without names."""
        yield from _group_counts(snapshot, 0)
        yield from _counters([((OTHER, OTHER), _sums(snapshot.usages))])
        yield from self._counts(snapshot)

    def _counts(self, snapshot: Snapshot) -> Iterator[Metric]:
        tracked = len(snapshot.usages) - 1
        yield gauge("kafka_quota_tracked_entities", "Pairs of user and client-id with counters of their own.", tracked)
        yield counter("kafka_quota_folded_entities_total", "How often a client had no series of its own.", self._fold.folded_total)

    def _usage_families(self, usages: Sequence[ShownUsage], series_max: int) -> Iterator[Metric]:
        *named, overflow = usages
        shown: dict[tuple[str, str], dict[Labels, int]] = {}
        for usage in heapq.nlargest(series_max, named, key=_traffic):  # sorting all would hold the interpreter lock for too long
            series = series_of(usage)
            if len(series) > series_max:
                break  # no client may come before a busier one
            shown[usage.user, usage.client_id] = series
            series_max -= len(series)
        folded = {who: usage for usage in named if (who := (usage.user, usage.client_id)) not in shown}
        others = self._fold.fold(shown, folded, _sums([*folded.values(), overflow]))
        rows = [((label(user), label(client_id)), series) for (user, client_id), series in shown.items()]
        yield from _counters([*rows, ((OTHER, OTHER), others)])


def series_of(usage: ShownUsage) -> dict[Labels, int]:
    """Return the series of a usage: one value for each kind of usage that is not 0."""
    series: dict[Labels, int] = {}
    for direction, value in (("produce", usage.produce_bytes), ("fetch", usage.fetch_bytes)):
        if value:
            series[_BYTES, direction] = value
    if usage.request_ns:
        series[_REQUEST_NS,] = int(usage.request_ns)
    for key, count in enumerate(usage.requests):
        if count:
            series[_REQUESTS, API_NAMES[key]] = count
    for (quota_type, rule), count in list(usage.throttled_requests.items()):
        series[_THROTTLED, quota_type, rule] = count
    for (quota_type, rule), throttle_ms in list(usage.throttle_ms.items()):
        series[_THROTTLE_MS, quota_type, rule] = throttle_ms
    return series


def _without_rule(labels: Labels) -> Labels:
    """Return the labels of `__other__` for `labels`, without the rule, since there are as many rules as quotas."""
    kind, *others = labels
    return (kind, others[0], OTHER) if kind in (_THROTTLED, _THROTTLE_MS) else labels


def _traffic(usage: ShownUsage) -> tuple[int, int]:
    return (usage.produce_bytes + usage.fetch_bytes, sum(usage.requests))


def _sums(usages: Sequence[ShownUsage]) -> dict[Labels, int]:
    """Return the sums of all `usages`, column by column: a loop over 96 numbers of 10,000 clients would take too long."""
    sums: dict[Labels, int] = defaultdict(int)
    for direction, total in (("produce", sum(one.produce_bytes for one in usages)), ("fetch", sum(one.fetch_bytes for one in usages))):
        sums[_BYTES, direction] = total
    sums[_REQUEST_NS,] = int(sum(one.request_ns for one in usages))
    for key, column in enumerate(zip(*(one.requests for one in usages), strict=False)):
        if key in API_NAMES:  # the columns between the known keys and the one for all others are always 0
            sums[_REQUESTS, API_NAMES[key]] = sum(column)
    for usage in usages:
        for (quota_type, _), count in list(usage.throttled_requests.items()):
            sums[_THROTTLED, quota_type, OTHER] += count
        for (quota_type, _), throttle_ms in list(usage.throttle_ms.items()):
            sums[_THROTTLE_MS, quota_type, OTHER] += throttle_ms
    return {key: value for key, value in sums.items() if value}


def _counters(rows: Sequence[tuple[tuple[str, str], Mapping[Labels, int]]]) -> Iterator[Metric]:
    by_kind: dict[str, list[tuple[tuple[str, ...], float]]] = defaultdict(list)
    for (user, client_id), series in rows:
        for (kind, *labels), value in series.items():
            scale = _UNITS_PER_SECOND.get(kind, 1)
            by_kind[kind].append(((*(label(one) if one != OTHER else one for one in labels), user, client_id), value / scale))
    names = ("user", "client_id")
    throttled = ("quota_type", "quota_entity", *names)
    yield counters("kafka_quota_bytes_total", "Bytes that count for quotas.", ("direction", *names), by_kind[_BYTES])
    yield counters("kafka_quota_requests_total", "Requests, by API.", ("api", *names), by_kind[_REQUESTS])
    yield counters(
        "kafka_quota_request_seconds_total", "Request-handler time that is charged to request quotas.", names, by_kind[_REQUEST_NS]
    )
    yield counters(
        "kafka_quota_throttled_requests_total",
        "Requests with a throttle time above zero, by the quota that caused it.",
        throttled,
        by_kind[_THROTTLED],
    )
    yield counters("kafka_quota_throttle_seconds_total", "Sum of all throttle times.", throttled, by_kind[_THROTTLE_MS])


def _most_urgent(snapshot: Snapshot, groups_max: int, now_ms: int) -> list[ShownGroup]:
    """Return the groups to show: those being throttled first, then those with a bound, then by traffic."""
    if snapshot.group_count <= groups_max:
        return list(snapshot.groups)
    return heapq.nlargest(groups_max, snapshot.groups, key=lambda view: view.urgency(now_ms))  # sorting all would hold the interpreter lock


def _tokens(groups: Sequence[ShownGroup], now_ms: int) -> list[tuple[tuple[str, ...], float]]:
    balances = ((view, view.tokens(now_ms)) for view in groups if view.is_limited)
    return [((label(view.name),), balance) for view, balance in balances if balance is not None]


def _group_families(groups: Sequence[ShownGroup], snapshot: Snapshot) -> Iterator[Metric]:
    names = ("broker", "quota_type", "quota_entity")
    limits, rates, shares, leads, waiting = [], [], [], [], []
    for view in groups:
        labels = (label(view.broker), view.quota_type, label(view.name))
        rate = view.rate(snapshot.now_ms)
        rates.append((labels, rate))
        if view.is_limited:
            limits.append((labels, view.bound))
            shares.append((labels, rate / view.bound if view.bound > 0 else float("inf")))
            paced = view.paced(snapshot.now_ms)
            if paced is not None:
                leads.append((labels, paced.lead_ms / 1_000))
                waiting.append((labels, paced.waiting))
    yield gauges("kafka_quota_limit", "The bound of a group in units per second; none when unlimited.", names, limits)
    yield gauges("kafka_quota_rate", "The rate of a group in units per second, as its quota measures it.", names, rates)
    yield gauges("kafka_quota_utilization_ratio", "Rate divided by limit; may exceed 1.", names, shares)
    yield gauges("kafka_quota_lead_seconds", "How far the schedule of a paced group is ahead of the clock.", names, leads)
    yield gauges("kafka_quota_waiting_requests", "Requests that wait for the schedule of a paced group.", names, waiting)
    yield from _group_counts(snapshot, len(groups))


def _group_counts(snapshot: Snapshot, shown: int) -> Iterator[Metric]:
    groups = snapshot.group_count
    yield gauge("kafka_quota_groups", "Groups that have a sensor now.", groups)
    yield gauge("kafka_quota_groups_without_series", "Groups that have no series.", groups - shown)
