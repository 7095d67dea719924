"""Each decision used the bound in force: the one that `dim_bound` says for its number."""

import numpy as np

from pipeline.replay.findings import Finding, Findings, Kind
from pipeline.replay.rows import Flags, Floats, Ints, Rows
from pipeline.stem import Stem


def check_bounds(rows: Rows, judged: Flags, stem: Stem, findings: Findings) -> None:
    """Compare the bound of each row with the last one that was noted for its group before it; a change within a row is a divergence too."""
    noted = NotedBounds(stem)
    in_force = noted.at(rows.group_ref, rows.first_seq)
    wrong = judged & ((in_force != rows.bound) | (noted.at(rows.group_ref, rows.last_seq) != rows.bound))
    where = np.flatnonzero(wrong)
    _, firsts, counts = np.unique(rows.group_ref[where], return_index=True, return_counts=True)
    for index, number in zip(firsts, counts, strict=True):
        row = int(where[index])
        known = float(in_force[row])
        expected = "a bound noted in dim_bound" if np.isnan(known) else repr(known)
        ref, seq, ts_ms = int(rows.group_ref[row]), int(rows.first_seq[row]), int(rows.sample_start_ms[row])
        findings.add(Finding(Kind.BOUND, ref, seq, ts_ms, expected, repr(float(rows.bound[row])), "bound of the row"), int(number))


class NotedBounds:
    """What `dim_bound` of a stem says."""

    def __init__(self, stem: Stem) -> None:
        order = [("group_ref", "ascending"), ("from_seq", "ascending")]
        table = stem.read("dim_bound", columns=["group_ref", "from_seq", "bound"]).sort_by(order)
        self._refs = table.column("group_ref").to_numpy().astype(np.int64)
        self._from_seq = table.column("from_seq").to_numpy().astype(np.int64)
        self._bounds = table.column("bound").to_numpy()
        groups, firsts, counts = np.unique(self._refs, return_index=True, return_counts=True)
        self._changed = np.zeros(int(groups.max(initial=-1)) + 1, np.bool_)  # by group: whether more than one bound was noted
        self._changed[groups] = counts > 1
        self._place = np.full(len(self._changed), -1, np.int64)
        self._place[groups] = firsts

    def at(self, group_ref: Ints, seq: Ints) -> Floats:
        """Return the bound in force for each decision, NaN where none was noted."""
        if not len(self._refs):
            return np.full(len(seq), np.nan)
        named = np.minimum(group_ref, len(self._place) - 1)
        place = np.where(named == group_ref, self._place[named], -1)
        known = (place >= 0) & (self._from_seq[place] <= seq)
        several = np.flatnonzero(known & self._changed[named])
        if len(several):  # hardly any: their last bound is looked for, the others have one
            stride = int(max(self._from_seq.max(), seq.max(initial=0))) + 2
            keys = self._refs * stride + self._from_seq
            place[several] = np.searchsorted(keys, group_ref[several] * stride + seq[several], side="right") - 1
        in_force: Floats = np.where(known, self._bounds[place], np.nan)
        return in_force
