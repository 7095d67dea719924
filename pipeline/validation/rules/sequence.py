"""Checks that no decision is missing or duplicated, by sequence numbers, and that time does not go back."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from metering_format.event_kinds import NOTE, REMOTE
from metering_format.manifest import Manifest
from metering_format.places import SHARED
from pipeline.replay.findings import WHOLE_FILE, Finding, Findings, Kind
from pipeline.replay.rows import Flags, Ints, Rows

SPARSE = 16
NO_TIME = -1


def check_sequence(
    samples: pa.Table, events: pa.Table, gaps: pa.Table, manifest: Manifest, findings: Findings, *, differ: bool = False
) -> None:
    """Check that samples, events and gaps have as many decisions as the manifest's first and last number imply, without duplicates.

    Args:
        samples, events, gaps: tables of the file set.
        manifest: the manifest of the file set.
        findings: where divergences are added.
        differ: the first and last numbers of all samples are known to differ from each other.
    """
    seq = events.column("seq").to_numpy().astype(np.int64)
    kind = events.column("kind").to_numpy()
    notes = seq[(kind >= NOTE) & (kind != REMOTE)] if len(seq) else seq
    lost = _ints(gaps, "n")
    firsts = np.concatenate([_ints(samples, "first_seq"), notes, _ints(gaps, "from_seq")])
    lasts = np.concatenate([_ints(samples, "last_seq"), notes, _ints(gaps, "from_seq") + lost - 1])
    expected, found = manifest.last_seq - manifest.first_seq + 1, int(_ints(samples, "n").sum()) + len(notes) + int(lost.sum())
    seen_apart = differ and not len(notes) and not len(lost)
    twice = firsts[:0] if seen_apart else _repeated(np.concatenate([firsts, lasts[lasts != firsts]]))
    if len(twice):
        _add(findings, manifest, int(twice[0]), "a number that begins, or ends, one row", "there twice", len(twice))
    if len(firsts) and (firsts.min(), lasts.max()) != (manifest.first_seq, manifest.last_seq):
        outside = np.count_nonzero((firsts < manifest.first_seq) | (lasts > manifest.last_seq))
        ranges = (f"{manifest.first_seq} to {manifest.last_seq}", f"{firsts.min()} to {lasts.max()}")
        _add(findings, manifest, int(min(firsts.min(), manifest.first_seq)), *ranges, max(int(outside), 1))
    if found != expected:
        _add(findings, manifest, manifest.first_seq, f"{expected} decisions, gaps included", str(found), abs(expected - found))
    if int(lost.sum()) != manifest.dropped_decisions:
        _add(findings, manifest, manifest.first_seq, f"{manifest.dropped_decisions} in gaps, as in the manifest", str(lost.sum()), 1)


def check_times(samples: pa.Table, events: pa.Table, manifest: Manifest, findings: Findings) -> None:
    """Compare the manifest's times of the first and the last decision with the rows. Warm-up, retention and roll-ups depend on them."""
    times = [_ints(events, "ts_ms")]
    if len(samples):
        times += [np.array([_first_ms(samples, manifest), int(_ints(samples, "last_event_ms").max())])]
    at_ms = np.concatenate(times)
    declared = (manifest.first_ts_ms, manifest.last_ts_ms)
    if len(at_ms) and (found := (int(at_ms.min()), int(at_ms.max()))) != declared:
        what = "times of the first and the last decision, ms, by the manifest"
        findings.add(Finding(Kind.GAP, WHOLE_FILE, manifest.first_seq, manifest.first_ts_ms, str(declared), str(found), what))


def _first_ms(samples: pa.Table, manifest: Manifest) -> int:
    """Return the time of the first decision in ms. A record of another worker's usage may have an earlier time than records before it."""
    if SHARED not in manifest.settings:
        first = int(np.argmin(_ints(samples, "first_seq")))
        return int(samples.column("sample_start_ms")[first].as_py() + (samples.column("dt_ms")[first].as_py() or [0])[0])
    first_dt_ms = [dt_ms[0] if dt_ms else 0 for dt_ms in samples.column("dt_ms").to_pylist()]
    return int((_ints(samples, "sample_start_ms") + np.array(first_dt_ms, np.int64)).min())


