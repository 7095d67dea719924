"""Builds metric families with all their samples for prometheus-client."""

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from proxy.telemetry.counters import THROTTLE_BUCKETS_MS, ThrottleHistogram
from proxy.telemetry.latency import cumulated

Series = Iterable[tuple[tuple[str, ...], float]]


def counter(name: str, text: str, value: float) -> Metric:
    """Return a counter without labels; `name` ends in `_total`."""
    return CounterMetricFamily(name, text, value=value)


def counters(name: str, text: str, labels: tuple[str, ...], series: Series) -> Metric:
    """Return a counter with a series for each of `series`; `name` ends in `_total`."""
    family = CounterMetricFamily(name, text, labels=labels)
    for values, value in series:
        family.add_metric(values, value)
    return family


def counts(name: str, text: str, key: str, values: Mapping[str, int]) -> Metric:
    """Return a counter with one series for each key of a dictionary, to which another thread may be adding."""
    return counters(name, text, (key,), (((one,), value) for one, value in sorted(values.items())))


def gauge(name: str, text: str, value: float) -> Metric:
    """Return a gauge without labels."""
    return GaugeMetricFamily(name, text, value=value)


def gauges(name: str, text: str, labels: tuple[str, ...], series: Series) -> Metric:
    """Return a gauge with a series for each of `series`."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in series:
        family.add_metric(values, value)
    return family


def throttle_histogram(name: str, text: str, histograms: Mapping[str, ThrottleHistogram]) -> Metric:
    """Return the histogram of throttles in seconds, by quota type."""
    family = HistogramMetricFamily(name, text, labels=("quota_type",))
    for quota_type, histogram in sorted(histograms.items()):
        family.add_metric((quota_type,), _cumulated(histogram), sum_value=histogram.sum_ms / 1_000)
    return family


def latency_histogram(name: str, text: str, rows: Mapping[str, list[int]]) -> Metric:
    """Return the histogram of latencies in seconds, by API: only buckets, without a sum."""
    family = HistogramMetricFamily(name, text, labels=("api",))
    for api, row in sorted(rows.items()):
        buckets = [("+Inf" if edge == float("inf") else repr(edge), count) for edge, count in cumulated(row)]
        family.add_metric((api,), buckets, sum_value=None)
    return family


def _cumulated(histogram: ThrottleHistogram) -> list[tuple[str, float]]:
    edges = [*(repr(edge / 1_000) for edge in THROTTLE_BUCKETS_MS), "+Inf"]
    total = 0
    buckets: list[tuple[str, float]] = []
    for edge, count in zip(edges, list(histogram.buckets), strict=True):
        total += count
        buckets.append((edge, total))
    return buckets
