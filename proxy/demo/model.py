"""What should come out: Kafka's own arithmetic, fed with the load that a client offers, without a network, a proxy or a clock.

A broker that mutes is a very small loop: a request arrives, it is recorded, and while the throttle time lasts the channel is not
read. A fetch that would go over is sent back empty and taken back from the record, which is the same as never having been there.
"""

from proxy.demo.pace import Pace
from quota.group import QuotaGroup


def predict(quota_type: str, bound: float | None, request_bytes: int, interval_ms: int, seconds: int) -> list[int]:
    """Return the bytes that pass in each second.

    Args:
        quota_type: "Produce" or "Fetch".
        bound: bytes per second; None without a quota.
        request_bytes: what the quota counts for one request.
        interval_ms: a request is wanted this often.
        seconds: how long.
    """
    group = QuotaGroup({}) if bound is None else QuotaGroup({}, bound)
    passed = [0] * seconds
    pace = Pace(interval_ms, 0)
    now_ms = 0
    while now_ms < seconds * 1_000:
        throttle_ms = max(0, group.would_throttle_ms(request_bytes, now_ms))
        if quota_type == "Produce" or throttle_ms == 0:
            group.record(request_bytes, now_ms)
            passed[now_ms // 1_000] += request_bytes
            pace.done(now_ms)
        now_ms = max(pace.due_ms, now_ms + throttle_ms)
    return passed
