"""The sensor as a whole-file computation. Source: Kafka 3.8 `SampledStat`, `Rate`, `QuotaUtils`.

Why it is exact
    Time never steps back in a run. Then the ring of N + 1 samples never reuses a slot that is still live, a purged sample is
    never the oldest live one, and three facts replace the ring: the sum of live samples is the running total at the event less
    the running total before the first live sample; a sample is live at `t` while `t - last < N x window`; lasts ascend within a group, so
    the first live one is found by bisection. Sums are integers. For bytes and connections a double holds them exactly; request
    time is added up as doubles of percent in the proxy, so what lies within the rounding margin goes to `exact`.
"""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from pipeline.replay.exact import fold
from pipeline.replay.rows import Flags, Floats, Ints, Rows
from quota.request_time import PERCENT_PER_NANOSECOND
from quota.throttle import INT32_MAX, narrow_to_int32, throttle_time_ms

MARGIN: Final = 1e-9
"""Relative distance from the bound below which a sum of doubles could have fallen on the other side: a million times what it can."""
NO_CAP: Final = -1


@dataclass(frozen=True, slots=True)
class Sensor:
    """How the groups of one call measure.

    Attributes:
        cap_ms: longest verdict, or `NO_CAP`.
        is_request_time: values are nanoseconds and count as percent.
    """

    num_samples: int
    window_ms: int
    cap_ms: int
    is_request_time: bool


@dataclass(frozen=True, slots=True)
class Decisions:
    """What each event should have led to, in the order of `Rows`.

    Attributes:
        prior_sum, window_ms, oldest_start_ms: at the event; the sum without the event itself.
        observed: rate in units per second.
        violated, throttle_ms: of checked events; elsewhere False and 0.
        in_margin: whether the fold of doubles decided; then a violation that rounds to 0 ms may be listed or not.
    """

    prior_sum: Ints
    window_ms: Ints
    oldest_start_ms: Ints
    observed: Floats
    violated: Flags
    throttle_ms: Ints
    in_margin: Flags

    @property
    def replayed_exactly(self) -> int:
        """How many decisions went through the fold of doubles."""
        return int(self.in_margin.sum())


def decide(rows: Rows, sensor: Sensor) -> Decisions:
    """Work out every decision of `rows`, all of which are of sensors of this kind."""
    samples = _samples(rows)
    first_live, oldest_start_ms = _live(rows, samples, sensor)
    live_sum = rows.running_total[1:] - rows.total_before[samples.first_row].take(first_live)
    window_ms = _window_ms(rows.ts_ms - oldest_start_ms, sensor)
    units = live_sum * PERCENT_PER_NANOSECOND if sensor.is_request_time else live_sum.astype(np.float64)
    observed = units / (window_ms / 1_000.0)
    bound = rows.bound.take(rows.row_of)
    violated = (observed > bound) & rows.checked
    throttle_ms = _throttle_ms(observed, bound, window_ms, violated, sensor)
    near = np.zeros(rows.events, np.bool_)
    if sensor.is_request_time:
        near = _near(observed, bound, window_ms, violated) & rows.checked
        for event in np.flatnonzero(near):
            live = slice(int(first_live[event]), int(samples.of_event[event]) + 1)
            exact = fold(rows, samples.first_event[live], int(event), sensor.num_samples) / (int(window_ms[event]) / 1_000.0)
            violated[event] = exact > bound[event]
            throttle_ms[event] = _one(exact, float(bound[event]), int(window_ms[event]), sensor) if violated[event] else 0
    return Decisions(live_sum - rows.value, window_ms, oldest_start_ms, observed, violated, throttle_ms, near)


def waits_under(rows: Rows, decided: Decisions, bounds: Floats, sensor: Sensor) -> Ints:
    """Return the waits of the same events under other bounds, one for each row: what was measured does not depend on them."""
    if sensor.is_request_time:  # what lies within the margin of a bound is folded, and the margin moves with it
        return decide(replace(rows, bound=bounds), sensor).throttle_ms
    bound = bounds[rows.row_of]
    violated = (decided.observed > bound) & rows.checked
    return _throttle_ms(decided.observed, bound, decided.window_ms, violated, sensor)


class _Samples(NamedTuple):
    """Samples of some rows, in order.

    Attributes:
        first_row, last_row: what cuts out of a column of the rows, for each sample, its first one and its last one.
        first_event: of each sample.
        of_event: the sample of each event.
    """

    first_row: Ints | slice
    last_row: Ints | slice
    first_event: Ints
    of_event: Ints


