"""The decisions of some groups of a run as flat arrays over all its file sets, in order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metering_format.event_kinds import EXCUSED_MS, REMOTE, SKIPPED
from metering_format.places import PACED
from pipeline.errors import BadInputError
from pipeline.file_set import FileSet
from pipeline.replay.remote import columns_of, own_events
from pipeline.replay.rows import LEAD, NOT_LISTED, Flags, Floats, Ints, Rows
from pipeline.replay.unpacking import unpack


@dataclass(frozen=True, slots=True)
class Events:
    """One entry per decision, in order of time; decisions of the same ms are in the order of their samples.

    Attributes:
        ts_ms: time of the decision; of a paced group, when the request came, which is its recorded time less its wait.
        waited_ms: recorded wait of the client: from `ts_ms` on.
        paced: whether the group had a schedule.
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
    paced: Flags
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
    waited, paced = waited_ms(rows), rows.paced[rows.row_of]
    return Events(
        rows.group_ref[rows.row_of],
        rows.ts_ms,
        rows.value,
        rows.checked,
        rows.bound[rows.row_of],
        recorded_ms(rows),
        waited,
        paced,
        is_own,
        None,
    )


def came_ms(rows: Rows) -> Ints:
    """Return when the request of each event came: before its wait in a paced group, else at the event."""
    came: Ints = rows.ts_ms - np.where(rows.paced[rows.row_of], waited_ms(rows), 0)
    return came


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
    paced = _paced(file_set)
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
        paced(whole["group_ref"], column["seq"].astype(np.int64)),
        kind != REMOTE,
        whole["conn_id"],
    )


def _paced(file_set: FileSet) -> Callable[[Ints, Ints], Flags]:
    """Return a function that returns, by group and number, whether the group of a decision had a schedule then."""
    if PACED not in file_set.manifest.settings:
        return lambda refs, _seqs: np.zeros(len(refs), np.bool_)
    in_order = [("group_ref", "ascending"), ("first_seq", "ascending")]
    table = file_set.read("samples", columns=["group_ref", "first_seq", LEAD]).sort_by(in_order)
    begins, first_seq = (table.column(name).to_numpy().astype(np.int64) for name in ("group_ref", "first_seq"))
    has_lead = pc.is_valid(table.column(LEAD)).to_numpy(zero_copy_only=False)
    stride = file_set.manifest.last_seq + 2
    keys = begins * stride + first_seq
    return lambda refs, seqs: has_lead[np.maximum(np.searchsorted(keys, refs * stride + seqs, side="right") - 1, 0)]


def _joined(parts: Sequence[Events]) -> Events:
    """Return all of these in order of time. Requests of paced groups came before others that passed earlier."""
    none, flags = np.zeros(0, np.int64), np.zeros(0, np.bool_)
    if not parts:
        return Events(none, none, none, flags, none.astype(np.float64), none, none, flags, flags, None)
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in Events.__slots__ if name != "connection"
    }
    connections = [part.connection for part in parts if part.connection is not None]
    columns["connection"] = np.concatenate(connections) if len(connections) == len(parts) else None
    columns["ts_ms"] = columns["ts_ms"] - np.where(columns["paced"], columns["waited_ms"], 0)
    order = np.argsort(columns["ts_ms"], kind="stable")
    chosen: dict[str, Any] = {name: None if column is None else column[order] for name, column in columns.items()}
    return Events(**chosen)
