"""Packed samples as flat arrays: one entry per row, and one per event, groups apart and each in decision order."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

NOT_LISTED: Final = -(2**40)
"""What a decision says that is in no list: neither throttled nor violated."""
EXCUSED: Final = -1
"""An applied time that says: this connection waits for nothing (it keeps a group membership alive)."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of `samples`, sorted by (group, first_seq), and their events in the same order.

    Attributes:
        count: how many events the lists of each row hold; `n` is what the row says.
        row_of: the row of each event.
        is_new_sample: of each row: it begins a sample, it does not go on with the one before.
        ts_ms, value: of each event.
        checked: False for what was recorded without a look at the bound.
        throttle_ms: as recorded; `NOT_LISTED` where nothing was recorded.
        applied_ms: what the client was told or held for, `NOT_LISTED` as above.
    """

    group_ref: Ints
    sample_index: Ints
    sample_start_ms: Ints
    last_event_ms: Ints
    n: Ints
    count: Ints
    total: Ints
    prior_sum: Ints
    window_ms: Ints
    oldest_start_ms: Ints
    bound: Floats
    first_seq: Ints
    last_seq: Ints
    max_observed: Floats
    throttled_n: Ints
    violated_n: Ints
    throttle_ms_sum: Ints
    is_new_sample: Flags
    event_at: Ints
    row_of: Ints
    ts_ms: Ints
    value: Ints
    checked: Flags
    throttle_ms: Ints
    applied_ms: Ints

    @property
    def events(self) -> int:
        """How many events all rows hold."""
        return len(self.value)


def unpack(samples: pa.Table) -> Rows:
    """Flatten a table with the columns of SAMPLES at level `packed`.

    Raises:
        ValueError: a row has no lists, or lists of different lengths.
    """
    samples = samples.combine_chunks()
    order = np.lexsort((_ints(samples, "first_seq"), _ints(samples, "group_ref")))
    samples = samples.take(pa.array(order))
    n = _ints(samples, "n")
    dt_ms, counts = _flat(samples, "dt_ms")
    values, value_counts = _flat(samples, "val")
    if not np.array_equal(counts, value_counts):
        raise ValueError("dt_ms and val have different lengths")
    row_of = np.repeat(np.arange(len(n)), counts)
    event_at = np.concatenate(([0], np.cumsum(counts)[:-1])) if len(counts) else np.zeros(0, np.int64)
    start_ms, group_ref = _ints(samples, "sample_start_ms"), _ints(samples, "group_ref")
    throttle_ms = _scattered(samples, "thr_ms", "thr_pos", event_at, len(values))
    return Rows(
        group_ref=group_ref,
        sample_index=_ints(samples, "sample_index"),
        sample_start_ms=start_ms,
        last_event_ms=_ints(samples, "last_event_ms"),
        n=n,
        count=counts,
        total=_ints(samples, "sum"),
        prior_sum=_ints(samples, "prior_sum"),
        window_ms=_ints(samples, "window_ms"),
        oldest_start_ms=_ints(samples, "oldest_start_ms"),
        bound=_numbers(samples, "bound").astype(np.float64),
        first_seq=_ints(samples, "first_seq"),
        last_seq=_ints(samples, "last_seq"),
        max_observed=_numbers(samples, "max_observed").astype(np.float64),
        throttled_n=_ints(samples, "throttled_n"),
        violated_n=_ints(samples, "violated_n"),
        throttle_ms_sum=_ints(samples, "throttle_ms_sum"),
        is_new_sample=_begins(group_ref, start_ms),
        event_at=event_at.astype(np.int64),
        row_of=row_of,
        ts_ms=start_ms[row_of] + dt_ms,
        value=values,
        checked=_checked(samples, event_at, len(values)),
        throttle_ms=throttle_ms,
        applied_ms=_scattered(samples, "applied_ms", "thr_pos", event_at, len(values)),
    )


def _begins(group_ref: Ints, start_ms: Ints) -> Flags:
    if not len(group_ref):
        return np.zeros(0, np.bool_)
    changes = (group_ref[1:] != group_ref[:-1]) | (start_ms[1:] != start_ms[:-1])
    return np.concatenate(([True], changes))


def _checked(samples: pa.Table, event_at: Ints, events: int) -> Flags:
    checked = np.ones(events, np.bool_)
    positions, counts = _flat(samples, "unchecked_pos")
    checked[np.repeat(event_at, counts).astype(np.int64) + positions] = False
    return checked


def _scattered(samples: pa.Table, values: str, positions: str, event_at: Ints, events: int) -> Ints:
    out = np.full(events, NOT_LISTED, np.int64)
    at, counts = _flat(samples, positions)
    listed, value_counts = _flat(samples, values)
    if not np.array_equal(counts, value_counts):
        raise ValueError(f"{values} and {positions} have different lengths")
    out[np.repeat(event_at, counts).astype(np.int64) + at] = listed
    return out


def _flat(samples: pa.Table, name: str) -> tuple[Ints, Ints]:
    column: Any = samples.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    if column.null_count:
        raise ValueError(f"{name} is not written: only levels packed and trace can be replayed")
    offsets = column.offsets.to_numpy()
    return column.flatten().to_numpy(zero_copy_only=False).astype(np.int64), np.diff(offsets).astype(np.int64)


def _ints(samples: pa.Table, name: str) -> Ints:
    return _numbers(samples, name).astype(np.int64)


def _numbers(samples: pa.Table, name: str) -> NDArray[Any]:
    numbers: NDArray[Any] = samples.column(name).to_numpy()
    return numbers
