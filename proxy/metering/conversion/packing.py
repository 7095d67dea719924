"""Packs decisions into samples, with array operations.

Values that a lazy check did not compute on the data path (prior sum, window, highest rate) follow from running totals: last events ascend
group, so the first live sample of an event is found by bisection. Nothing but sums differs between decisions of one group at one time, so
that is done once for each time; and what was noted as a run of equal decisions stays one until the lists of a row are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from metering_format.event_kinds import RECORD, REMOTE
from metering_format.tables import SAMPLES, SHARED_COLUMNS
from proxy.metering.conversion.bounds import Bounds
from proxy.metering.conversion.remotes import Remotes
from proxy.metering.conversion.runs import Flags, Ints, Runs
from proxy.metering.conversion.samples import Pieces, Samples, Sensors, Times, pieces_of, samples_of, spread, times_of
from proxy.metering.conversion.schedules import NOT_PACED, schedules_of
from quota.request_time import PERCENT_PER_NANOSECOND

Floats = NDArray[np.float64]
LISTS: Final = ("dt_ms", "val", "unchecked_pos", "thr_pos", "thr_ms", "applied_ms")
REMOTE_LISTS: Final = ("remote_pos", "remote_source", "remote_total")


@dataclass(frozen=True, slots=True)
class Figures:
    """For each run, in the order of `runs`: start of its sample, live sum with it, window, oldest live start, bound, rate with it.

    Attributes:
        checked: whether the bound was checked.
        paced: whether the group had a schedule.
        listed: whether the result appears in a row's lists.
    """

    runs: Runs
    sample_of: Ints
    sample_start_ms: Ints
    live_sum: Ints
    window_ms: Ints
    oldest_start_ms: Ints
    bound: Floats
    observed: Floats
    checked: Flags
    paced: Flags
    listed: Flags


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows of SAMPLES, the state after them, and the values found for each decision (None: there was none)."""

    samples: pa.Table
    state: pa.Table
    figures: Figures | None


def pack(
    runs: Runs,
    sensors: Sensors,
    bounds: Bounds,
    state: pa.Table,
    run: tuple[str, str],
    *,
    lists: bool,
    cuts: Ints | None = None,
    remotes: Remotes | None = None,
) -> Packed:
    """Pack consecutive decisions without a gap.

    Args:
        state: the state after the decisions before them.
        run: run_id and proxy_id.
        cuts: numbers at which rows end in any case, because settings change.
        lists: False leaves the lists null (level `sample`).
        remotes: those that are usage of other processes; None: the process shares no usage, and the columns for that are null.
    """
    if not len(runs):
        return Packed(SAMPLES.empty_table(), state, None)
    cuts = np.zeros(0, np.int64) if cuts is None else cuts[cuts > runs.seq[0]]
    runs = runs.divided_at(np.concatenate((bounds.from_seq, cuts))).by_group()
    samples, figures = _measured(runs, sensors, bounds, state)
    if (figures.listed & (runs.count > 1)).any():  # each of them has a place of its own in the lists
        runs = runs.apart(figures.listed)
        samples, figures = _measured(runs, sensors, bounds, state)
    row_at = np.flatnonzero(_row_begins(figures, cuts))
    schedules = schedules_of(runs, figures.bound, bounds.before(runs.group_ref, runs.seq), figures.paced, sensors.is_request_time, state)
    rows = _rows(samples, figures, row_at, run, remotes, schedules.lead_ns, lists=lists)
    return Packed(rows, samples.next_state(sensors, schedules.virtual_ns), figures)


def _measured(runs: Runs, sensors: Sensors, bounds: Bounds, state: pa.Table) -> tuple[Samples, Figures]:
    times = times_of(runs)
    amount = runs.value * runs.count
    pieces = pieces_of(times, sensors, state)
    samples, sample_of = samples_of(times, pieces, amount, state)
    return samples, _measure(runs, times, pieces, amount, sensors, bounds, samples, sample_of)


