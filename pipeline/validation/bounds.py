"""Each decision used the bound in force: the one that `dim_bound` says for its number."""

import numpy as np

from pipeline.replay.findings import Finding, Findings, Kind
from pipeline.replay.rows import Flags, Rows
from pipeline.stem import Stem


def check_bounds(rows: Rows, judged: Flags, stem: Stem, findings: Findings) -> None:
    """Compare the bound of each row with the last one that was noted for its group before it; a change within a row is a divergence too."""
    table = stem.read("dim_bound", columns=["group_ref", "from_seq", "bound"]).sort_by(
        [("group_ref", "ascending"), ("from_seq", "ascending")]
    )
    refs, from_seq = table.column("group_ref").to_numpy().astype(np.int64), table.column("from_seq").to_numpy().astype(np.int64)
    bounds = table.column("bound").to_numpy()
    stride = int(max(from_seq.max(initial=0), rows.last_seq.max(initial=0))) + 2
    keys = refs * stride + from_seq
    at = np.searchsorted(keys, rows.group_ref * stride + rows.first_seq, side="right") - 1
    at_end = np.searchsorted(keys, rows.group_ref * stride + rows.last_seq, side="right") - 1
    safe = np.maximum(at, 0)
    known = (at >= 0) & (refs[safe] == rows.group_ref) if len(refs) else np.zeros(len(rows.n), np.bool_)
    in_force = np.where(known, bounds[safe], np.nan) if len(refs) else np.full(len(rows.n), np.nan)
    at_last = bounds[np.maximum(at_end, 0)] if len(refs) else in_force
    wrong = judged & ((in_force != rows.bound) | (at_last != rows.bound))
    where = np.flatnonzero(wrong)
    _, firsts, counts = np.unique(rows.group_ref[where], return_index=True, return_counts=True)
    for index, number in zip(firsts, counts, strict=True):
        row = int(where[index])
        expected = repr(float(in_force[row])) if known[row] else "a bound noted in dim_bound"
        ref, seq, ts_ms = int(rows.group_ref[row]), int(rows.first_seq[row]), int(rows.sample_start_ms[row])
        findings.add(Finding(Kind.BOUND, ref, seq, ts_ms, expected, repr(float(rows.bound[row])), "bound of the row"), int(number))
