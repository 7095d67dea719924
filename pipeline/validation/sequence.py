"""Nothing is missing and nothing is there twice: numbers that add up, and time that goes one way."""

import numpy as np
import pyarrow as pa

from pipeline.manifest import Manifest
from pipeline.replay.findings import WHOLE_FILE, Finding, Findings, Kind
from pipeline.replay.rows import Flags, Ints, Rows

NOTE = 3  # and above: what no sensor recorded
SPARSE = 16


def check_sequence(samples: pa.Table, events: pa.Table, gaps: pa.Table, manifest: Manifest, findings: Findings) -> None:
    """Rows, notes, steps and reported gaps hold as many decisions as the manifest's first and last number say, and no row begins twice."""
    seq = events.column("seq").to_numpy().astype(np.int64)
    notes = seq[events.column("kind").to_numpy() >= NOTE] if len(seq) else seq
    firsts = np.sort(np.concatenate([_ints(samples, "first_seq"), notes, _ints(gaps, "from_seq")]))
    lasts = np.concatenate([_ints(samples, "last_seq"), notes])
    expected = manifest.last_seq - manifest.first_seq + 1
    found = int(_ints(samples, "n").sum()) + len(notes) + int(_ints(gaps, "n").sum())
    twice = firsts[1:][firsts[1:] == firsts[:-1]]
    outside = firsts[(firsts < manifest.first_seq) | (firsts > manifest.last_seq)]
    beyond = lasts[lasts > manifest.last_seq]
    if len(twice):
        _add(findings, manifest, int(twice[0]), "a number that begins one row", "there twice", len(twice))
    if len(outside) or len(beyond):
        strange = int(outside[0]) if len(outside) else int(beyond[0])
        _add(findings, manifest, strange, f"{manifest.first_seq} to {manifest.last_seq}", str(strange), len(outside) + len(beyond))
    if found != expected:
        _add(findings, manifest, manifest.first_seq, f"{expected} decisions, gaps included", str(found), abs(expected - found))


def check_order(rows: Rows, judged: Flags, findings: Findings) -> None:
    """Rows that begin, or end, with higher numbers are not earlier, whatever their groups."""
    if not rows.events:
        return
    for number, ts_ms in ((rows.first_seq, rows.ts_ms[rows.event_at]), (rows.last_seq, rows.last_event_ms)):
        order = _ascending(number)
        times = ts_ms[order]
        back = np.flatnonzero((times[1:] < times[:-1]) & judged[order[1:]])
        if len(back):
            row = int(order[back[0] + 1])
            said = (f"{times[back[0]]} ms or later", f"{ts_ms[row]} ms", "time of the decision")
            findings.add(Finding(Kind.ORDER, int(rows.group_ref[row]), int(number[row]), int(ts_ms[row]), *said), len(back))


def _ascending(number: Ints) -> Ints:
    """A stable order. The numbers all differ and lie close together, so that each has a place of its own; if not, they are sorted."""
    first = int(number.min())
    span = int(number.max()) - first + 1
    if span > SPARSE * len(number):
        return np.argsort(number, kind="stable")
    places = np.full(span, -1, np.int64)
    places[number - first] = np.arange(len(number))
    order: Ints = places[places >= 0]
    return order if len(order) == len(number) else np.argsort(number, kind="stable")


def _add(findings: Findings, manifest: Manifest, seq: int, expected: str, recorded: str, number: int) -> None:
    findings.add(Finding(Kind.GAP, WHOLE_FILE, seq, manifest.first_ts_ms, expected, recorded, "sequence numbers of the file"), number)


def _ints(table: pa.Table, name: str) -> Ints:
    numbers: Ints = table.column(name).to_numpy().astype(np.int64)
    return numbers
