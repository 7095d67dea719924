"""Checks that decisions were applied, by the mode in force and the switches that override it.

In `observe` nothing is applied. In `mute` and `delay` the client gets at least the throttle time that the sensor decided, in the response
or as a delay. Another quota may give it a longer one. A connection that keeps a group membership alive is excused, and the record says so.
Where a switch is off, nothing is decided. When the clients of a group have different switches, each decision has to conform to one of them.
"""

from typing import Any, NamedTuple

import numpy as np

from metering_format.event_kinds import EXCUSED_MS
from pipeline.file_set import FileSet, python_rows
from pipeline.replay.findings import WHOLE_FILE, Finding, Findings, Kind
from pipeline.replay.rows import NOT_LISTED, Flags, Ints, Rows
from pipeline.validation.rules.switched import ENFORCE, GROUP_COLUMNS, OBSERVE, Switched


class Observed(NamedTuple):
    """Throttles that were decided without effect on a client: their number, and the sum of their throttle times in ms."""

    decisions: int = 0
    ms: int = 0

    def __add__(self, other: object) -> "Observed":
        assert isinstance(other, Observed)
        return Observed(self.decisions + other.decisions, self.ms + other.ms)


def observed_of(throttle_ms: Ints, where: Flags) -> Observed:
    """Count the throttle times above 0 in the rows of `where`, in which no client was throttled."""
    waits = throttle_ms[where & (throttle_ms > 0)]
    return Observed(len(waits), int(waits.sum()))


def check_applied(rows: Rows, judged: Flags, settings_intervals: "SettingsIntervals", findings: Findings) -> Observed:
    """Compare every decided throttle time with the applied one, and every record with the switches.

    Returns:
        The throttles that `observe` did not apply.
    """
    waits = rows.waits
    is_applied = waits.applied_ms is waits.throttle_ms or not (waits.applied_ms < waits.throttle_ms).any()
    if not settings_intervals or (settings_intervals.enforce_throughout and is_applied):
        return Observed()
    may_enforce, may_observe = settings_intervals.possible(rows.group_ref, rows.first_seq)
    _check_waits(rows, judged, may_enforce, may_observe, findings)
    _check_records(rows, judged & ~may_enforce & ~may_observe, findings)
    only_observed = judged & may_observe & ~may_enforce
    return observed_of(rows.throttle_ms, only_observed[rows.row_of]) if only_observed.any() else Observed()


def check_states(file_set: FileSet, findings: Findings) -> None:
    """Check that the settings are recorded from the first decision of a file set on, since they say what has to be applied."""
    manifest = file_set.manifest
    from_seqs = [state["from_seq"] for state in file_set.made_of("states", states_in_order)]
    if from_seqs and min(from_seqs) <= manifest.first_seq:
        return
    expected = f"how the proxy was set from decision {manifest.first_seq} on"
    recorded = f"only from {min(from_seqs)} on" if from_seqs else "nothing, so that no wait can be judged as applied"
    findings.add(Finding(Kind.GAP, WHOLE_FILE, manifest.first_seq, manifest.first_ts_ms, expected, recorded, "states of the file"))


def states_in_order(file_set: FileSet) -> list[dict[str, Any]]:
    """Return the rows of `states` by sequence number."""
    return sorted(python_rows(file_set.read("states")), key=lambda state: int(state["from_seq"]))


class SettingsIntervals:
    """The settings of the proxy by sequence number, from the table `states` of a file set; empty when the table is.

    Attributes:
        enforce_throughout: whether every client was enforced at all times.
    """

    def __init__(self, file_set: FileSet) -> None:
        states = file_set.made_of("states", states_in_order)
        self._file_set = file_set
        self._switched = [Switched(state["mode"], state["switches"]) for state in states]
        self.enforce_throughout = all(one.modes == {ENFORCE} for one in self._switched)
        self._starts = np.array([state["from_seq"] for state in states], np.int64)

    def __len__(self) -> int:
        return len(self._switched)

    def possible(self, group_ref: Ints, seq: Ints, *, earlier: int = 0) -> tuple[Flags, Flags]:
        """Return, for each decision, whether a member of its group may have been enforced, and whether one may have been observed.

        Args:
            group_ref: group of each decision.
            seq: sequence number of each decision.
            earlier: number of changes of settings to go back from the decision.
        """
        interval = np.maximum(np.searchsorted(self._starts, seq, side="right") - 1 - earlier, 0)
        may_enforce = np.array([ENFORCE in one.modes for one in self._switched])[interval]
        may_observe = np.array([OBSERVE in one.modes for one in self._switched])[interval]
        if all(one.is_plain for one in self._switched):
            return may_enforce, may_observe
        groups = {row["group_ref"]: row for row in python_rows(self._file_set.read("dim_group", columns=GROUP_COLUMNS))}
        for at, one in enumerate(self._switched):
            for ref in () if one.is_plain else np.unique(group_ref[interval == at]).tolist():
                possible = one.possible(groups[ref])
                mine = (interval == at) & (group_ref == ref)
                may_enforce[mine], may_observe[mine] = ENFORCE in possible, OBSERVE in possible
        return may_enforce, may_observe


def _check_waits(rows: Rows, judged: Flags, may_enforce: Flags, may_observe: Flags, findings: Findings) -> None:
    waits = np.flatnonzero(rows.throttle_ms > 0)
    row = rows.row_of[waits]
    applied = np.where(rows.applied_ms[waits] == NOT_LISTED, 0, rows.applied_ms[waits])
    is_enforced = may_enforce[row] & ((applied == EXCUSED_MS) | (applied >= rows.throttle_ms[waits]))
    is_observed = may_observe[row] & (applied <= 0)
    wrong = (judged & (may_enforce | may_observe))[row] & ~is_enforced & ~is_observed
    where, rows_of, applied = waits[wrong], row[wrong], applied[wrong]
    groups = rows.group_ref[rows_of]
    _, firsts, counts = np.unique(groups, return_index=True, return_counts=True)
    for index, number in zip(firsts, counts, strict=True):
        event = int(where[index])
        expected = f"{rows.throttle_ms[event]} ms or more" if may_enforce[rows_of[index]] else "0 ms, since the mode is observe"
        findings.add(
            Finding(
                Kind.NOT_APPLIED,
                int(groups[index]),
                int(rows.first_seq[rows.row_of[event]]),
                int(rows.ts_ms[event]),
                expected,
                f"{applied[index]} ms",
                "wait that was applied",
            ),
            int(number),
        )


def _check_records(rows: Rows, off: Flags, findings: Findings) -> None:
    where = np.flatnonzero(off)
    _, firsts, counts = np.unique(rows.group_ref[where], return_index=True, return_counts=True)
    for index, number in zip(firsts, counts, strict=True):
        row = int(where[index])
        findings.add(
            Finding(
                Kind.NOT_APPLIED,
                int(rows.group_ref[row]),
                int(rows.first_seq[row]),
                int(rows.sample_start_ms[row]),
                "nothing, since a switch is off",
                f"{rows.count[row]} decisions",
                "recorded in one sample",
            ),
            int(number),
        )
