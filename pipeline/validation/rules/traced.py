"""Compares `events` with `samples`. At level `trace` each decision has a row of its own in `events`, which has to agree with the samples.

The decisions are recomputed from samples. Rows of `events` have the connection and the measured rate of each decision. Each row is compared
with its event in a sample, and each event has one row.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from metering_format.event_kinds import NOTE, RECORD, REMOTE
from pipeline.file_set import FileSet
from pipeline.replay.decisions import Decisions
from pipeline.replay.findings import WHOLE_FILE, Finding, Findings, Kind
from pipeline.replay.rows import NOT_LISTED, Flags, Ints, Rows

TRACE: Final = "trace"
_COLUMNS: Final = (
    *("group_ref", "seq", "ts_ms", "sample_start_ms", "kind", "value", "window_sum", "window_ms", "observed", "bound"),
    *("throttle_ms", "applied_ms"),
)


@dataclass(frozen=True, slots=True)
class Traced:
    """Rows of `events` that sensors recorded, sorted by group and sequence number.

    Attributes:
        column: the columns by name.
    """

    column: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.column["seq"])


def traced_of(file_set: FileSet) -> Traced | None:
    """Return the rows of a file set at level `trace`, by its manifest or by its rows; None for other levels."""
    has_events = any(entry.table == "events" for entry in file_set.manifest.files)
    if file_set.manifest.level != TRACE and not has_events:
        return None
    table = file_set.read("events", columns=list(_COLUMNS))
    table = table.filter(pc.or_(pc.less(table.column("kind"), NOTE), pc.equal(table.column("kind"), REMOTE)))
    if file_set.manifest.level != TRACE and not len(table):
        return None
    column = {name: table.column(name).to_numpy() for name in _COLUMNS}
    order = np.lexsort((column["seq"], column["group_ref"]))
    return Traced({name: its[order] for name, its in column.items()})


def check_traced(traced: Traced, rows: Rows, decided: Decisions, own: Flags, judged: Flags, findings: Findings) -> None:
    """Compare the rows of `events` with the events of samples, matched by group and position.

    Args:
        traced: the rows of `events`.
        rows, decided: the samples, and the recomputed decisions.
        own: whether each row of `rows` belongs to the file set itself.
        judged: whether each row's sums are known as well.
        findings: where divergences are added.
    """
    events = np.flatnonzero(own[rows.row_of])
    refs = rows.group_ref[rows.row_of[events]]
    groups, counts = np.unique(refs, return_counts=True)
    begins = np.searchsorted(traced.column["group_ref"], groups)
    found = np.searchsorted(traced.column["group_ref"], groups, side="right") - begins
    for ref, expected, there in zip(*(its[counts != found].tolist() for its in (groups, counts, found)), strict=True):
        row = int(np.flatnonzero(own & (rows.group_ref == ref))[0])
        place = (int(ref), int(rows.first_seq[row]), int(rows.sample_start_ms[row]))
        findings.add(Finding(Kind.GAP, *place, str(expected), str(there), "rows of the group in events"), abs(expected - there))
    alike = counts == found
    events = events[np.repeat(alike, counts)]
    starts, counts = begins[alike], counts[alike]
    at = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(len(events))
    _compare({name: column[at] for name, column in traced.column.items()}, rows, decided, events, judged, findings)


def check_count(traced: Traced, recorded: int, file_set: FileSet, findings: Findings) -> None:
    """Check that there is one row for each event of samples, and that no sequence number occurs twice."""
    manifest, seq = file_set.manifest, traced.column["seq"]
    missing, twice = abs(recorded - len(traced)), len(seq) - len(np.unique(seq))
    for number, expected, found in ((missing, f"{recorded} rows", str(len(traced))), (twice, "each number once", "there twice")):
        if number:
            finding = Finding(Kind.GAP, WHOLE_FILE, manifest.first_seq, manifest.first_ts_ms, expected, found, "events of the file")
            findings.add(finding, number)


def _compare(traced: dict[str, NDArray[Any]], rows: Rows, decided: Decisions, events: Ints, judged: Flags, findings: Findings) -> None:
    row = rows.row_of[events]
    is_first = events == rows.event_at[row]
    is_last = events == rows.event_at[row] + rows.count[row] - 1
    throttle_ms = np.where(rows.throttle_ms[events] == NOT_LISTED, 0, rows.throttle_ms[events])
    is_listed = rows.throttle_ms[events] != NOT_LISTED  # the applied time of an unlisted event may come from another quota
    number = np.where(is_first, rows.first_seq[row], np.where(is_last, rows.last_seq[row], traced["seq"]))
    known = judged[row]
    everywhere = np.ones(len(events), np.bool_)
    figures: tuple[tuple[str, Kind, NDArray[Any], Flags], ...] = (
        ("seq", Kind.GAP, np.clip(number, rows.first_seq[row], rows.last_seq[row]), everywhere),
        ("ts_ms", Kind.SEGMENT, rows.ts_ms[events], everywhere),
        ("sample_start_ms", Kind.SEGMENT, rows.sample_start_ms[row], everywhere),
        ("value", Kind.MATH, rows.value[events], everywhere),
        ("bound", Kind.BOUND, rows.bound[row], everywhere),
        ("throttle_ms", Kind.MATH, throttle_ms, everywhere),
        ("applied_ms", Kind.MATH, rows.applied_ms[events], is_listed),
        ("window_sum", Kind.MATH, decided.live_sum[events], known),
        ("window_ms", Kind.MATH, decided.window_ms[events], known),
        ("observed", Kind.MATH, decided.observed[events], known),
    )
    for name, kind, expected, where in figures:
        _note(rows, row, traced, (traced[name] != expected) & where, kind, expected, name, findings)
    checked = (traced["kind"] == RECORD) != rows.checked[events]
    _note(rows, row, traced, checked, Kind.MATH, rows.checked[events], "kind", findings)


def _note(
    rows: Rows,
    row: Ints,
    traced: dict[str, NDArray[Any]],
    wrong: Flags,
    kind: Kind,
    expected: NDArray[Any],
    name: str,
    findings: Findings,
) -> None:
    where = np.flatnonzero(wrong)
    _, firsts, counts = np.unique(rows.group_ref[row[where]], return_index=True, return_counts=True)
    for index, number in zip(firsts, counts, strict=True):
        event = int(where[index])
        due = "checked" if name == "kind" and expected[event] else "not checked" if name == "kind" else repr(expected[event].item())
        place = (int(rows.group_ref[row[event]]), int(traced["seq"][event]), int(traced["ts_ms"][event]))
        findings.add(Finding(kind, *place, due, repr(traced[name][event].item()), f"{name} of the row in events"), int(number))
