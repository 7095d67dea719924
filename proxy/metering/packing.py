"""Raw decisions into packed samples, whole arrays at a time.

A sample begins at the first event that comes a window or more after the start of the one before it, so the boundaries are a chase
along "first event a window later" pointers, one hop per sample. What a lazy check never computed on the data path (prior sum, window,
highest rate) follows from running totals: lasts ascend within a group, so the first live sample of an event is found by bisection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from proxy.metering.record import RECORD
from proxy.metering.schema import SAMPLES
from quota.request_time import PERCENT_PER_NANOSECOND

Ints = NDArray[np.int64]
LISTS: Final = ("dt_ms", "val", "unchecked_pos", "thr_pos", "thr_ms", "applied_ms")
STATE: Final = pa.schema(
    [(name, pa.int64()) for name in ("group_ref", "sample_index", "start_ms", "last_ms", "sum")],
)
"""The samples of each group that can still be live, or at least its newest: what the next file set begins with."""


@dataclass(frozen=True, slots=True)
class Sensors:
    """How each group measures; indexed by group_ref."""

    num_samples: Ints
    window_ms: Ints
    is_request_time: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Decisions:
    """Raw decisions in the order in which they were taken, one entry each."""

    group_ref: Ints
    seq: Ints
    ts_ms: Ints
    value: Ints
    bound: NDArray[np.float64]
    throttle_ms: Ints
    applied_ms: Ints
    kind: Ints

    def only(self, chosen: NDArray[np.bool_]) -> Decisions:
        """Those that were chosen."""
        return Decisions(*(getattr(self, name)[chosen] for name in self.__slots__))

    def by_group(self) -> Decisions:
        """The same, groups apart, each in its order."""
        order = np.argsort(self.group_ref, kind="stable")
        return Decisions(*(getattr(self, name)[order] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class _Samples:
    """Samples of all groups, state first: sorted by (group, index)."""

    group_ref: Ints
    index: Ints
    start_ms: Ints
    last_ms: Ints
    total: Ints


@dataclass(frozen=True, slots=True)
class Figures:
    """Of each decision, in the order of `events`: start of its sample, live sum with it, window, oldest live start, rate."""

    events: Decisions
    sample_start_ms: Ints
    live_sum: Ints
    window_ms: Ints
    oldest_start_ms: Ints
    observed: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows of SAMPLES, the state after them, and what was found for each decision (None: there was none)."""

    samples: pa.Table
    state: pa.Table
    figures: Figures | None


def pack(decisions: Decisions, sensors: Sensors, state: pa.Table, run: tuple[str, str], *, lists: bool, cuts: Ints | None = None) -> Packed:
    """Pack decisions that follow each other without a gap.

    Args:
        state: what those before them left.
        run: run_id and proxy_id.
        cuts: numbers at which rows end whatever else goes on: how the proxy is set changed.
        lists: False leaves the lists null (level `sample`).
    """
    events = decisions.by_group()
    if not len(events.seq):
        return Packed(SAMPLES.empty_table(), state, None)
    begins, base = _boundaries(events, sensors, state)
    samples, sample_of, running = _samples(events, begins, base, state)
    figures = _measure(events, sensors, samples, sample_of, running)
    row_at = np.flatnonzero(_row_begins(events, sample_of, np.zeros(0, np.int64) if cuts is None else cuts))
    return Packed(_rows(events, samples, sample_of, figures, row_at, run, lists=lists), _next_state(samples, sensors), figures)


def _boundaries(events: Decisions, sensors: Sensors, state: pa.Table) -> tuple[Ints, Ints]:
    """Positions at which samples begin; and for each group's first event the position in `state` of the sample it may go on with, or -1."""
    group, ts_ms = events.group_ref, events.ts_ms
    origin = int(ts_ms.min())
    window_ms = sensors.window_ms[group]
    stride = int(ts_ms.max()) - origin + int(window_ms.max()) + 2
    keys = group * stride + (ts_ms - origin)
    following: Any = memoryview(np.searchsorted(keys, keys + window_ms))  # type: ignore[arg-type]  # numbers by position, faster than the array
    first = np.concatenate(([0], np.flatnonzero(group[1:] != group[:-1]) + 1))
    ends = np.concatenate((first[1:], [len(group)]))
    newest = _newest(state, len(sensors.window_ms))[group[first]]
    starts_ms = state.column("start_ms").to_numpy()
    begins: list[int] = []
    for at, end, known in zip(first.tolist(), ends.tolist(), newest.tolist(), strict=True):
        position = at
        if known >= 0:
            open_until = int(starts_ms[known]) + int(window_ms[at])
            position = at + int(np.searchsorted(ts_ms[at:end], open_until))
        while position < end:
            begins.append(position)
            position = following[position]
    base = np.full(len(group), -1, np.int64)
    base[first] = newest
    return np.array(begins, np.int64), base[first]


