"""What clients asked of a token bucket: the lowest rate at which each ask would have passed without a wait.

A bucket of rate r is full with span x r mutations, span being its windows together. It is below zero when since some time before, at which
it was full, more was taken than it held then and came in meanwhile: taken > r x (span + time since). So the rate that an ask needs is the
highest of taken / (span + time since) over all earlier times. A burst counts by the seconds that the bucket holds, and what goes on for
long by its mean.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from metering_format.event_kinds import CHARGED, OWED, REFUSED
from pipeline.replay.rows import Flags, Floats, Ints
from pipeline.whatif.buckets import Steps

ASKS: Final = (CHARGED, REFUSED, OWED)
"""Kinds of steps that may have to wait; what is settled never does, and what another bucket refused did not."""


@dataclass(slots=True)
class Taken:
    """What was taken from a bucket so far.

    Attributes:
        total: mutations, less what was given back.
    """

    total: int = 0
    _times_ms: list[int] = field(default_factory=list)
    _totals: list[int] = field(default_factory=list)

    def take(self, permits: int, ts_ms: int) -> None:
        """Take `permits`, negative when given back; times do not go back."""
        self._may_have_been_full(ts_ms)
        self.total += permits

    def lowest_rate(self, ts_ms: int, span_ms: int) -> float:
        """Return the lowest rate, in mutations per second, whose bucket is not below zero now; its windows last `span_ms` together."""
        self._may_have_been_full(ts_ms)
        times, totals, at_ms = self._times_ms, self._totals, ts_ms + span_ms

        def is_steepest(at: int) -> bool:
            """Whether a line from the next point would rise no faster: it lies on or above the line from this one to here."""
            run_ms, rise = times[at + 1] - times[at], totals[at + 1] - totals[at]
            return rise * (at_ms - times[at]) >= (self.total - totals[at]) * run_ms

        at = bisect_left(range(len(times) - 1), True, key=is_steepest)
        return (self.total - totals[at]) * 1_000 / (at_ms - times[at])

    def _may_have_been_full(self, ts_ms: int) -> None:
        """Keep (time, total) as a point of the lower convex hull: others can never be where the steepest line begins."""
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
class Asks:
    """What was asked of one bucket in one run.

    Attributes:
        seconds, units: seconds in which something was asked for, ascending, and the mutations that were made. What is given back later is
            taken off the second of the last ask before it.
        rates: the highest in each of these seconds of what its asks needed, and at last what the end of the run needs: a bucket that
            is left below zero only lets others wait.
        throttled_seconds: seconds in which a client was refused or waited, without those of `observe`.
    """

    seconds: Ints
    units: Ints
    rates: Floats
    throttled_seconds: int


def asks_of(steps: Steps, span_ms: int, end_ms: int) -> Asks | None:
    """Return what was asked of one bucket, full at the begin; None: nothing was.

    Args:
        span_ms: its windows together.
        end_ms: of the run.
    """
    asks = np.isin(steps.kind, ASKS)
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
    return Asks(seconds, units, np.append(rates, at_end), len(np.unique(step_second[waited])))


def made_by(steps: Steps) -> Ints:
    """Return the mutations that each step brought: a refused one none, since its client asks again, but in `observe` its first topic's."""
    made: Ints = np.where(_was_only_observed(steps), steps.value, steps.taken)
    return made


def _was_only_observed(steps: Steps) -> Flags:
    only_observed: Flags = (steps.kind == REFUSED) & (steps.throttle_ms > 0) & (steps.applied_ms == 0)
    return only_observed


def lowest_rates(steps: Steps, made: Ints, span_ms: int, end_ms: int) -> tuple[Floats, float]:
    """Return the rate that each step needs, 0 where it asks for nothing, and the one at which the balance is not negative at the end.

    An ask that can be refused is judged by what was taken before it; one that cannot be, by what it leaves.
    """
    taken = Taken()
    needed = np.zeros(len(made))
    times_ms = np.maximum.accumulate(steps.ts_ms).tolist()  # files that are wrong may go back; `validate` says so
    for at, (ts_ms, kind, permits) in enumerate(zip(times_ms, steps.kind.tolist(), made.tolist(), strict=True)):
        if kind in (CHARGED, REFUSED):
            needed[at] = taken.lowest_rate(ts_ms, span_ms)
        taken.take(permits, ts_ms)
        if kind == OWED:
            needed[at] = taken.lowest_rate(ts_ms, span_ms)
    return needed, taken.lowest_rate(max(end_ms, times_ms[-1]), span_ms)
