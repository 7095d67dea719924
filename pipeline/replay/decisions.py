"""Computes the decisions of sensors over a whole file set. Source: Kafka 3.8 `SampledStat`, `Rate`, `QuotaUtils`.

Why the result is exact
    Time does not go back within a run. The ring of N + 1 samples then never reuses the slot of a live sample, and a purged sample is never
    the oldest live one. Three facts replace the ring. The sum of live samples is the running total at the event less the running total
    before the first live sample. A sample is live at `t` while `t - last < N x window`. Last event times ascend within a group, so
    bisection finds the first live sample. Sums are integers. For bytes and connections a double holds them exactly. The proxy adds up
    request time as doubles of percent, so values within the rounding margin are recomputed by `exact`.
"""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from pipeline.replay.exact import fold
from pipeline.replay.rows import Flags, Floats, Ints, Rows
from quota.request_time import PERCENT_PER_NANOSECOND
from quota.throttle import INT32_MAX, narrow_to_int32, throttle_time_ms

MARGIN: Final = 1e-9
"""Relative distance from the bound within which rounding of a double sum may decide; a million times the possible error."""
NO_CAP: Final = -1


@dataclass(frozen=True, slots=True)
class Sensor:
    """Parameters of the groups of one call.

    Attributes:
        cap_ms: highest throttle time in ms, or `NO_CAP`.
        is_request_time: values are nanoseconds and are converted to percent.
    """

    num_samples: int
    window_ms: int
    cap_ms: int
    is_request_time: bool


@dataclass(frozen=True, slots=True)
class Decisions:
    """The recomputed decision of each event, in the order of `Rows`.

    Attributes:
        live_sum: sum of the live samples with the event itself, in units of `value`.
        window_ms, oldest_start_ms: window length, and start of the oldest live sample, at the event.
        observed: rate in units per second.
        violated, throttle_ms: False and 0 for events that were not checked.
        in_margin: the double sum decided. A violation of 0 ms may then be recorded or not.
    """

    live_sum: Ints
    window_ms: Ints
    oldest_start_ms: Ints
    observed: Floats
    violated: Flags
    throttle_ms: Ints
    in_margin: Flags

    @property
    def replayed_exactly(self) -> int:
        """Number of decisions that were recomputed with doubles in the proxy's order of additions."""
        return int(np.count_nonzero(self.in_margin))


def decide(rows: Rows, sensor: Sensor) -> Decisions:
    """Compute the decision of every event of `rows`; all groups have the parameters of `sensor`. In a paced group none waits."""
    samples = _samples(rows)
    first_live, oldest_start_ms = _live(rows, samples, sensor)
    live_sum = rows.running_total[1:] - rows.total_before[samples.first_row].take(first_live)
    window_ms = _window_ms(rows.ts_ms - oldest_start_ms, sensor)
    units = live_sum * PERCENT_PER_NANOSECOND if sensor.is_request_time else live_sum.astype(np.float64)
    observed = units / (window_ms / 1_000.0)
    violated, near = np.zeros((2, rows.events), np.bool_)
    if rows.paced.all():
        none_ms = np.broadcast_to(np.int64(0), rows.events)  # takes no memory; a clean verdict does not read it
        return Decisions(live_sum, window_ms, oldest_start_ms, observed, violated, none_ms, near)
    bound = rows.bound.take(rows.row_of)
    violated = (observed > bound) & rows.checked
    if rows.paced.any():
        violated &= ~rows.paced.take(rows.row_of)
    throttle_ms = _throttle_ms(observed, bound, window_ms, violated, sensor)
    if sensor.is_request_time:
        near = _near(observed, bound, window_ms, violated) & rows.checked
        if rows.paced.any():
            near &= ~rows.paced.take(rows.row_of)
        for event in np.flatnonzero(near):
            live = slice(int(first_live[event]), int(samples.of_event[event]) + 1)
            exact = fold(rows, samples.first_event[live], int(event), sensor.num_samples) / (int(window_ms[event]) / 1_000.0)
            violated[event] = exact > bound[event]
            throttle_ms[event] = _one(exact, float(bound[event]), int(window_ms[event]), sensor) if violated[event] else 0
    return Decisions(live_sum, window_ms, oldest_start_ms, observed, violated, throttle_ms, near)