def _measure(
    runs: Runs, times: Times, pieces: Pieces, amount: Ints, sensors: Sensors, bounds: Bounds, samples: Samples, sample_of: Ints
) -> Figures:
    group, ts_ms = times.group_ref, times.ts_ms
    window, num_samples = sensors.window_ms[group], sensors.num_samples[group]
    span = window * num_samples
    origin = int(min(samples.last_ms.min(), ts_ms.min() - int(span.max()))) - 1
    stride = max(int(ts_ms.max()), int(samples.last_ms.max())) - origin + 2  # usage of other processes may be earlier than samples
    wanted = group * stride + (ts_ms - span - origin)
    first_live = np.minimum(np.searchsorted(samples.group_ref * stride + (samples.last_ms - origin), wanted, side="right"), sample_of)
    before = np.cumsum(samples.total) - samples.total
    cumulated = np.cumsum(amount)
    begins = times.at[pieces.begin_at]
    earlier = before[sample_of] - before[first_live] + spread(pieces.held - (cumulated[begins] - amount[begins]), pieces.counts)
    oldest_start_ms = samples.start_ms[first_live]
    elapsed = ts_ms - oldest_start_ms
    window_ms = np.maximum(elapsed + np.maximum(num_samples - 1 - elapsed // window, 0) * window, 1)
    live_sum = cumulated + spread(earlier, times.counts)
    is_request_time = sensors.is_request_time[runs.group_ref]
    units = live_sum.astype(np.float64)
    if is_request_time.any():
        units = np.where(is_request_time, live_sum * PERCENT_PER_NANOSECOND, units)
    observed = units / spread(window_ms / 1_000.0, times.counts)
    bound = bounds.at(runs.group_ref, runs.seq)
    checked = runs.kind == RECORD
    paced = bounds.paced_at(runs.group_ref, runs.seq)
    return Figures(
        runs,
        spread(sample_of, times.counts),
        spread(samples.start_ms[sample_of], times.counts),
        live_sum,
        spread(window_ms, times.counts),
        spread(oldest_start_ms, times.counts),
        bound,
        observed,
        checked,
        paced,
        checked & ((runs.throttle_ms > 0) | (~paced & (observed > bound))),
    )


def _row_begins(figures: Figures, cuts: Ints) -> Flags:
    """Return where rows begin: a row ends with its sample, where bound or pacing change, and at a cut."""
    sample_of, bound, paced = figures.sample_of, figures.bound, figures.paced
    begins = np.ones(len(sample_of), np.bool_)
    begins[1:] = (sample_of[1:] != sample_of[:-1]) | (bound[1:] != bound[:-1])
    if paced.any():
        begins[1:] |= paced[1:] != paced[:-1]
    if len(cuts):
        era = np.searchsorted(cuts, figures.runs.seq, side="right")
        begins[1:] |= era[1:] != era[:-1]
    return begins


def _rows(
    samples: Samples,
    figures: Figures,
    row_at: Ints,
    run: tuple[str, str],
    remotes: Remotes | None,
    lead_ns: Ints | None,
    *,
    lists: bool,
) -> pa.Table:
    runs = figures.runs
    last = np.append(row_at[1:], len(runs)) - 1
    sample = figures.sample_of[row_at]
    count = np.add.reduceat(runs.count, row_at)
    total = np.add.reduceat(runs.value * runs.count, row_at)
    checked, listed = figures.checked, figures.listed
    highest = np.maximum.reduceat(figures.observed if checked.all() else np.where(checked, figures.observed, -np.inf), row_at)
    waits = np.where(listed, runs.throttle_ms, 0)
    applied = np.where(listed, np.maximum(runs.applied_ms, 0), 0)
    columns: dict[str, Any] = {
        "run_id": pa.repeat(run[0], len(row_at)),
        "proxy_id": pa.repeat(run[1], len(row_at)),
        "group_ref": samples.group_ref[sample],
        "sample_index": samples.index[sample],
        "sample_start_ms": samples.start_ms[sample],
        "last_event_ms": runs.ts_ms[last],
        "n": count,
        "sum": total,
        "prior_sum": figures.live_sum[row_at] - runs.value[row_at] * runs.count[row_at],
        "window_ms": figures.window_ms[row_at],
        "oldest_start_ms": figures.oldest_start_ms[row_at],
        "bound": figures.bound[row_at],
        "first_seq": runs.seq[row_at],
        "last_seq": runs.seq[last] + runs.count[last] - 1,
        "max_observed": np.where(np.isneginf(highest), 0.0, highest),
        "throttled_n": np.add.reduceat(waits > 0, row_at, dtype=np.int64),
        "violated_n": np.add.reduceat(listed, row_at, dtype=np.int64),
        "throttle_ms_sum": np.add.reduceat(waits, row_at, dtype=np.int64),
        "throttle_ms_max": np.maximum.reduceat(waits, row_at),
        "applied_ms_sum": np.add.reduceat(applied, row_at, dtype=np.int64),
    }
    if lists:
        columns |= _list_columns(figures, row_at, count)
    if remotes is not None:
        columns |= _remote_columns(figures, row_at, remotes)
    nothing_known = (*(SHARED_COLUMNS["samples"] if remotes is None else ()), *(() if lists else (*LISTS, *REMOTE_LISTS)))
    columns |= {name: pa.nulls(len(row_at), SAMPLES.field(name).type) for name in nothing_known}
    columns["lead_ns"] = pa.nulls(len(row_at), pa.int64()) if lead_ns is None else _leads(lead_ns[row_at])
    arrays = [_as(columns[field.name], field.type) for field in SAMPLES]
    return pa.Table.from_arrays(arrays, schema=SAMPLES)


def _leads(lead_ns: Ints) -> pa.Array:
    return pa.array(lead_ns, pa.int64(), mask=lead_ns == NOT_PACED)


def _remote_columns(figures: Figures, row_at: Ints, remotes: Remotes) -> dict[str, Any]:
    """Return how much of each row is usage of other processes, and its attributes."""
    runs = figures.runs
    remote = runs.kind == REMOTE
    numbers = np.add.reduceat(remote, row_at, dtype=np.int64)
    begins = np.cumsum(runs.count) - runs.count
    places = (begins - np.repeat(begins[row_at], np.diff(row_at, append=len(runs))))[remote]
    source, total = remotes.of(runs.seq[remote])
    return {
        "remote_n": numbers,
        "remote_sum": np.add.reduceat(np.where(remote, runs.value, 0), row_at),
        "remote_pos": _nested(places, numbers, pa.int32()),
        "remote_source": _nested(source, numbers, pa.string()),
        "remote_total": _nested(total, numbers, pa.int64()),
    }


def _list_columns(figures: Figures, row_at: Ints, count: Ints) -> dict[str, Any]:
    runs, listed = figures.runs, figures.listed
    ends = np.cumsum(runs.count)
    begins = ends - runs.count
    row_counts = np.diff(row_at, append=len(runs))

    def every(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
        return _nested(spread(values, runs.count, int(ends[-1])), count, kind)

    def some(values: NDArray[Any], chosen: NDArray[np.bool_]) -> pa.Array:
        return _nested(values, np.add.reduceat(chosen, row_at, dtype=np.int64), pa.int32())

    def position(chosen: NDArray[np.bool_]) -> Ints:
        if not chosen.any():
            return begins[:0]
        places: Ints = (begins - np.repeat(begins[row_at], row_counts))[chosen]
        return places

    return {
        "dt_ms": every((runs.ts_ms - figures.sample_start_ms).astype(np.int32), pa.int32()),
        "val": every(runs.value, pa.int64()),
        "unchecked_pos": some(position(~figures.checked), ~figures.checked),
        "thr_pos": some(position(listed), listed),
        "thr_ms": some(runs.throttle_ms[listed], listed),
        "applied_ms": some(runs.applied_ms[listed], listed),
    }


def _nested(values: NDArray[Any] | pa.Array, counts: Ints, kind: pa.DataType) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(counts)))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values, kind))


def _as(values: Any, kind: pa.DataType) -> pa.Array:
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)
