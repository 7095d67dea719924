"""The demand on a token bucket: the lowest rate at which each request would have passed without a wait.

A bucket of rate r has the capacity r x span, where span is the length of all its windows. Its balance is negative when, since some time at
which it was full, more was taken than its capacity and the tokens added since: taken > r x (span + time since). The rate that a request
needs is the maximum of taken / (span + time since) over all earlier times. A short burst therefore counts over the span, and a long one by
its mean.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from metering_format.event_kinds import CHARGED, OWED, REFUSED
from pipeline.replay.rows import Flags, Floats, Ints
from pipeline.whatif.buckets import Steps

REQUEST_KINDS: Final = (CHARGED, REFUSED, OWED)
"""Kinds of steps that may have to wait. SETTLED steps never wait, and a step that another bucket refused did not wait for this one."""


@dataclass(slots=True)
class TakenAmount:
    """The amount taken from a bucket so far.

    Attributes:
        total: mutations taken less mutations returned.
    """

    total: int = 0
    _times_ms: list[int] = field(default_factory=list)
    _totals: list[int] = field(default_factory=list)

    def take(self, permits: int, ts_ms: int) -> None:
        """Take `permits` mutations, or return them when negative. Times must not descend."""
        self._may_have_been_full(ts_ms)
        self.total += permits

    def lowest_rate(self, ts_ms: int, span_ms: int) -> float:
        """Return the lowest rate, in mutations per second, at which the balance is not negative now; `span_ms` is the bucket's span."""
        self._may_have_been_full(ts_ms)
        times, totals, at_ms = self._times_ms, self._totals, ts_ms + span_ms

        def is_steepest(at: int) -> bool:
            """Whether the line from the next point is not steeper: that point lies on or above the line from this one to the present."""
            run_ms, rise = times[at + 1] - times[at], totals[at + 1] - totals[at]
            return rise * (at_ms - times[at]) >= (self.total - totals[at]) * run_ms

        at = bisect_left(range(len(times) - 1), True, key=is_steepest)
        return (self.total - totals[at]) * 1_000 / (at_ms - times[at])

    def _may_have_been_full(self, ts_ms: int) -> None:
        """Keep (time, total) as a point of the lower convex hull. The steepest line never begins at any other point."""
        times, totals = self._times_ms, self._totals
        if times and times[-1] == ts_ms and totals[-1] <= self.total:
            return
        while times and times[-1] == ts_ms:
            times.pop()
            totals.pop()
        while len(times) > 1 and (totals[-1] - totals[-2]) * (ts_ms - times[-1]) >= (self.total - totals[-1]) * (times[-1] - times[-2]):
            times.pop()
            totals.pop()
        times.append(ts_ms)
        totals.append(self.total)


@dataclass(frozen=True, slots=True)
class BucketRequests:
    """The requests to one bucket in one run.

    Attributes:
        seconds, units: seconds with requests, ascending, and the mutations of each. Mutations that are returned later are subtracted from
            the second of the last request before.
        rates: the highest rate that the requests of each second need. One more entry has the rate for the end of the run, since a bucket
            with a negative balance there would make later requests wait.
        throttled_seconds: number of seconds in which a request was refused or waited, without `observe`.
    """

    seconds: Ints
    units: Ints
    rates: Floats
    throttled_seconds: int


def requests_of(steps: Steps, span_ms: int, end_ms: int) -> BucketRequests | None:
    """Return the requests to one bucket that is full at the beginning; None when there are none.

    Args:
        steps: the steps of the bucket in one run.
        span_ms: length of all its windows.
        end_ms: end of the run, wall clock.
    """
    asks = np.isin(steps.kind, REQUEST_KINDS)
    if not asks.any():
        return None
    made = made_by(steps)
    needed, at_end = lowest_rates(steps, made, span_ms, end_ms)
    step_second = steps.ts_ms // 1_000
    seconds, of_ask = np.unique(step_second[asks], return_inverse=True)
    rates = np.zeros(len(seconds))
    np.maximum.at(rates, of_ask, needed[asks])
    units = np.zeros(len(seconds), np.int64)
    np.add.at(units, np.maximum(np.searchsorted(seconds, step_second, side="right") - 1, 0), made)
    waited = asks & (((steps.kind == REFUSED) & ~_was_only_observed(steps)) | ((steps.throttle_ms > 0) & (steps.applied_ms > 0)))
    return BucketRequests(seconds, units, np.append(rates, at_end), len(np.unique(step_second[waited])))


def made_by(steps: Steps) -> Ints:
    """Return the mutations of each step. A refused step has none, since the client retries; in `observe` it has its first topic's."""
    made: Ints = np.where(_was_only_observed(steps), steps.value, steps.taken)
    return made


def _was_only_observed(steps: Steps) -> Flags:
    only_observed: Flags = (steps.kind == REFUSED) & (steps.throttle_ms > 0) & (steps.applied_ms == 0)
    return only_observed


def lowest_rates(steps: Steps, made: Ints, span_ms: int, end_ms: int) -> tuple[Floats, float]:
    """Return the rate that each step needs, 0 for steps that request nothing, and the rate at which the final balance is not negative.

    A request that can be refused depends on what was taken before it. Any other request depends on the balance that it leaves.
    """
    taken = TakenAmount()
    needed = np.zeros(len(made))
    times_ms = np.maximum.accumulate(steps.ts_ms).tolist()  # times descend only in wrong files, which `validate` reports
    for at, (ts_ms, kind, permits) in enumerate(zip(times_ms, steps.kind.tolist(), made.tolist(), strict=True)):
        if kind in (CHARGED, REFUSED):
            needed[at] = taken.lowest_rate(ts_ms, span_ms)
        taken.take(permits, ts_ms)
        if kind == OWED:
            needed[at] = taken.lowest_rate(ts_ms, span_ms)
    return needed, taken.lowest_rate(max(end_ms, times_ms[-1]), span_ms)
