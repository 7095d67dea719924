"""A group with a controller-mutation quota: a token bucket. Source: Kafka 3.8 `StrictControllerMutationQuota` and related classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from quota.entity import UNLIMITED
from quota.groups.group import Verdict, Verdicts, group_key, with_verdict
from quota.names import kept_name
from quota.sensor import Avg, Rate, TokenBucket
from quota.throttle import narrow_to_int32, round_half_up


class MutationGroup:
    """The token bucket of one group.

    Attributes:
        key, tags: the tags that the members share, as the callback returned them.
        parent: the group that this one is part of, or None.
        bound: mutations per second.
        mutation_rate: accepted mutations, over 2 windows of 30 s, for metrics.
        verdicts: the last waits above 0; `observed` is the balance, and `window_ms` the time that fills the bucket.
        throttled_until_ms, throttle_count, throttle_ms_total: end of the last wait, waits above 0 and their sum.
    """

    __slots__ = (
        "_bucket",
        "_burst_ms",
        "key",
        "last_record_ms",
        "mutation_rate",
        "parent",
        "tags",
        "throttle_count",
        "throttle_ms_total",
        "throttle_time",
        "throttled_until_ms",
        "verdicts",
    )

    def __init__(
        self,
        tags: Mapping[str, str],
        bound: float = UNLIMITED,
        *,
        num_samples: int = 11,
        window_ms: int = 1000,
        created_ms: int = 0,
        last_update_ms: int = 0,
        bucket: TokenBucket | None = None,
    ) -> None:
        self.parent: MutationGroup | None = None
        self.tags = {kept_name(name): kept_name(value) for name, value in tags.items()}
        self.key = group_key(tags)
        self.last_record_ms = created_ms
        self.mutation_rate = Rate(2, 30_000, created_ms)
        self.throttle_time: Avg | None = None
        self._bucket = TokenBucket(num_samples, window_ms, bound, last_update_ms) if bucket is None else bucket
        self._burst_ms = num_samples * window_ms
        self.verdicts: Verdicts = ()
        self.throttled_until_ms = 0
        self.throttle_count = 0
        self.throttle_ms_total = 0

    @property
    def bound(self) -> float:
        """Tokens per second."""
        return self._bucket.bound

    @property
    def span_ms(self) -> int:
        """The time that fills the bucket."""
        return self._burst_ms

    def update_bound(self, bound: float) -> None:
        """Refill at `bound` from the next record on; the balance stays."""
        self._bucket.bound = bound

    def record(self, permits: float, now_ms: int) -> int:
        """Strict mode: while the balance is below zero count nothing and return the wait in ms, else count and return 0."""
        throttle_ms = self.throttle_time_ms(now_ms)
        if self._bucket.measure(now_ms) < 0.0:
            self._note(permits, throttle_ms, now_ms)
            return throttle_ms
        self.record_unchecked(permits, now_ms)
        return 0

    def is_exhausted(self, now_ms: int) -> bool:
        """Whether the balance is below zero, so that a strict request is refused, however short the wait."""
        return self._bucket.measure(now_ms) < 0.0

    def record_permissive(self, permits: float, now_ms: int) -> int:
        """Permissive mode: count in any case, then return the wait in ms, 0 while the balance is not below zero."""
        self._count(permits, now_ms)
        throttle_ms = self.throttle_time_ms(now_ms)
        self._note(permits, throttle_ms, now_ms)
        return throttle_ms

    def record_unchecked(self, permits: float, now_ms: int) -> None:
        """Count `permits`; negative ones are given back."""
        self._count(permits, now_ms)

    def _count(self, permits: float, now_ms: int) -> None:
        self._bucket.record(permits, now_ms)
        self.mutation_rate.record(permits, now_ms)
        self.last_record_ms = now_ms

    def record_throttle(self, throttle_ms: int, now_ms: int) -> None:
        """Count a delay that took effect in the average throttle time; 0 and less are ignored, as in Kafka."""
        if throttle_ms <= 0:
            return
        if self.throttle_time is None:
            self.throttle_time = Avg(created_ms=now_ms)
        self.throttle_time.record(throttle_ms, now_ms)

    def throttle_time_ms(self, now_ms: int) -> int:
        """Return how long until the balance is no longer below zero, in ms, low 32 bits as in Kafka."""
        tokens = self._bucket.measure(now_ms)
        return narrow_to_int32(token_throttle_time_ms(tokens, self.bound)) if tokens < 0.0 else 0

    @property
    def balance(self) -> tuple[float, int]:
        """The balance at the last refill, and the time of that refill in ms."""
        return self._bucket.balance

    @balance.setter
    def balance(self, balance: tuple[float, int]) -> None:
        self._bucket.balance = balance

    @property
    def num_samples(self) -> int:
        """Number of windows whose refill the bucket holds."""
        return self._bucket.num_samples

    @property
    def window_ms(self) -> int:
        """Length of a window."""
        return self._bucket.window_ms

    def tokens(self, now_ms: int) -> float:
        """Return the balance; changes no state."""
        return self._bucket.peek(now_ms)

    def is_full(self, now_ms: int) -> bool:
        """Whether the bucket holds its whole burst, as a new one does."""
        return self._bucket.is_full(now_ms)

    def affordable(self, now_ms: int) -> float:
        """Return the balance that the next charge is compared with."""
        return self.tokens(now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """Return the time until the balance is not below zero, in ms, 64 bits; 0 when it is not."""
        tokens = self.tokens(now_ms)
        return token_throttle_time_ms(tokens, self.bound) if tokens < 0.0 else 0

    def is_idle(self, longer_than_ms: int, now_ms: int) -> bool:
        """Whether nothing was recorded for longer than this."""
        return now_ms - self.last_record_ms > longer_than_ms

    def like(self) -> dict[str, Any]:
        """Return the settings for another group that measures in the same way."""
        return {"num_samples": self.num_samples, "window_ms": self.window_ms}

    def leave(self) -> None:
        """The manager forgets the group. Overridden by groups that share usage with other processes."""

    def copy_to(self, other: Self) -> None:
        """Copy the state to another group, which has its own bound and continues this one; nothing is recorded here any more."""
        bound, other._bucket = other.bound, self._bucket
        other._bucket.bound = bound
        other._burst_ms, other.mutation_rate, other.last_record_ms = self._burst_ms, self.mutation_rate, self.last_record_ms
        other.throttle_time, other.verdicts, other.throttled_until_ms = self.throttle_time, self.verdicts, self.throttled_until_ms
        other.throttle_count, other.throttle_ms_total = self.throttle_count, self.throttle_ms_total

    def rate(self, now_ms: int) -> float:
        """Return accepted mutations per second; changes no state."""
        return self.mutation_rate.rate(now_ms)

    @property
    def recorded_total(self) -> float:
        """Everything accepted since the start."""
        return self.mutation_rate.recorded_total

    def _note(self, permits: float, throttle_ms: int, now_ms: int) -> None:
        if throttle_ms <= 0:
            return
        verdict = Verdict(now_ms, permits, self._bucket.measure(now_ms), self.bound, self._burst_ms, throttle_ms)
        self.verdicts = with_verdict(self.verdicts, verdict)
        self.throttled_until_ms = now_ms + throttle_ms
        self.throttle_count += 1
        self.throttle_ms_total += throttle_ms


def token_throttle_time_ms(tokens: float, bound: float) -> int:
    """Return the wait that brings a balance below zero back to zero, in ms, 64 bits."""
    if bound == 0.0:
        return round_half_up(float("inf"))
    return round_half_up(-tokens / bound * 1_000.0)