def _newest(state: pa.Table, groups: int) -> Ints:
    newest = np.full(groups, -1, np.int64)
    newest[state.column("group_ref").to_numpy()] = np.arange(len(state))  # sorted by (group, index): the last one stays
    return newest


def _samples(events: Decisions, begins: Ints, base: Ints, state: pa.Table) -> tuple[_Samples, Ints, Ints]:
    """All samples; the sample of each event; and what its sample holds with it."""
    old = {name: state.column(name).to_numpy().astype(np.int64) for name in STATE.names}
    group = events.group_ref
    first = np.concatenate(([0], np.flatnonzero(group[1:] != group[:-1]) + 1))
    is_begin = np.zeros(len(group), np.bool_)
    is_begin[begins] = True
    goes_on = first[~is_begin[first]]  # the group's first event belongs to a sample of the state
    known = base[~is_begin[first]]
    heads = np.sort(np.concatenate((begins, goes_on)))
    totals = np.add.reduceat(events.value, heads)
    lasts = events.ts_ms[np.concatenate((heads[1:], [len(group)])) - 1]
    continues = ~is_begin[heads]
    newest = np.full(int(group.max()) + 1, -1, np.int64)
    newest[group[first]] = np.where(base >= 0, old["sample_index"][base] if len(old["sample_index"]) else -1, -1)
    new_number = np.cumsum(~continues)
    number_before = (new_number - ~continues)[np.searchsorted(heads, first)]
    per_head_group = np.searchsorted(first, heads, side="right") - 1
    index = newest[group[heads]] + new_number - number_before[per_head_group]
    head_total = totals.copy()
    base_total = np.zeros(len(heads), np.int64)
    base_total[continues] = old["sum"][known] if len(known) else 0
    head_total += base_total
    starts = events.ts_ms[heads].copy()
    starts[continues] = old["start_ms"][known] if len(known) else 0
    kept = np.ones(len(state), np.bool_)
    kept[known] = False
    made = _Samples(
        np.concatenate((old["group_ref"][kept], group[heads])),
        np.concatenate((old["sample_index"][kept], index)),
        np.concatenate((old["start_ms"][kept], starts)),
        np.concatenate((old["last_ms"][kept], lasts)),
        np.concatenate((old["sum"][kept], head_total)),
    )
    order = np.lexsort((made.index, made.group_ref))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    head_of = np.searchsorted(heads, np.arange(len(group)), side="right") - 1
    cumulated = np.cumsum(events.value)
    running = cumulated - (cumulated[heads] - events.value[heads])[head_of] + base_total[head_of]
    sorted_samples = _Samples(*(getattr(made, name)[order] for name in made.__slots__))
    return sorted_samples, place[int(kept.sum()) + head_of], running


