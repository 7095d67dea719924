"""Checks that each decision used the bound in force, which `dim_bound` gives by sequence number."""

import numpy as np

from pipeline.file_set import FileSet
from pipeline.replay.findings import Finding, Findings, Kind
from pipeline.replay.rows import Flags, Floats, Ints, Rows


def check_bounds(rows: Rows, judged: Flags, noted: "RecordedBounds", findings: Findings) -> None:
    """Compare the bound of each row with the last earlier bound of its group. A change within a row is a divergence too."""
    in_force = noted.at(rows.group_ref, rows.first_seq)
    wrong = in_force != rows.bound
    several = np.flatnonzero(noted.are_several(rows.group_ref))
    if len(several):
        wrong[several] |= noted.at(rows.group_ref[several], rows.last_seq[several]) != rows.bound[several]
    wrong &= judged
    where = np.flatnonzero(wrong)
    _, firsts, counts = np.unique(rows.group_ref[where], return_index=True, return_counts=True)
    for index, number in zip(firsts, counts, strict=True):
        row = int(where[index])
        known = float(in_force[row])
        expected = "a bound noted in dim_bound" if np.isnan(known) else repr(known)
        ref, seq, ts_ms = int(rows.group_ref[row]), int(rows.first_seq[row]), int(rows.sample_start_ms[row])
        findings.add(Finding(Kind.BOUND, ref, seq, ts_ms, expected, repr(float(rows.bound[row])), "bound of the row"), int(number))


class RecordedBounds:
    """The bounds in the table `dim_bound` of a file set."""

    def __init__(self, file_set: FileSet) -> None:
        table = file_set.read("dim_bound", columns=["group_ref", "from_seq", "bound"])
        refs, from_seq = (table.column(name).to_numpy().astype(np.int64) for name in ("group_ref", "from_seq"))
        bounds = table.column("bound").to_numpy()
        self._changed = np.zeros(int(refs.max(initial=-1)) + 1, np.bool_)  # by group: whether it has more than one bound
        self._place = np.full(len(self._changed), -1, np.int64)
        self._have_changed = bool((refs[1:] <= refs[:-1]).any())
        if self._have_changed:
            order = np.lexsort((from_seq, refs))
            refs, from_seq, bounds = refs[order], from_seq[order], bounds[order]
            firsts = np.flatnonzero(np.diff(refs, prepend=-1))
            self._changed[refs[firsts]] = np.diff(firsts, append=len(refs)) > 1
            self._place[refs[firsts]] = firsts
        else:  # each group has one bound, in order
            self._place[refs] = np.arange(len(refs))
        self._refs, self._from_seq, self._bounds = refs, from_seq, bounds

    def are_several(self, group_ref: Ints) -> Flags:
        """Return, for each group, whether it has more than one bound."""
        if not self._have_changed:
            return np.zeros(len(group_ref), np.bool_)
        named = np.minimum(group_ref, len(self._changed) - 1)
        several: Flags = (named == group_ref) & self._changed[named]
        return several

    def at(self, group_ref: Ints, seq: Ints) -> Floats:
        """Return the bound in force for each decision; NaN when there is none."""
        if not len(self._refs):
            return np.full(len(seq), np.nan)
        place = self._first_of(group_ref)
        known = (place >= 0) & (self._from_seq.take(place) <= seq)
        several = np.flatnonzero(known & self.are_several(group_ref)) if self._have_changed else ()
        if len(several):  # few groups have several bounds; only for these the last bound is searched
            stride = int(max(self._from_seq.max(), seq.max(initial=0))) + 2
            keys = self._refs * stride + self._from_seq
            place[several] = np.searchsorted(keys, group_ref[several] * stride + seq[several], side="right") - 1
        in_force: Floats = self._bounds.take(place)
        return in_force if known.all() else np.where(known, in_force, np.nan)

    def _first_of(self, group_ref: Ints) -> Ints:
        """Return the position of the first bound of each group, -1 when it has none."""
        if int(group_ref.max(initial=0)) < len(self._place):
            place: Ints = self._place.take(group_ref)
            return place
        named = np.minimum(group_ref, len(self._place) - 1)
        return np.where(named == group_ref, self._place[named], -1)
