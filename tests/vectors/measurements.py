"""Replays rate, avg, throttle-time and token-bucket traces."""

from collections.abc import Iterator
from typing import Any

from quota.groups.group import QuotaGroup
from quota.groups.mutation_group import MutationGroup
from quota.sensor import Avg, Rate
from quota.throttle import narrow_to_int32, throttle_time_ms
from tests.vectors.compare import Case, differences, rows


def run_rate(case: Case, columns: list[str], lazy: bool) -> Iterator[str]:
    """Replay records, un-records, bound changes and measurements; compare rate, window and verdict after each."""
    bound = case["bound"]
    group = QuotaGroup({}, num_samples=case["samples"], window_ms=case["window_ms"], lazy=lazy)
    if bound is not None:
        group.update_bound(bound)
    for index, event in rows(case, columns, "events"):
        now_ms, operation, value = event["t_ms"], event["op"], event["value"]
        got: dict[str, Any] = {}
        if operation == "q":
            bound = value
            group.update_bound(bound)
        elif operation == "u" or (operation == "r" and bound is None):
            group.record_unchecked(value, now_ms)
        elif operation == "r":
            got = _checked_record(group, value, now_ms, bound)
        else:
            group.purge(now_ms)
            got = _measured(group, now_ms)
        yield from differences(f"event {index}", event, got)


def _measured(group: QuotaGroup, now_ms: int) -> dict[str, Any]:
    return {"rate_per_s": group.rate(now_ms), "window_size_ms": group.window_size_ms(now_ms)}


def _checked_record(group: QuotaGroup, value: float, now_ms: int, bound: float) -> dict[str, Any]:
    foretold_ms = group.would_throttle_ms(value, now_ms)
    throttle_int32_ms = group.record(value, now_ms)
    got = _measured(group, now_ms)
    violated = not got["rate_per_s"] <= bound
    got |= {"violated": violated, "throttle_ms": None, "throttle_ms_int32": None, "bounded_throttle_ms": None}
    if violated:
        throttle_ms = throttle_time_ms(got["rate_per_s"], bound, got["window_size_ms"])
        got |= {
            "throttle_ms": throttle_ms,
            "throttle_ms_int32": throttle_int32_ms,
            "bounded_throttle_ms": min(throttle_ms, group.window_ms),
        }
    elif throttle_int32_ms != 0:
        got["throttle_ms_int32"] = throttle_int32_ms
    if foretold_ms != throttle_int32_ms:
        got["throttle_ms"] = f"foretold as {foretold_ms}"
    return got


def run_avg(case: Case, columns: list[str], lazy: bool) -> Iterator[str]:
    """Replay records and measurements of a mean."""
    average = Avg(case["samples"], case["window_ms"])
    for index, event in rows(case, columns, "events"):
        if event["op"] == "r":
            average.record(event["value"], event["t_ms"])
            continue
        peeked = average.peek(event["t_ms"])
        yield from differences(f"event {index} peeked", event, {"avg": peeked})
        yield from differences(f"event {index}", event, {"avg": average.measure(event["t_ms"])})


def run_throttle_time(case: Case, columns: list[str], lazy: bool) -> Iterator[str]:
    """Compare the delay of O, T and the window of a rate without records: in 64 bits, in 32 bits, and capped."""
    for index, row in rows(case, columns, "rows"):
        window_ms = Rate(row["samples"], row["window_ms"]).window_size_ms(0)
        throttle_ms = throttle_time_ms(row["value"], row["bound"], window_ms)
        got = {
            "throttle_ms": throttle_ms,
            "throttle_ms_int32": narrow_to_int32(throttle_ms),
            "bounded_throttle_ms": min(throttle_ms, row["cap_ms"]),
        }
        yield from differences(f"row {index}", row, got)


def run_token_bucket(case: Case, columns: list[str], lazy: bool) -> Iterator[str]:
    """Replay strict and permissive requests for tokens."""
    group = MutationGroup({}, case["bound"], num_samples=case["samples"], window_ms=case["window_ms"])
    strict = case["mode"] == "strict"
    for index, event in rows(case, columns, "events"):
        now_ms, permits = event["t_ms"], event["permits"]
        rejected = strict and group.tokens(now_ms) < 0.0
        throttle_ms = group.record(permits, now_ms) if strict else group.record_permissive(permits, now_ms)
        got = {"rejected": rejected, "throttle_ms": throttle_ms, "tokens_after": group.tokens(now_ms)}
        yield from differences(f"event {index}", event, got)