def _measure(events: Decisions, sensors: Sensors, samples: _Samples, sample_of: Ints, running: Ints) -> Figures:
    group, ts_ms = events.group_ref, events.ts_ms
    window, num_samples = sensors.window_ms[group], sensors.num_samples[group]
    origin = int(min(samples.last_ms.min(), ts_ms.min() - int((window * num_samples).max()))) - 1
    stride = int(ts_ms.max()) - origin + 2
    wanted = group * stride + (ts_ms - window * num_samples - origin)
    first_live = np.minimum(np.searchsorted(samples.group_ref * stride + (samples.last_ms - origin), wanted, side="right"), sample_of)
    before = np.concatenate(([0], np.cumsum(samples.total)[:-1]))
    live_sum = before[sample_of] - before[first_live] + running
    elapsed = ts_ms - samples.start_ms[first_live]
    window_ms = np.maximum(elapsed + np.maximum(num_samples - 1 - elapsed // window, 0) * window, 1)
    units = np.where(sensors.is_request_time[group], live_sum * PERCENT_PER_NANOSECOND, live_sum.astype(np.float64))
    observed = units / (window_ms / 1_000.0)
    return Figures(events, samples.start_ms[sample_of], live_sum, window_ms, samples.start_ms[first_live], observed)


def _row_begins(events: Decisions, sample_of: Ints, cuts: Ints) -> NDArray[np.bool_]:
    """A row ends with its sample, where the bound changes, and at a cut."""
    begins = np.ones(len(sample_of), np.bool_)
    begins[1:] = (sample_of[1:] != sample_of[:-1]) | (events.bound[1:] != events.bound[:-1])
    if len(cuts):
        era = np.searchsorted(cuts, events.seq, side="right")
        begins[1:] |= era[1:] != era[:-1]
    return begins


def _rows(
    events: Decisions, samples: _Samples, sample_of: Ints, figures: Figures, row_at: Ints, run: tuple[str, str], *, lists: bool
) -> pa.Table:
    count = np.diff(np.concatenate((row_at, [len(sample_of)])))
    last = row_at + count - 1
    sample = sample_of[row_at]
    checked = events.kind == RECORD
    listed = checked & ((events.throttle_ms > 0) | (figures.observed > events.bound))
    highest = np.maximum.reduceat(np.where(checked, figures.observed, -np.inf), row_at)
    waits = np.where(listed, events.throttle_ms, 0)
    applied = np.where(listed, events.applied_ms, 0)
    columns: dict[str, Any] = {
        "run_id": pa.array([run[0]] * len(row_at)),
        "proxy_id": pa.array([run[1]] * len(row_at)),
        "group_ref": samples.group_ref[sample],
        "sample_index": samples.index[sample],
        "sample_start_ms": samples.start_ms[sample],
        "last_event_ms": events.ts_ms[last],
        "n": count,
        "sum": np.add.reduceat(events.value, row_at),
        "prior_sum": (figures.live_sum - events.value)[row_at],
        "window_ms": figures.window_ms[row_at],
        "oldest_start_ms": figures.oldest_start_ms[row_at],
        "bound": events.bound[row_at],
        "first_seq": events.seq[row_at],
        "last_seq": events.seq[last],
        "max_observed": np.where(np.isneginf(highest), 0.0, highest),
        "throttled_n": np.add.reduceat((waits > 0).astype(np.int64), row_at),
        "violated_n": np.add.reduceat(listed.astype(np.int64), row_at),
        "throttle_ms_sum": np.add.reduceat(waits, row_at),
        "throttle_ms_max": np.maximum.reduceat(waits, row_at),
        "applied_ms_sum": np.add.reduceat(np.maximum(applied, 0), row_at),
    }
    if lists:
        columns |= _list_columns(events, samples, sample_of, row_at, count, listed, checked)
    else:
        columns |= {name: pa.nulls(len(row_at), SAMPLES.field(name).type) for name in LISTS}
    arrays = [_as(columns[field.name], field.type) for field in SAMPLES]
    return pa.Table.from_arrays(arrays, schema=SAMPLES)


def _list_columns(
    events: Decisions, samples: _Samples, sample_of: Ints, row_at: Ints, count: Ints, listed: NDArray[np.bool_], checked: NDArray[np.bool_]
) -> dict[str, Any]:
    position = np.arange(len(sample_of)) - np.repeat(row_at, count)
    every = np.ones(len(sample_of), np.bool_)

    def nested(values: NDArray[Any], chosen: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
        offsets = np.concatenate(([0], np.cumsum(np.add.reduceat(chosen.astype(np.int64), row_at))))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values[chosen], kind))

    return {
        "dt_ms": nested(events.ts_ms - samples.start_ms[sample_of], every, pa.int32()),
        "val": nested(events.value, every, pa.int64()),
        "unchecked_pos": nested(position, ~checked, pa.int32()),
        "thr_pos": nested(position, listed, pa.int32()),
        "thr_ms": nested(events.throttle_ms, listed, pa.int32()),
        "applied_ms": nested(events.applied_ms, listed, pa.int32()),
    }


def _as(values: Any, kind: pa.DataType) -> pa.Array:
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)


def _next_state(samples: _Samples, sensors: Sensors) -> pa.Table:
    """Keep the newest sample of each group, and what can still be live when it is."""
    group = samples.group_ref
    is_newest = np.ones(len(group), np.bool_)
    is_newest[:-1] = group[1:] != group[:-1]
    newest_last = samples.last_ms[np.flatnonzero(is_newest)][np.cumsum(is_newest) - is_newest]
    span = sensors.num_samples[group] * sensors.window_ms[group]
    kept = is_newest | (samples.last_ms + span > newest_last)
    columns = (samples.group_ref, samples.index, samples.start_ms, samples.last_ms, samples.total)
    return pa.Table.from_arrays([pa.array(column[kept], pa.int64()) for column in columns], schema=STATE)
