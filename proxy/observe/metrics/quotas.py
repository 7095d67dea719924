"""Families about quotas as a whole: the managers of all brokers, and the operator's callback."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import Final

from prometheus_client.metrics_core import Metric

from proxy.enforcement.switches import ENTITY
from proxy.observe.metrics.families import counter, counters, gauge, gauges
from proxy.observe.metrics.series import label
from proxy.observe.snapshot import Snapshot
from proxy.telemetry.status import CallbackStatus
from quota.entity import ClientQuotaType

PERCENT: Final = 100
"""Request time is measured in percent of one thread."""
SWITCH_SERIES_MAX: Final = 100
_REQUEST: Final = ClientQuotaType.REQUEST.value


def quota_families(snapshot: Snapshot, *, with_names: bool = True) -> Iterator[Metric]:
    """Return all families on quotas whose size does not depend on the number of clients; `with_names`: switches of entities, too."""
    overflowed: dict[str, int] = defaultdict(int)
    for view in snapshot.managers:
        overflowed[view.quota_type] += view.groups_overflowed
    yield counters(
        "kafka_quota_groups_overflowed_total",
        "Clients that had to share a group because there were too many groups.",
        ("quota_type",),
        [((quota_type,), count) for quota_type, count in sorted(overflowed.items())],
    )
    yield from _switch_families(snapshot, with_names=with_names)
    yield from _request_time_families(snapshot)
    yield from _callback_families(snapshot.callback)


def _switch_families(snapshot: Snapshot, *, with_names: bool) -> Iterator[Metric]:
    named = ((target, mode) for target, mode in snapshot.switches.items() if with_names or not target.startswith(ENTITY))
    shown = islice(named, SWITCH_SERIES_MAX)
    yield gauges(
        "kafka_quota_switch",
        "1 for each switch of enforcement that is set; the broadest of them.",
        ("target", "mode"),
        [((label(target), mode.value), 1) for target, mode in shown],
    )
    yield gauge("kafka_quota_switches", "Switches of enforcement that are set.", len(snapshot.switches))
    yield gauge("kafka_quota_pacings", "Pacings that are set at run time.", len(snapshot.pacing))
    exempt = sum(usage.exempt_bytes_total for usage in snapshot.usages)
    yield counter("kafka_quota_exempt_bytes_total", "Bytes of clients that no quota applies to, by name.", exempt)


def _request_time_families(snapshot: Snapshot) -> Iterator[Metric]:
    request = [view for view in snapshot.managers if view.exempt_total is not None]
    exempt = sum(view.exempt_total or 0.0 for view in request)
    yield counter("kafka_quota_exempt_request_seconds_total", "Time of requests that no quota applies to.", exempt / PERCENT)
    elapsed_ns = snapshot.traffic.timed_ns
    yield counter(
        "kafka_quota_timed_answer_seconds_total", "Response time of requests whose request-handler time was estimated.", elapsed_ns / 1e9
    )
    charged_ns = sum(usage.request_ns for usage in snapshot.usages)
    share = charged_ns / elapsed_ns if elapsed_ns else 0.0
    yield gauge("kafka_quota_request_time_share_ratio", "Estimated request-handler time over response time.", share)
    if snapshot.broker_threads is None:
        return
    percent = {view.broker: view.exempt_rate(snapshot.now_ms) + view.rest_rate() for view in request}
    for view in snapshot.groups:
        if view.quota_type == _REQUEST:
            percent[view.broker] += view.rate(snapshot.now_ms)
    all_threads = snapshot.broker_threads * PERCENT
    yield gauges(
        "kafka_quota_broker_threads_utilization_ratio",
        "Request-handler time of all clients over that of all threads.",
        ("broker",),
        [((label(broker),), rate / all_threads) for broker, rate in percent.items()],
    )


def _callback_families(callback: CallbackStatus) -> Iterator[Metric]:
    yield counter("kafka_quota_callback_errors_total", "Faults of the operator's callback.", callback.errors)
    yield counter("kafka_quota_callback_calls_total", "Calls of the operator's callback.", callback.calls)
    yield counter("kafka_quota_callback_seconds_total", "Time of these calls together.", callback.call_ns_total / 1_000_000_000)
    yield counter("kafka_quota_callback_slow_calls_total", "Calls that took more than 1 ms.", callback.slow_calls)
    yield gauge("kafka_quota_callback_suspended", "Callback objects that are suspended.", callback.suspended)
    yield counter("kafka_quota_callback_suspensions_total", "How often a callback object was suspended.", callback.suspensions)
