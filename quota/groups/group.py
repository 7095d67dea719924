"""A group of connections that share one quota. This is the hot path.

Source: Kafka 3.8 `Sensor.record` with a `Rate`, and `ClientQuotaManager.recordAndGetThrottleTimeMs`.

Why most records need no measurement, and why skipping it has no visible effect
    Kafka measures on every record: it purges, adds up N + 1 samples and divides by the window size W. W is never shorter than N - 1
    windows while `now` is not before the oldest sample's start. So as long as

        (positive values in the ring) + (value in use)  <=  bound x (N - 1) x window_s x (1 - 1e-9)

    the measured rate cannot exceed the bound: leaving out negative values only makes the left side larger, and the margin is a
    million times what N + 2 roundings can lose. The answer is then 0 without looking. `_free` is what the sample in use may
    reach; it is computed again when a sample begins or the bound changes. After an expiry it is smaller than necessary, which costs
    a measurement and does not change the result.

    Skipping the sum changes no state, because a sum has none. Purging changes state, so it is *not* skipped. `_purge_ms` is when the
    next sample becomes obsolete, the short path ends there, and the first checked record at or after it purges, exactly when Kafka
    does. State is therefore equal to Kafka's after every record, also when the clock steps back: the short path is not taken
    before the start of the sample in use, where W may be shorter than N - 1 windows. The vectors and a property test run
    both ways and compare.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

from quota.entity import UNLIMITED
from quota.names import kept_name
from quota.sensor import Avg, SampleRing
from quota.throttle import narrow_to_int32, throttle_time_ms

VERDICTS_MAX: Final = 16
SMALLEST_LAZY_BOUND: Final = 1e-290  # below it the margin is smaller than the spacing of denormal numbers
LAZY_MARGIN: Final = 1.0 - 1e-9
NO_ROOM: Final = float("-inf")

GroupKey = tuple[tuple[str, str], ...]
"""Tags as sorted pairs: equal tags share a group."""


class Verdict(NamedTuple):
    """One evaluation that led to a delay, with all values that are needed to compute it again."""

    time_ms: int
    amount: float
    observed: float
    bound: float
    window_ms: int
    throttle_ms: int


Verdicts = deque[Verdict] | tuple[()]
"""The last verdicts of a group. An empty deque takes 760 bytes, and with very many groups most have none."""


def with_verdict(verdicts: Verdicts, verdict: Verdict) -> Verdicts:
    """Return the last verdicts with `verdict` added."""
    kept = verdicts if isinstance(verdicts, deque) else deque[Verdict](maxlen=VERDICTS_MAX)
    kept.append(verdict)
    return kept


class QuotaGroup(SampleRing):
    """Rate of one group, its bound, and the last verdicts.

    Attributes:
        key, tags: the tags that the members share, as the callback returned them.
        bound: units per second; `UNLIMITED` without a quota. Changed by `update_bound`.
        cap_ms: maximum of a verdict (request time); None: no maximum.
        verdicts: the last evaluations with a delay above 0.
        throttled_until_ms: end of the delay of the last verdict.
        throttle_count, throttle_ms_total: verdicts above 0 and their sum.
        parent: the group that this one is part of, or None.
    """

    __slots__ = (
        "_free",
        "_lazy",
        "_limit",
        "bound",
        "cap_ms",
        "key",
        "parent",
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
        cap_ms: int | None = None,
        created_ms: int = 0,
        lazy: bool = True,
    ) -> None:
        super().__init__(num_samples, window_ms, created_ms)
        self.key = group_key(tags)
        self.parent: QuotaGroup | None = None
        self.cap_ms = cap_ms
        self._lazy = lazy
        self.bound = bound
        self._limit = self._lazy_limit()
        self._free = NO_ROOM
        self.verdicts: Verdicts = ()
        self.throttled_until_ms = 0
        self.throttle_count = 0
        self.throttle_ms_total = 0
        self.throttle_time: Avg | None = None

    def record(self, amount: float, now_ms: int) -> int:
        """Count `amount` at `now_ms` and check the bound.

        Returns:
            Kafka's throttle time in ms: 0 within the quota; signed 32 bits, quirks included. What was recorded stays recorded.
        """
        if self._start_ms <= now_ms < self._end_ms:
            value = self._value + amount
            if value <= self._free:
                self._value = value
                self._last_ms = now_ms
                return 0
        return self._record_and_measure(amount, now_ms)

    def record_within(self, amount: float, now_ms: int) -> bool:
        """Count `amount` if it is certainly within the bound, without a measurement. False: nothing was counted, and `record` decides."""
        if self._start_ms <= now_ms < self._end_ms:
            value = self._value + amount
            if value <= self._free:
                self._value = value
                self._last_ms = now_ms
                return True
        return False

    def has_room(self, amount: float, now_ms: int) -> bool:
        """Whether `record_within` would count `amount`."""
        return self._start_ms <= now_ms < self._end_ms and self._value + amount <= self._free

    def record_unchecked(self, amount: float, now_ms: int) -> None:
        """Count `amount` without checking the bound; a negative amount takes back (un-record)."""
        self._add(amount, now_ms)

    def would_throttle_ms(self, extra: float, now_ms: int) -> int:
        """Return what `record(extra, now_ms)` would return, without changing state; the cap and the 32 bits apply as there."""
        if self._start_ms <= now_ms < self._end_ms and self._value + extra <= self._free:
            return 0
        return self._predicted(extra, now_ms).throttle_ms

    def predict_throttle(self, extra: float, now_ms: int) -> int:
        """Return what `would_throttle_ms` does, and add a delay above 0 to the verdicts, since the caller lets such a request wait."""
        verdict = self._predicted(extra, now_ms)
        if verdict.throttle_ms > 0:
            self._note(verdict)
        return verdict.throttle_ms

    def _predicted(self, extra: float, now_ms: int) -> Verdict:
        trial = SampleRing(self.num_samples, self.window_ms)
        self._copy_samples_to(trial)
        trial._add(extra, now_ms)
        total, window_ms = trial._peek(now_ms)
        observed = total / (window_ms / 1_000.0)
        throttle_ms = 0 if observed <= self.bound else self._throttle_ms(observed, window_ms)
        return Verdict(now_ms, extra, observed, self.bound, window_ms, throttle_ms)

    def certain_room(self, now_ms: int) -> float:
        """Return how much is certainly within the bound now, without a measurement; below 0 only a measurement can tell."""
        return self._free - self._value if self._start_ms <= now_ms < self._end_ms else NO_ROOM

    def next_expiry_ms(self, now_ms: int) -> int:
        """Return when the next sample becomes obsolete if nothing is recorded before; changes no state.

        A sample that is obsolete already stays in the ring until the next record, and does not count here.
        """
        lasts = [self._last_ms if index == self._current else last_ms for index, last_ms in enumerate(self._lasts)]
        return min((last_ms for last_ms in lasts if last_ms + self._span_ms > now_ms), default=now_ms) + self._span_ms

    def update_bound(self, bound: float) -> None:
        """Use `bound` from the next evaluation on; what was recorded stays."""
        self.bound = bound
        self._limit = self._lazy_limit()
        self._free = self._free_room()

    def max_value_in_window(self) -> float:
        """The most that one window can hold: bound x (N - 1) x window; the largest double when unlimited."""
        return max_value_in_window(None if self.bound >= UNLIMITED else self.bound, self.num_samples, self.window_ms)

    def is_idle(self, longer_than_ms: int, now_ms: int) -> bool:
        """Whether nothing was recorded for longer than this, so that the group may be forgotten."""
        return now_ms - self.last_record_ms > longer_than_ms

    def leave(self) -> None:
        """The manager forgets the group. Overridden by groups that share usage with other processes."""

    def copy_to(self, other: Self) -> None:
        """Copy the state to another group, which has its own bound and continues this one; nothing is recorded here any more."""
        self._copy_samples_to(other)
        other._recorded_before = self._recorded_before
        other.update_bound(other.bound)
        other.verdicts = self.verdicts
        other.throttled_until_ms = self.throttled_until_ms
        other.throttle_count, other.throttle_ms_total = self.throttle_count, self.throttle_ms_total
        other.throttle_time = self.throttle_time

    def like(self) -> dict[str, Any]:
        """Return the settings for another group that measures in the same way."""
        return {"num_samples": self.num_samples, "window_ms": self.window_ms, "cap_ms": self.cap_ms, "lazy": self._lazy}

    def record_throttle(self, throttle_ms: int, now_ms: int) -> None:
        """Count a delay that took effect in the average throttle time; 0 and less are ignored, as in Kafka."""
        if throttle_ms <= 0:
            return
        if self.throttle_time is None:
            self.throttle_time = Avg(created_ms=now_ms)
        self.throttle_time.record(throttle_ms, now_ms)

    def _record_and_measure(self, amount: float, now_ms: int) -> int:
        self._add(amount, now_ms)
        if now_ms >= self._purge_ms:
            self._purge(now_ms)
            if self._value > self._free:  # else what was left out may stay left out until the next sample
                self._free = self._free_room()
        if self._value <= self._free and now_ms >= self._start_ms:
            return 0
        self._values[self._current] = self._value
        total = 0.0
        for value in self._values:
            total += value
        window_ms = self._measured_window_ms(now_ms, min(self._starts))
        observed = total / (window_ms / 1_000.0)
        if observed <= self.bound:
            return 0
        throttle_ms = self._throttle_ms(observed, window_ms)
        if throttle_ms > 0:
            self._note(Verdict(now_ms, amount, observed, self.bound, window_ms, throttle_ms))
        return throttle_ms

    def _throttle_ms(self, observed: float, window_ms: int) -> int:
        throttle_ms = throttle_time_ms(observed, self.bound, window_ms)
        if self.cap_ms is not None and throttle_ms > self.cap_ms:
            throttle_ms = self.cap_ms
        return narrow_to_int32(throttle_ms)

    def _note(self, verdict: Verdict) -> None:
        self.verdicts = with_verdict(self.verdicts, verdict)
        self.throttled_until_ms = verdict.time_ms + verdict.throttle_ms
        self.throttle_count += 1
        self.throttle_ms_total += verdict.throttle_ms

    def _rolled(self) -> None:
        self._free = self._free_room()

    @property
    def tags(self) -> dict[str, str]:
        """The tags, as a dictionary made from the key at each call: 50,000 groups that keep one each would take 9 MB more."""
        return dict(reversed(self.key))

    def _free_room(self) -> float:
        """What the sample in use may reach before a measurement is needed; -infinity: always measure."""
        values = self._values
        if values:
            values[self._current] = 0.0  # the value of the sample in use is kept in an attribute, so its slot in the list is left out
        limit = self._limit
        closed = sum(values) if not values or min(values) >= 0.0 else sum(value for value in values if value > 0.0)
        return limit - closed if closed <= limit else NO_ROOM

    def _lazy_limit(self) -> float:
        if not self._lazy or not self.bound >= 0.0:  # a negative or NaN bound: nothing is ever within it for certain
            return NO_ROOM
        if self.bound < SMALLEST_LAZY_BOUND:
            return 0.0
        seconds = (self.num_samples - 1) * self.window_ms / 1_000.0
        return self.bound * seconds * LAZY_MARGIN


def group_key(tags: Mapping[str, str]) -> GroupKey:
    """Return tags as a key that is equal for equal tags; long names are shortened."""
    return tuple(sorted((kept_name(name), kept_name(value)) for name, value in tags.items()))


def max_value_in_window(limit: float | None, num_samples: int, window_ms: int) -> float:
    """Return limit x (N - 1) x window in that order of operations; the largest double without a limit. Source: Kafka 3.8."""
    if limit is None:
        return 1.7976931348623157e308
    return limit * (num_samples - 1) * (window_ms / 1_000.0)
