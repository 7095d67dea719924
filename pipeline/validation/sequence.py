"""Nothing is missing and nothing is there twice: numbers without holes, and time that goes one way."""

import numpy as np
import pyarrow as pa

from pipeline.manifest import Manifest
from pipeline.replay.findings import WHOLE_FILE, Finding, Findings, Kind
from pipeline.replay.rows import Flags, Ints, Rows

NOTE = 3


def check_sequence(samples: pa.Table, events: pa.Table, gaps: pa.Table, manifest: Manifest, findings: Findings) -> None:
    """Every number from the manifest's first to its last is taken once: by a row, a note or a gap that was reported."""
    numbers = np.concatenate([_of_samples(samples), _of_notes(events), _of_gaps(gaps)])
    numbers.sort()
    expected = manifest.last_seq - manifest.first_seq + 1
    twice = numbers[1:][numbers[1:] == numbers[:-1]]
    once = np.unique(numbers)
    outside = once[(once < manifest.first_seq) | (once > manifest.last_seq)]
    missing = expected - (len(once) - len(outside))
    if len(twice):
        _add(findings, manifest, int(twice[0]), "each number once", "there twice", len(twice))
    if len(outside):
        _add(findings, manifest, int(outside[0]), f"{manifest.first_seq} to {manifest.last_seq}", str(outside[0]), len(outside))
    if missing > 0:
        _add(findings, manifest, _first_missing(once, manifest), "a decision with this number", "none", missing)


def check_order(rows: Rows, judged: Flags, findings: Findings) -> None:
    """Decisions with higher numbers are not earlier, whatever their groups."""
    order = np.argsort(rows.seq, kind="stable")
    ts_ms = rows.ts_ms[order]
    back = np.flatnonzero((ts_ms[1:] < ts_ms[:-1]) & judged[rows.row_of[order[1:]]])
    if not len(back):
        return
    event = int(order[back[0] + 1])
    findings.add(
        Finding(
            Kind.ORDER,
            int(rows.group_ref[rows.row_of[event]]),
            int(rows.seq[event]),
            int(rows.ts_ms[event]),
            f"{ts_ms[back[0]]} ms or later",
            f"{rows.ts_ms[event]} ms",
            "time of the decision",
        ),
        len(back),
    )


def _add(findings: Findings, manifest: Manifest, seq: int, expected: str, recorded: str, number: int) -> None:
    findings.add(Finding(Kind.GAP, WHOLE_FILE, seq, manifest.first_ts_ms, expected, recorded, "sequence numbers of the file"), number)


def _first_missing(once: Ints, manifest: Manifest) -> int:
    inside = once[(once >= manifest.first_seq) & (once <= manifest.last_seq)]
    holes = np.flatnonzero(inside != np.arange(manifest.first_seq, manifest.first_seq + len(inside)))
    return manifest.first_seq + (int(holes[0]) if len(holes) else len(inside))


def _of_samples(samples: pa.Table) -> Ints:
    if not len(samples):
        return np.zeros(0, np.int64)
    column = samples.column("seq_delta").combine_chunks()
    counts = np.diff(column.offsets.to_numpy())
    first = samples.column("first_seq").to_numpy().astype(np.int64)
    deltas: Ints = column.flatten().to_numpy(zero_copy_only=False).astype(np.int64)
    return np.repeat(first, counts) + deltas


def _of_notes(events: pa.Table) -> Ints:
    seq: Ints = events.column("seq").to_numpy().astype(np.int64)
    return seq[events.column("kind").to_numpy() == NOTE] if len(seq) else seq


def _of_gaps(gaps: pa.Table) -> Ints:
    ranges = [
        np.arange(start, start + n) for start, n in zip(gaps.column("from_seq").to_pylist(), gaps.column("n").to_pylist(), strict=True)
    ]
    return np.concatenate(ranges) if ranges else np.zeros(0, np.int64)
