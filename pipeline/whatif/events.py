"""The decisions of some groups of a run as flat arrays over all its file sets, in order."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metering_format.event_kinds import EXCUSED_MS, REMOTE, SKIPPED
from pipeline.errors import BadInputError
from pipeline.file_set import FileSet
from pipeline.replay.remote import columns_of, own_events
from pipeline.replay.rows import NOT_LISTED, Flags, Floats, Ints, Rows
from pipeline.replay.unpacking import unpack


@dataclass(frozen=True, slots=True)
class Events:
    """One entry per decision, in order of time; decisions of the same ms are in the order of their samples.

    Attributes:
        waited_ms: recorded wait of the client.
        is_own: False when another process recorded the event.
        connection: number of the connection; None when a file set has another level than `trace`.
    """

    group_ref: Ints
    ts_ms: Ints
    value: Ints
    checked: Flags
    bound: Floats
    throttle_ms: Ints
    waited_ms: Ints
    is_own: Flags
    connection: Ints | None


def unpacked(table: pa.Table, refs: Ints, file_set: FileSet) -> Rows:
    """Flatten rows of samples.

    Raises:
        BadInputError: the level was `sample`, or a row has no decisions.
    """
    try:
        rows = unpack(table, refs)
    except ValueError as error:
        raise BadInputError(f"{file_set.manifest.file_set}: {error}; meter at level packed (the default) or trace") from error
    if not rows.count.all():
        empty = int(rows.first_seq[np.flatnonzero(rows.count == 0)[0]])
        raise BadInputError(
            f"{file_set.manifest.file_set}: the row of samples from decision {empty} on has none; the file is damaged, restore it"
        )
    return rows


def read_events(file_sets: Sequence[FileSet], refs: Sequence[int]) -> Events:
    """Return the decisions of some groups of one run. Connections are known when every file set has the level `trace`."""
    wanted = np.array(sorted(refs), np.int64)
    traced = [_traced(file_set, wanted) for file_set in file_sets if file_set.manifest.level == "trace"]
    if file_sets and len(traced) == len(file_sets):
        return _joined(traced)
    parts = []
    for file_set in file_sets:
        table = file_set.read("samples", columns=columns_of(file_set))
        if len(table):
            rows = unpacked(table, wanted, file_set)
            parts.append(_of_rows(rows, own_events(file_set, table, rows)))
    return _joined(parts)


def _of_rows(rows: Rows, is_own: Flags) -> Events:
    order = np.argsort(rows.ts_ms, kind="stable")
    return Events(
        rows.group_ref[rows.row_of][order],
        rows.ts_ms[order],
        rows.value[order],
        rows.checked[order],
        rows.bound[rows.row_of][order],
        recorded_ms(rows)[order],
        waited_ms(rows)[order],
        is_own[order],
        None,
    )


def recorded_ms(rows: Rows) -> Ints:
    """Return the recorded throttle time of each event, 0 when there is none."""
    throttle_ms: Ints = np.where(rows.throttle_ms == NOT_LISTED, 0, rows.throttle_ms)
    return throttle_ms


def waited_ms(rows: Rows) -> Ints:
    """Return the time that the client of each event had to wait; 0 in `observe`."""
    waited: Ints = np.where((rows.applied_ms == NOT_LISTED) | (rows.applied_ms == EXCUSED_MS), 0, np.maximum(rows.applied_ms, 0))
    return waited


def _traced(file_set: FileSet, wanted: Ints) -> Events:
    names = ["group_ref", "seq", "ts_ms", "kind", "value", "bound", "throttle_ms", "applied_ms", "conn_id"]
    table = file_set.read("events", columns=names)
    is_wanted = pc.is_in(table.column("group_ref"), value_set=pa.array(wanted, pa.int32()))
    table = table.filter(pc.and_(is_wanted, pc.not_equal(table.column("kind"), SKIPPED))).sort_by("seq")
    column = {name: table.column(name).to_numpy() for name in names}
    whole = {name: column[name].astype(np.int64) for name in ("group_ref", "ts_ms", "value", "throttle_ms", "applied_ms", "conn_id")}
    kind = column["kind"]
    return Events(
        whole["group_ref"],
        whole["ts_ms"],
        whole["value"],
        kind == 0,
        column["bound"].astype(np.float64),
        whole["throttle_ms"],
        np.maximum(whole["applied_ms"], 0),
        kind != REMOTE,
        whole["conn_id"],
    )


def _joined(parts: Sequence[Events]) -> Events:
    none = np.zeros(0, np.int64)
    if not parts:
        return Events(none, none, none, none.astype(np.bool_), none.astype(np.float64), none, none, none.astype(np.bool_), None)
    connections = [part.connection for part in parts if part.connection is not None]
    return Events(
        np.concatenate([part.group_ref for part in parts]),
        np.concatenate([part.ts_ms for part in parts]),
        np.concatenate([part.value for part in parts]),
        np.concatenate([part.checked for part in parts]),
        np.concatenate([part.bound for part in parts]),
        np.concatenate([part.throttle_ms for part in parts]),
        np.concatenate([part.waited_ms for part in parts]),
        np.concatenate([part.is_own for part in parts]),
        np.concatenate(connections) if len(connections) == len(parts) else None,
    )
