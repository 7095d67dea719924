"""Nothing is missing and nothing is there twice: numbers that add up, and time that goes one way."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.manifest import Manifest
from pipeline.replay.findings import WHOLE_FILE, Finding, Findings, Kind
from pipeline.replay.rows import Flags, Ints, Rows

NOTE = 3  # and above: what no sensor recorded
SPARSE = 16
NO_TIME = -1


def check_sequence(samples: pa.Table, events: pa.Table, gaps: pa.Table, manifest: Manifest, findings: Findings) -> None:
    """Rows, notes, steps and reported gaps hold as many decisions as the manifest's first and last number say, and no row begins twice."""
    seq = events.column("seq").to_numpy().astype(np.int64)
    notes = seq[events.column("kind").to_numpy() >= NOTE] if len(seq) else seq
    firsts = np.concatenate([_ints(samples, "first_seq"), notes, _ints(gaps, "from_seq")])
    lasts = np.concatenate([_ints(samples, "last_seq"), notes])
    expected = manifest.last_seq - manifest.first_seq + 1
    found = int(_ints(samples, "n").sum()) + len(notes) + int(_ints(gaps, "n").sum())
    twice = _repeated(firsts)
    outside = firsts[(firsts < manifest.first_seq) | (firsts > manifest.last_seq)]
    beyond = lasts[lasts > manifest.last_seq]
    if len(twice):
        _add(findings, manifest, int(twice[0]), "a number that begins one row", "there twice", len(twice))
    if len(outside) or len(beyond):
        strange = int(outside.min()) if len(outside) else int(beyond[0])
        _add(findings, manifest, strange, f"{manifest.first_seq} to {manifest.last_seq}", str(strange), len(outside) + len(beyond))
    if found != expected:
        _add(findings, manifest, manifest.first_seq, f"{expected} decisions, gaps included", str(found), abs(expected - found))


class NumberOrder:
    """Rows that begin, or end, with higher numbers are not earlier, whatever their groups: asked when all rows are there."""

    def __init__(self) -> None:
        self._parts: list[_Times] = []

    def add(self, rows: Rows, judged: Flags) -> None:
        """Take in some rows, each with an event."""
        columns = (rows.group_ref, judged, rows.first_seq, rows.ts_ms[rows.event_at], rows.last_seq, rows.last_event_ms)
        self._parts.append(_Times(*columns))

    def check(self, findings: Findings) -> None:
        """Say where numbers go up and times go down."""
        if not self._parts:
            return
        rows = _Times(*(np.concatenate(column) for column in zip(*self._parts, strict=True)))
        for number, ts_ms in ((rows.first_seq, rows.first_ms), (rows.last_seq, rows.last_ms)):
            if _ascend(number, ts_ms):
                continue
            order = np.argsort(number, kind="stable")
            times = ts_ms[order]
            back = np.flatnonzero((times[1:] < times[:-1]) & rows.judged[order[1:]])
            if len(back):
                row = int(order[back[0] + 1])
                said = (f"{times[back[0]]} ms or later", f"{ts_ms[row]} ms", "time of the decision")
                findings.add(Finding(Kind.ORDER, int(rows.group_ref[row]), int(number[row]), int(ts_ms[row]), *said), len(back))


class _Times(NamedTuple):
    """Numbers and times of rows, an entry each."""

    group_ref: Ints
    judged: Flags
    first_seq: Ints
    first_ms: Ints
    last_seq: Ints
    last_ms: Ints


def _ascend(number: Ints, ts_ms: Ints) -> bool:
    """Whether times surely ascend with their numbers. These lie close together, so that each has a place of its own: nothing is sorted."""
    first, first_ms = int(number.min()), int(ts_ms.min())
    span = int(number.max()) - first + 1
    if span > SPARSE * len(number) or int(ts_ms.max()) - first_ms > np.iinfo(np.int32).max:
        return False
    at = np.full(span, NO_TIME, np.int32)
    at[number - first] = ts_ms - first_ms
    is_there = at != NO_TIME
    highest_so_far = np.maximum.accumulate(at)
    return np.count_nonzero(is_there) == len(number) and not (is_there & (at < highest_so_far)).any()


def _repeated(numbers: Ints) -> Ints:
    """Return those that are there more than once, in order; hardly ever any, so that nothing is sorted to find none."""
    if not len(numbers):
        return numbers
    first = int(numbers.min())
    span = int(numbers.max()) - first + 1
    if span <= SPARSE * len(numbers):
        is_there = np.zeros(span, np.bool_)
        is_there[numbers - first] = True
        if np.count_nonzero(is_there) == len(numbers):
            return numbers[:0]
    ordered = np.sort(numbers)
    repeated: Ints = ordered[1:][ordered[1:] == ordered[:-1]]
    return repeated


def _add(findings: Findings, manifest: Manifest, seq: int, expected: str, recorded: str, number: int) -> None:
    findings.add(Finding(Kind.GAP, WHOLE_FILE, seq, manifest.first_ts_ms, expected, recorded, "sequence numbers of the file"), number)


def _ints(table: pa.Table, name: str) -> Ints:
    numbers: Ints = table.column(name).to_numpy().astype(np.int64)
    return numbers
