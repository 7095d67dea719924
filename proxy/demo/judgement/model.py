"""Predicts what passes: Kafka's arithmetic for the load that a client offers, without a network, a proxy or a clock.

A broker that mutes is a small loop: a request arrives, it is recorded, and the channel is not read while the throttle time lasts. A
fetch above the quota is answered empty and taken back from the record, as if it had not been made.
"""

from proxy.demo.pace import Pace
from quota.connections.connection_rate import ConnectionRate
from quota.groups.group import QuotaGroup

SAMPLES, WINDOW_MS = 11, 1_000
REQUEST_THROTTLE_MS_MAX = WINDOW_MS
"""No client waits longer than a window for request time, in Kafka as here."""


def predict(quota_type: str, bound: float | None, amount: float, interval_ms: int, seconds: int) -> list[float]:
    """Return what passes in each second.

    Args:
        quota_type: "Produce", "Fetch", "Request" or "Connection".
        bound: how much per second; None without a quota.
        amount: what the quota counts for one request.
        interval_ms: a request is wanted this often.
        seconds: how long.
    """
    if quota_type == "Connection" and bound is not None:
        return _predict_connections(int(bound), interval_ms, seconds)
    group = QuotaGroup({}) if bound is None else QuotaGroup({}, bound)
    passed = [0.0] * seconds
    pace = Pace(interval_ms, 0)
    now_ms = 0
    while now_ms < seconds * 1_000:
        throttle_ms = max(0, group.would_throttle_ms(amount, now_ms))
        if quota_type == "Request":
            throttle_ms = min(throttle_ms, REQUEST_THROTTLE_MS_MAX)
        if quota_type != "Fetch" or throttle_ms == 0:
            group.record(amount, now_ms)
            passed[now_ms // 1_000] += amount
            pace.done(now_ms)
        now_ms = max(pace.due_ms, now_ms + throttle_ms)
    return passed


def _predict_connections(bound: int, interval_ms: int, seconds: int) -> list[float]:
    """Who comes too early is turned away, and does not count."""
    rate = ConnectionRate(bound, SAMPLES, WINDOW_MS)
    passed = [0.0] * seconds
    for now_ms in range(0, seconds * 1_000, interval_ms):
        if rate.record_one(now_ms):
            rate.take_back(now_ms)
        else:
            passed[now_ms // 1_000] += 1
    return passed