class NumberOrder:
    """Checks that times ascend with sequence numbers over all groups, when all rows have been added.

    Args:
        shared: the rows include other processes' usage, at the time of use. Only checked records are then compared.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self._parts: list[_Times] = []
        self._shared = shared

    def add(self, rows: Rows, judged: Flags) -> None:
        """Add some rows, each with at least one event."""
        if self._shared:
            judged = judged & rows.checked[rows.event_at] & rows.checked[rows.event_at + rows.count - 1]
        columns = (rows.group_ref, judged, rows.first_seq, rows.first_event_ms, rows.last_seq, rows.last_event_ms)
        self._parts.append(_Times(*columns))

    def check(self, findings: Findings) -> int:
        """Add a finding where a higher number has an earlier time.

        Returns:
            The number of rows when all their first and last numbers are known to differ, else 0.
        """
        if not self._parts:
            return 0
        if _ascend(self._parts):
            return sum(len(part.first_seq) for part in self._parts)
        rows = _Times(*(np.concatenate(column) for column in zip(*self._parts, strict=True)))
        if self._shared:
            its = rows.judged
            rows = _Times(rows.group_ref[its], rows.judged[its], *(column[its] for column in rows[2:]))
        for number, ts_ms in ((rows.first_seq, rows.first_ms), (rows.last_seq, rows.last_ms)):
            order = np.argsort(number, kind="stable")
            times = ts_ms[order]
            back = np.flatnonzero((times[1:] < times[:-1]) & rows.judged[order[1:]])
            if len(back):
                row = int(order[back[0] + 1])
                figures = (f"{times[back[0]]} ms or later", f"{ts_ms[row]} ms", "time of the decision")
                findings.add(Finding(Kind.ORDER, int(rows.group_ref[row]), int(number[row]), int(ts_ms[row]), *figures), len(back))
        return 0


class _Times(NamedTuple):
    """Sequence numbers and times of rows, one entry per row."""

    group_ref: Ints
    judged: Flags
    first_seq: Ints
    first_ms: Ints
    last_seq: Ints
    last_ms: Ints


def _ascend(parts: Sequence[_Times]) -> bool:
    """Return True when times are known to ascend with the first and last numbers of all rows, and no number occurs twice.

    Sequence numbers are dense, so they index an array and nothing is sorted. A row of one decision has one number.
    """
    first, end = _span(number for part in parts for number in (part.first_seq, part.last_seq))
    first_ms, end_ms = _span(times for part in parts for times in (part.first_ms, part.last_ms))
    if end - first > SPARSE * sum(len(part.first_seq) for part in parts) or end_ms - first_ms > np.iinfo(np.int32).max:
        return False
    at, placed = np.full(end - first, NO_TIME, np.int32), 0
    for part in parts:
        longer, lasting = part.last_seq != part.first_seq, part.last_ms != part.first_ms
        if (lasting & ~longer).any():
            return False
        ends = np.flatnonzero(longer)
        at[part.first_seq - first] = part.first_ms - first_ms
        at[part.last_seq[ends] - first] = part.last_ms[ends] - first_ms
        placed += len(longer) + len(ends)
    times = at[np.flatnonzero(at != NO_TIME)]
    return len(times) == placed and bool((times[1:] >= times[:-1]).all())


def _span(parts: Iterable[Ints]) -> tuple[int, int]:
    lowest, highest = zip(*((int(part.min()), int(part.max())) for part in parts), strict=True)
    return min(lowest), max(highest) + 1


def _repeated(numbers: Ints) -> Ints:
    """Return the numbers that occur more than once, in order. Duplicates are rare, so numbers are sorted only when there are some."""
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
    numbers: Ints = table.column(name).to_numpy().astype(np.int64, copy=False)
    return numbers
