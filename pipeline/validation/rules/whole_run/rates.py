"""The long-run rate of each group over all file sets of a run, compared with its ceiling (`long_run.py` describes both)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from pipeline.replay.findings import Finding, Kind
from pipeline.text import counted
from pipeline.validation.rules.long_run import PACED_CEILING, SPAN_MS_MIN, PacedWindows, ThrottleWindow
from pipeline.validation.rules.whole_run.paced_rates import NOT_BEFORE, PacedRates, Sums

EVIDENCE_MAX: Final = 20
"""Highest number of file sets that the evidence of a divergence lists. A run of a year has 100,000."""


class LongRun(msgspec.Struct, frozen=True):
    """The long-run rate of a group over all file sets of a run, and its ceiling, both as multiples of the bound.

    Attributes:
        k: seconds of quota in flight.
        is_paced: whether it had a schedule at the end.
    """

    seconds: float
    ratio: float
    k: float
    allowed: float
    is_paced: bool = False


@dataclass(slots=True)
class LongRuns:
    """The long-run rates of many groups, without the groups.

    Attributes:
        groups, paced_groups: number of groups that were active for a minute or more, and of those with a schedule at the end.
        highest: the highest rate; of equal ones the one with the lowest ceiling.
        nearest_to_ceiling: the highest rate, as a multiple of its ceiling.
    """

    groups: int = 0
    paced_groups: int = 0
    highest: LongRun | None = None
    nearest_to_ceiling: float | None = None

    def add(self, one: LongRun) -> None:
        """Add a group."""
        self.merge(LongRuns(1, int(one.is_paced), one, one.ratio / one.allowed))

    def merge(self, other: "LongRuns") -> None:
        """Add the groups of another run, or other groups of the same run."""
        self.groups += other.groups
        self.paced_groups += other.paced_groups
        highest = [one for one in (self.highest, other.highest) if one is not None]
        self.highest = max(highest, key=lambda one: (one.ratio, -one.allowed, one.is_paced), default=None)
        nearest = [one for one in (self.nearest_to_ceiling, other.nearest_to_ceiling) if one is not None]
        self.nearest_to_ceiling = max(nearest, default=None)


class GroupRate:
    """The rate of one group, whose throttle windows are added in order."""

    __slots__ = (
        *("_before", "_bound_seconds", "_allowed", "_credit", "_is_unknown", "_k_max"),
        *("_number", "_paced_to_ms", "_parts", "_seconds", "_units"),
    )

    def __init__(self) -> None:
        self._allowed = self._units = self._bound_seconds = self._seconds = self._k_max = self._credit = 0.0
        self._before, self._paced_to_ms, self._number = NOT_BEFORE, 0, 0
        self._is_unknown = False
        self._parts: list[ThrottleWindow] = []

    @classmethod
    def of_paced(cls, sums: Sums) -> "GroupRate":
        """Return the rate of a group that was paced throughout so far, without its first windows; `PacedRates` has both."""
        group = cls()
        group._number, group._before, group._paced_to_ms = sums[:3]
        group._bound_seconds, group._allowed, group._units, group._seconds, group._credit = sums[3:]
        return group

    def with_first(self, windows: PacedWindows) -> "GroupRate":
        """Take the first windows of a group that was paced throughout so far, and return this."""
        self._parts = list(map(_window_of, windows))
        return self

    def add(self, position: int, part: ThrottleWindow) -> None:
        """Add the throttle window of the file set at a position of the run."""
        if self._is_unknown:
            return
        if part.is_paced:
            goes_on = self._paced_to_ms > 0  # the time between file sets counts, too
            span_s = (part.to_ms - (self._paced_to_ms if goes_on else part.from_ms)) / 1_000
            self._paced_to_ms, ceiling, once = part.to_ms, PACED_CEILING, part.credit
        else:
            goes_on, span_s = False, (part.to_ms - part.from_ms) / 1_000
            if not part.connections or span_s <= 0:
                self._is_unknown = True
                return
            self._paced_to_ms, ceiling, once = 0, part.ceiling, part.once
            self._k_max = max(self._k_max, part.k)
        due = part.bound * span_s
        if goes_on:
            more, self._credit = max(0.0, once - self._credit), max(self._credit, once)
        else:
            more, self._credit = 0.0 if position == self._before + 1 else once, once
        self._bound_seconds += due
        self._allowed += due * ceiling + more
        self._units += part.units
        self._seconds += span_s
        self._before = position
        self._number += 1
        if self._number <= EVIDENCE_MAX:
            self._parts.append(part)

    def result(self) -> LongRun | None:
        """Return the rate; None when the time is too short, or when its connections are unknown and matter."""
        if self._is_unknown or self._seconds * 1_000 < SPAN_MS_MIN:
            return None
        ratio, allowed = self._units / self._bound_seconds, self._allowed / self._bound_seconds
        return LongRun(self._seconds, ratio, self._k_max, allowed, is_paced=self._paced_to_ms > 0)

    def finding(self, ref: int, run: LongRun) -> Finding:
        """Return the divergence of a group that exceeds its ceiling, with the first file sets as evidence."""
        first = self._parts[0]
        evidence = [
            f"{part.from_ms} to {part.to_ms} ms: {part.units:.0f} units, bound {part.bound!r}"
            + ("" if part.is_paced else f", at most {part.connections} connections")
            for part in self._parts
        ]
        more = self._number - len(self._parts)
        evidence += [f"and {counted(more, 'file set')} more"] if more else []
        condition = (
            f"{PACED_CEILING} and a burst and a request, paced, whatever is in flight"
            if run.is_paced
            else f"with {run.k:.3g} s of quota in flight"
        )
        what = f"rate over bound in {run.seconds:.0f} s, {condition}"
        expected, recorded = f"at most {run.allowed:.3f}", f"{run.ratio:.3f}"
        return Finding(Kind.RATE, ref, first.first_seq, first.from_ms, expected, recorded, what, tuple(evidence))


class RunRates:
    """The rates of the groups of a run, whose file sets are added in order."""

    def __init__(self) -> None:
        self._groups: dict[int, GroupRate] = {}
        self._paced = PacedRates(EVIDENCE_MAX)

    def add(self, position: int, throttle_windows: Mapping[int, ThrottleWindow], paced: PacedWindows | None = None) -> None:
        """Add the throttle windows of the file set at a position of the run.

        Args:
            throttle_windows: by group.
            paced: those of groups that were paced throughout the file set.
        """
        for ref, sums, first in self._paced.take(throttle_windows):
            self._groups[ref] = GroupRate.of_paced(sums).with_first(first)
        for ref, part in throttle_windows.items():
            group = self._groups.get(ref)
            if group is None:
                group = self._groups[ref] = GroupRate()
            group.add(position, part)
        if paced is None or not len(paced):
            return
        if self._groups:  # one that had a window in an earlier file set goes on with them
            is_known = np.isin(paced["group_ref"], list(self._groups))
            for window in paced[is_known]:
                self._groups[int(window["group_ref"])].add(position, _window_of(window))
            paced = paced[~is_known]
        self._paced.add(position, paced)

    def result(self) -> tuple[LongRuns, list[Finding]]:
        """Return the rates, and a divergence for each group that exceeds its ceiling."""
        rates, too_fast = LongRuns(), dict[int, LongRun]()
        groups = self._groups | {ref: GroupRate.of_paced(sums) for ref, sums in self._paced.sums().items()}
        for ref, group in sorted(groups.items()):
            run = group.result()
            if run is not None:
                rates.add(run)
                if run.ratio > run.allowed:
                    too_fast[ref] = run
        for ref, first in self._paced.first_windows(too_fast).items():
            groups[ref].with_first(first)
        return rates, [groups[ref].finding(ref, run) for ref, run in too_fast.items()]


def _window_of(paced: np.void) -> ThrottleWindow:
    _, from_ms, to_ms, first_seq, units, bound, credit = paced.tolist()
    return ThrottleWindow(from_ms, to_ms, first_seq, units, 0, bound, 0.0, 0, credit, is_paced=True)


def judge(parts: Iterable[tuple[int, ThrottleWindow]]) -> LongRun | None:
    """Return the long-run rate of one group.

    Args:
        parts: (position of the file set in its run, throttle window) of each file set, in order.
    """
    group = GroupRate()
    for position, part in parts:
        group.add(position, part)
    return group.result()