def with_recorded_waits(rows: Rows, decided: Decisions) -> Decisions:
    """Return `decided` with the recorded waits of paced groups: how long a schedule delayed a request, before it passed.

    They depend on when the request came, which `rows` has only as the time at which it passed less this wait.
    """
    listed = rows.waits.at[rows.waits.throttle_ms > 0]
    listed = listed[rows.checked.take(listed) & rows.paced.take(rows.row_of.take(listed))]
    violated, throttle_ms = decided.violated.copy(), decided.throttle_ms.copy()
    violated[listed], throttle_ms[listed] = True, rows.throttle_ms.take(listed)
    return replace(decided, violated=violated, throttle_ms=throttle_ms)


def waits_under(rows: Rows, decided: Decisions, bounds: Floats, sensor: Sensor) -> Ints:
    """Return the throttle times in ms of the same events under other bounds, one per row. Measured rates do not depend on the bound."""
    if sensor.is_request_time:  # values within the margin of a bound are recomputed, and the margin depends on the bound
        return decide(replace(rows, bound=bounds), sensor).throttle_ms
    bound = bounds[rows.row_of]
    violated = (decided.observed > bound) & rows.checked
    return _throttle_ms(decided.observed, bound, decided.window_ms, violated, sensor)


class _Samples(NamedTuple):
    """The samples of some rows, in order.

    Attributes:
        first_row, last_row: index or slice of each sample's first and last row.
        first_event: first event of each sample.
        of_event: sample of each event.
    """

    first_row: Ints | slice
    last_row: Ints | slice
    first_event: Ints
    of_event: Ints


def _samples(rows: Rows) -> _Samples:
    if rows.is_new_sample.all():  # a sample has several rows only when its bound changes, or when a file ends
        return _Samples(slice(None), slice(None), rows.event_at, rows.row_of)
    first_row = np.flatnonzero(rows.is_new_sample)
    last_row = np.append(first_row[1:], len(rows.n)) - 1
    of_row = np.cumsum(rows.is_new_sample) - 1
    of_event = of_row.take(rows.row_of, mode="clip")  # indexing with brackets checks every index first
    return _Samples(first_row, last_row, rows.event_at[first_row], of_event)


def _live(rows: Rows, samples: _Samples, sensor: Sensor) -> tuple[Ints, Ints]:
    """Return, for each event, the first live sample, and the start of that sample."""
    group = rows.group_ref[samples.first_row] - (rows.group_ref[0] if len(rows.group_ref) else 0)
    span_ms = sensor.num_samples * sensor.window_ms
    first_ms, last_ms = rows.ends_ms if rows.events else (0, 0)
    origin = first_ms - span_ms - 1
    stride = last_ms - origin + 2
    apart = group * stride - origin  # separates the times of different groups
    keys = apart + rows.final_event_ms[samples.last_row]
    wanted = (apart - span_ms).take(samples.of_event, mode="clip") + rows.ts_ms
    ends = np.append(samples.first_event[1:], rows.events)
    first_live = np.minimum(_places(keys, wanted, ends), samples.of_event)
    return first_live, rows.sample_start_ms[samples.first_row].take(first_live)


def _places(keys: Ints, wanted: Ints, ends: Ints) -> Ints:
    """Return, for each value of `wanted`, the number of ascending keys that do not exceed it.

    There are fewer keys than values, so the keys are searched for in the values.

    Args:
        ends: for each key, a position in `wanted` at or after the first value that is not below the key. For groups with little traffic it
            is this position itself, since the next event comes after the previous sample has expired.
    """
    if (wanted[1:] < wanted[:-1]).any():  # only when events of a group do not ascend
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
    for event in at[~plain]:  # a bound of 0, or a wait above 24 days
        out[event] = _one(float(observed[event]), float(bound[event]), int(window_ms[event]), sensor)
    return out


def _one(observed: float, bound: float, window_ms: int, sensor: Sensor) -> int:
    throttle_ms = throttle_time_ms(observed, bound, window_ms)
    return narrow_to_int32(throttle_ms if sensor.cap_ms == NO_CAP else min(throttle_ms, sensor.cap_ms))


def _near(observed: Floats, bound: Floats, window_ms: Ints, violated: Flags) -> Flags:
    """Return, for each event, whether rounding of the sum could change the decision, or the last millisecond of the throttle time."""
    near = np.abs(observed - bound) <= np.abs(bound) * MARGIN
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        exact = (observed - bound) / bound * window_ms
        reach = (np.abs(observed / bound) + 1.0) * window_ms * MARGIN + MARGIN
        edge = np.abs(exact - np.floor(exact) - 0.5) <= reach
    return near | (violated & (edge | ~np.isfinite(exact)))