def _samples(rows: Rows) -> _Samples:
    if rows.is_new_sample.all():  # a row ends before its sample does only where a bound changes, or a file
        return _Samples(slice(None), slice(None), rows.event_at, rows.row_of)
    first_row = np.flatnonzero(rows.is_new_sample)
    last_row = np.append(first_row[1:], len(rows.n)) - 1
    of_row = np.cumsum(rows.is_new_sample) - 1
    of_event = of_row.take(rows.row_of, mode="clip")  # brackets look at every index first
    return _Samples(first_row, last_row, rows.event_at[first_row], of_event)


def _live(rows: Rows, samples: _Samples, sensor: Sensor) -> tuple[Ints, Ints]:
    """For each event the first live sample, and its start."""
    group = rows.group_ref[samples.first_row] - (rows.group_ref[0] if len(rows.group_ref) else 0)
    span_ms = sensor.num_samples * sensor.window_ms
    origin = int(rows.ts_ms.min()) - span_ms - 1 if rows.events else 0
    stride = (int(rows.ts_ms.max()) - origin + 2) if rows.events else 1
    apart = group * stride - origin  # times of one group do not reach those of the next
    keys = apart + rows.final_event_ms[samples.last_row]
    wanted = (apart - span_ms).take(samples.of_event, mode="clip") + rows.ts_ms
    ends = np.append(samples.first_event[1:], rows.events)
    first_live = np.minimum(_places(keys, wanted, ends), samples.of_event)
    return first_live, rows.sample_start_ms[samples.first_row].take(first_live)


def _places(keys: Ints, wanted: Ints, ends: Ints) -> Ints:
    """How many of some ascending keys are not above each wanted one. There are fewer keys, so that they look for their places.

    Args:
        ends: for each key a place behind all that is wanted below it. Where groups have little to do it is the place itself: the next
            event comes when the sample before it has expired.
    """
    if (wanted[1:] < wanted[:-1]).any():  # only where events of a group do not ascend
        return np.searchsorted(keys, wanted, side="right")
    begins = ends.copy()
    farther = np.flatnonzero(wanted.take(ends, mode="clip") < keys)
    begins[farther] = np.searchsorted(wanted, keys.take(farther))
    return np.repeat(np.arange(len(keys) + 1), np.diff(begins, prepend=0, append=len(wanted)))


def _window_ms(elapsed_ms: Ints, sensor: Sensor) -> Ints:
    full = np.clip(elapsed_ms, 0, INT32_MAX).astype(np.int32) // np.int32(sensor.window_ms)  # 64-bit division takes four times as long
    missing = np.maximum(sensor.num_samples - 1 - full, 0)
    window_ms: Ints = np.maximum(elapsed_ms + missing * sensor.window_ms, 1)
    return window_ms


def _throttle_ms(observed: Floats, bound: Floats, window_ms: Ints, violated: Flags, sensor: Sensor) -> Ints:
    out = np.zeros(len(observed), np.int64)
    at = np.flatnonzero(violated)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        due = bound.take(at)
        exact = (observed.take(at) - due) / due * window_ms.take(at)
    plain = np.isfinite(exact) & (np.abs(exact) < INT32_MAX)
    value = exact[plain]
    floor = np.floor(value)
    rounded = (floor + (value - floor >= 0.5)).astype(np.int64)
    out[at[plain]] = rounded if sensor.cap_ms == NO_CAP else np.minimum(rounded, sensor.cap_ms)
    for event in at[~plain]:  # a bound of 0, or a wait of more than 24 days
        out[event] = _one(float(observed[event]), float(bound[event]), int(window_ms[event]), sensor)
    return out


def _one(observed: float, bound: float, window_ms: int, sensor: Sensor) -> int:
    throttle_ms = throttle_time_ms(observed, bound, window_ms)
    return narrow_to_int32(throttle_ms if sensor.cap_ms == NO_CAP else min(throttle_ms, sensor.cap_ms))


def _near(observed: Floats, bound: Floats, window_ms: Ints, violated: Flags) -> Flags:
    """Where rounding in the sum could turn the decision, or the last millisecond of the wait."""
    near = np.abs(observed - bound) <= np.abs(bound) * MARGIN
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        exact = (observed - bound) / bound * window_ms
        reach = (np.abs(observed / bound) + 1.0) * window_ms * MARGIN + MARGIN
        edge = np.abs(exact - np.floor(exact) - 0.5) <= reach
    return near | (violated & (edge | ~np.isfinite(exact)))
