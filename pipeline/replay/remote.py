"""Finds the events of unpacked rows that are another process's usage."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from metering_format.places import PACED, SHARED
from pipeline.file_set import FileSet
from pipeline.replay.rows import COLUMNS, LEAD, Flags, Ints, Rows

REMOTE_COLUMNS: Final = ["remote_pos", "remote_source", "remote_total"]
"""Columns of `samples` for `remote_events`, besides those that `unpack` reads."""


def columns_of(file_set: FileSet) -> list[str]:
    """Return the columns of `samples` that `unpack` reads, with REMOTE_COLUMNS where the file set has other processes' usage."""
    settings = file_set.manifest.settings
    return [*COLUMNS, *((LEAD,) if PACED in settings else ()), *(REMOTE_COLUMNS if SHARED in settings else ())]


@dataclass(frozen=True, slots=True)
class RemoteEvents:
    """Events of rows that are other processes' usage, in the order of the rows.

    Attributes:
        at: position of each among all events.
        source: number of the process that used it, as text.
        total: total usage of that process in the group, after the event.
        misplaced: number of further entries that point outside of their rows.
    """

    at: Ints
    source: NDArray[Any]
    total: Ints
    misplaced: int


def remote_events(samples: pa.Table, rows: Rows) -> RemoteEvents:
    """Return the events of other processes in `rows`, which were unpacked from `samples`, a table with REMOTE_COLUMNS."""
    refs, first_seq = (samples.column(name).to_numpy().astype(np.int64) for name in ("group_ref", "first_seq"))
    order = np.lexsort((first_seq, refs))
    order = order[np.isin(refs[order], rows.group_ref)]
    lists = samples.select(REMOTE_COLUMNS).take(pa.array(order))
    counts = pc.list_value_length(lists.column("remote_pos")).fill_null(0).to_numpy()
    position, source, total = (pc.list_flatten(lists.column(name)) for name in REMOTE_COLUMNS)
    places = position.to_numpy().astype(np.int64)
    row = np.repeat(np.arange(len(order)), counts)
    inside = (places >= 0) & (places < rows.count[row])
    at = rows.event_at[row[inside]] + places[inside]
    columns = (source.to_numpy(zero_copy_only=False)[inside], total.to_numpy().astype(np.int64)[inside])
    return RemoteEvents(at, *columns, int(np.count_nonzero(~inside)))


def own_events(file_set: FileSet, samples: pa.Table, rows: Rows) -> Flags:
    """Return whether each event of `rows` is this process's own usage. `rows` were unpacked from `samples`, which has `columns_of`."""
    own = np.ones(rows.events, np.bool_)
    if SHARED in file_set.manifest.settings:
        own[remote_events(samples, rows).at] = False
    return own
