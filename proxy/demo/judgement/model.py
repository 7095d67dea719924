"""Predicts the amount that passes: Kafka's arithmetic for an offered load, without a network, a proxy or a clock.

A broker that mutes is a loop: a request arrives, it is recorded, and the channel is not read for the throttle time. A fetch above the
quota gets an empty response, and its record is removed.
"""

import heapq

from proxy.demo.pace import Pace
from proxy.enforcement.paced.time_group import NS_PER_PERCENT_SECOND
from quota.connections.connection_rate import ConnectionRate
from quota.groups.group import QuotaGroup
from quota.paced_schedule import HANDLER_TIME_NS, MS_NS, PacedSchedule, cost_ns, ms_after

SAMPLES, WINDOW_MS = 11, 1_000
REQUEST_THROTTLE_MS_MAX = WINDOW_MS
"""Maximum throttle time for request time: one window, as in Kafka."""


def predict(
    quota_type: str,
    bound: float | None,
    amount: float,
    interval_ms: int,
    seconds: int,
    connections: int = 1,
    burst_ms: int | None = None,
) -> list[float]:
    """Return the amount that passes in each second.

    Args:
        quota_type: "Produce", "Fetch", "Request" or "Connection".
        bound: quota in units per second; None: no quota.
        amount: units that one request counts.
        interval_ms: interval of the offered requests.
        seconds: duration of the run.
        connections: number of connections that share load and quota; a throttle delays the one that it is imposed on.
        burst_ms: burst of the quota's schedule, if it is paced.
    """
    if burst_ms is not None and bound is not None:
        return _predict_paced(quota_type, bound, amount, interval_ms, seconds, burst_ms)
    if quota_type == "Connection" and bound is not None:
        return _predict_connections(int(bound), interval_ms, seconds)
    group = QuotaGroup({}) if bound is None else QuotaGroup({}, bound)
    passed = [0.0] * seconds
    paces = [Pace(interval_ms * connections, 0) for _ in range(connections)]
    due = [(0, at) for at in range(connections)]
    while due[0][0] < seconds * 1_000:
        now_ms, at = due[0]
        throttle_ms = max(0, group.would_throttle_ms(amount, now_ms))
        if quota_type == "Request":
            throttle_ms = min(throttle_ms, REQUEST_THROTTLE_MS_MAX)
        if quota_type != "Fetch" or throttle_ms == 0:
            group.record(amount, now_ms)
            passed[now_ms // 1_000] += amount
            paces[at].done(now_ms)
        heapq.heapreplace(due, (max(paces[at].due_ms, now_ms + throttle_ms), at))
    return passed


def _predict_paced(quota_type: str, bound: float, amount: float, interval_ms: int, seconds: int, burst_ms: int) -> list[float]:
    """Return the amount that a schedule lets pass in each second."""
    if quota_type == "Request":
        cost = cost_ns(round(amount * NS_PER_PERCENT_SECOND), bound, HANDLER_TIME_NS)
    else:
        cost = cost_ns(round(amount), bound)
    schedule, pace = PacedSchedule(burst_ms * MS_NS), Pace(interval_ms, 0)
    passed, now_ms = [0.0] * seconds, 0
    while True:
        now_ms = max(now_ms, pace.due_ms)
        now_ms += ms_after(schedule.wait_ns(now_ms * MS_NS))
        if now_ms >= seconds * 1_000:
            return passed
        schedule.charge(cost, now_ms * MS_NS)
        passed[now_ms // 1_000] += amount
        pace.done(now_ms)


def _predict_connections(bound: int, interval_ms: int, seconds: int) -> list[float]:
    """Return the accepted connections in each second; a refused connection does not count."""
    rate = ConnectionRate(bound, SAMPLES, WINDOW_MS)
    passed = [0.0] * seconds
    for now_ms in range(0, seconds * 1_000, interval_ms):
        if rate.record_one(now_ms):
            rate.take_back(now_ms)
        else:
            passed[now_ms // 1_000] += 1
    return passed
