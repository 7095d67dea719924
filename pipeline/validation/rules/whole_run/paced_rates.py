"""The rates of paced groups over a run, all groups of a file set at once. `GroupRate` adds the windows of one group in the same way."""

from collections.abc import Collection, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline.replay.rows import Ints
from pipeline.validation.rules.long_run import PACED_CEILING, PacedWindows

NOT_BEFORE: Final = -2
"""In place of the position of the file set before the first one of a group."""
_SUMS: Final = np.dtype(
    [
        *((name, "<i8") for name in ("number", "before", "paced_to_ms")),
        *((name, "<f8") for name in ("bound_seconds", "allowed", "units", "seconds", "credit")),
    ]
)
Sums = tuple[int, int, int, float, float, float, float, float]
"""What was added of one group; the fields are those of `rates.GroupRate`, in the order of `_SUMS`."""


class PacedRates:
    """The rates of groups that were paced throughout so far. Their windows are added in order.

    Args:
        evidence_max: number of windows of a group that are kept.
    """

    def __init__(self, evidence_max: int) -> None:
        self._evidence_max = evidence_max
        self._refs = np.zeros(0, np.int64)
        self._sums = np.zeros(0, _SUMS)
        self._first: list[PacedWindows] = []

    def add(self, position: int, windows: PacedWindows) -> None:
        """Add the windows of the file set at a position of the run."""
        at = self._places(windows["group_ref"])
        sums = self._sums[at]
        goes_on = sums["paced_to_ms"] > 0  # the time between file sets counts, too
        span_s = (windows["to_ms"] - np.where(goes_on, sums["paced_to_ms"], windows["from_ms"])) / 1_000
        once, due = windows["credit"], windows["bound"] * span_s
        more = np.where(once > sums["credit"], once - sums["credit"], 0.0)
        anew = np.where(sums["before"] == position - 1, 0.0, once)
        kept = windows[sums["number"] < self._evidence_max]
        if len(kept):
            self._first.append(kept)
        sums["bound_seconds"] += due
        sums["allowed"] += due * PACED_CEILING + np.where(goes_on, more, anew)
        sums["units"] += windows["units"]
        sums["seconds"] += span_s
        sums["credit"] = np.where(goes_on & ~(once > sums["credit"]), sums["credit"], once)
        sums["paced_to_ms"], sums["before"] = windows["to_ms"], position
        sums["number"] += 1
        self._sums[at] = sums

    def sums(self) -> dict[int, Sums]:
        """Return what was added of each group, by group number."""
        sums: Any = self._sums.tolist()
        return dict(zip(self._refs.tolist(), sums, strict=True))

    def first_windows(self, refs: Collection[int]) -> dict[int, PacedWindows]:
        """Return the first windows of those of some groups that are known, by group number."""
        if not refs or not self._first:
            return {}
        its = np.concatenate(self._first)
        its = its[np.isin(its["group_ref"], list(refs))]
        its = its[np.argsort(its["group_ref"], kind="stable")]
        known, begins = np.unique(its["group_ref"], return_index=True)
        return dict(zip(known.tolist(), np.split(its, begins[1:]), strict=False))

    def take(self, refs: Collection[int]) -> Iterator[tuple[int, Sums, PacedWindows]]:
        """Remove those of some groups that are known; yield each with what was added of it, and its first windows."""
        leave = np.isin(self._refs, list(refs)) if len(self._refs) else np.zeros(0, np.bool_)
        if not leave.any():
            return
        sums, first = self.sums(), self.first_windows(refs)
        left = self._refs[leave].tolist()
        self._refs, self._sums = self._refs[~leave], self._sums[~leave]
        self._first = [windows[~np.isin(windows["group_ref"], left)] for windows in self._first]
        for ref in left:
            yield ref, sums[ref], first[ref]

    def _places(self, refs: NDArray[Any]) -> Ints:
        """Return the place of each group; groups that are not known get one."""
        if len(self._refs):
            at = np.minimum(np.searchsorted(self._refs, refs), len(self._refs) - 1)
            if np.array_equal(self._refs[at], refs):
                return at
        every = np.union1d(self._refs, refs)
        sums = np.zeros(len(every), _SUMS)
        sums["before"] = NOT_BEFORE
        sums[np.searchsorted(every, self._refs)] = self._sums
        self._refs, self._sums = every, sums
        return np.searchsorted(every, refs)
