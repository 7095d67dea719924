"""SHARED and STALE between members of a fleet: what a member recorded of the others, compared with what they recorded themselves.

A member records the sum of the others' usage. With its notes (`metering_format.fleet_notes`) it follows what they reported to it, V. By
their own files they used S. The difference c = S - V is usage from before the member knew the group. It stays the same, except that V is
later than S: usage that is on its way makes the difference larger for a moment. So each decision gives two limits of c,

    S(t - LATE_MS) - V(t) <= c <= S(t + EARLY_MS) - V(t)

and all of them have to leave room for one c. A lower limit above an upper one before it is usage that is late, which is a lag, or that
never came. An upper limit below a lower one before it is usage that nobody recorded.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from metering_format.fleet_notes import ASSUMED, LEFT_OUT, UNNAMED
from pipeline.replay.findings import Finding, Findings, Kind
from pipeline.replay.rows import Flags, Floats, Ints
from pipeline.validation.rules.fleet.totals import Totals, shared_claim
from pipeline.validation.rules.workers.group_histories import GroupHistory
from pipeline.validation.rules.workers.stale import known_totals

LAG_MS_MAX: Final = 3_000
"""Highest lag while no member counts as not heard: a member is not heard after 1.25 s without a message, or 2 s without an own one. A small
change may wait for 1 s before it is sent."""
LATE_MS: Final = 5_000
"""Usage that is not known after this time is missing if it never comes."""
EARLY_MS: Final = 2_000
"""Usage may be recorded at a time before it happened: at the start of a slot, and by clocks that differ."""
AROUND_MS: Final = 2_000
"""Time before and after an assumption of usage that belongs to the silence."""
FORGOTTEN_MS: Final = 60_000
"""Time without usage after which a member may begin a new row for a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """The other members, for one member and one group.

    Attributes:
        names: their names.
        totals: what they used, by their files.
        until_ms: time up to which their files are complete.
        begin_ms: time at which the first process of this member began.
        unheard_ms: times at which any member recorded assumed usage, because another one was not heard.
    """

    names: str
    totals: Totals
    until_ms: float
    begin_ms: int
    unheard_ms: Ints


@dataclass(frozen=True, slots=True)
class _Known:
    """What one worker knew of the others at each of its decisions.

    Attributes:
        event: position of each decision in the history.
        at_ms: its time.
        reported: V, what the others had reported.
        unnamed: at least what they had used when the group was named.
    """

    event: Ints
    at_ms: Ints
    reported: Floats
    unnamed: Floats


@dataclass(frozen=True, slots=True)
class _Limits:
    """Limits of c up to each decision, and how long the oldest usage that is not known has existed."""

    low: Floats
    high: Floats
    own_low: Floats
    own_high: Floats
    lag_ms: Ints
    is_late: Flags


def check_balance(history: GroupHistory, others: Others, offset_ms: int, findings: Findings) -> Ints:
    """Compare what a worker knew of the other members at each of its decisions with what they recorded.

    Args:
        history: the worker's records in the group.
        others: the other members.
        offset_ms: is added to times of the history.
        findings: where divergences are added.

    Returns:
        The lag in ms of each decision.
    """
    known = _known(history, offset_ms)
    if known is None or not len(known.event):
        return np.zeros(0, np.int64)
    slack = history.tolerance + 0.5
    limits = _limits(known, others, slack, _begin_limit(history, others, known, offset_ms))
    extra = np.flatnonzero(limits.own_high < limits.low - slack)
    if len(extra):
        at = int(extra[0])
        amount = limits.low[at] - limits.own_high[at]
        _add(history, known, others, at, f"{amount:.0f} more than they recorded themselves", len(extra), findings)
    missing = _missing_from(limits, known, others)
    if missing < len(known.event):
        amount = limits.own_low[-1] - limits.high[-1]
        what = f"{amount:.0f} fewer than they recorded themselves, up to its last decision {limits.lag_ms[-1]} ms later"
        _add(history, known, others, missing, what, 1, findings)
    _check_lag(history, known, others, limits.lag_ms[:missing], findings)
    return limits.lag_ms[:missing]


def _known(history: GroupHistory, offset_ms: int) -> _Known | None:
    claim, member = shared_claim(history), history.run.member_of
    assert member is not None
    if claim is None:
        return None
    event = np.flatnonzero(history.checked & (history.ts_ms >= claim.ts_ms))
    at_ms = history.ts_ms[event]
    total = known_totals(history, member.source(), claim.ts_ms)[event]
    assumed, left_out, unnamed = (_noted(history, member.source(note), claim.ts_ms, at_ms) for note in (ASSUMED, LEFT_OUT, UNNAMED))
    return _Known(event, at_ms + offset_ms, total + left_out - assumed, unnamed)


def _noted(history: GroupHistory, source: str, from_ms: int, at_ms: Ints) -> Floats:
    """Return the total of a note at these times."""
    notes = [skip for skip in history.skips if skip.source == source and skip.ts_ms >= from_ms]
    ts_ms = np.array([note.ts_ms for note in notes], np.int64)
    total = np.array([0, *(note.total for note in notes)], np.float64)
    found: Floats = total[np.searchsorted(ts_ms, at_ms, side="right")]
    return found


def _begin_limit(history: GroupHistory, others: Others, known: _Known, offset_ms: int) -> float:
    """Return the most that the others can have used before this member knew the group, besides what was used when it was named."""
    claim = shared_claim(history)
    assert claim is not None
    ts_ms = others.totals.ts_ms
    used_ms = ts_ms[ts_ms <= claim.ts_ms + offset_ms]
    gaps = used_ms[1:][np.diff(used_ms) >= FORGOTTEN_MS]
    begin_ms = max(others.begin_ms, int(gaps[-1]) - 1 if len(gaps) else 0)
    if len(used_ms) and claim.ts_ms + offset_ms - used_ms[-1] >= FORGOTTEN_MS:
        begin_ms = claim.ts_ms + offset_ms
    return float(others.totals.highest_at(np.array([begin_ms]))[0])


def _limits(known: _Known, others: Others, slack: float, begin: float) -> _Limits:
    """Return the limits of c. When groups are named, c may become larger."""
    totals = others.totals
    own_high = totals.highest_at(known.at_ms + EARLY_MS) - known.reported
    own_high[known.at_ms + EARLY_MS > others.until_ms] = np.inf
    own_low = totals.lasting_at(known.at_ms - LATE_MS) - known.reported
    low, high = np.zeros(len(own_low)), np.zeros(len(own_low))
    lag_ms = np.zeros(len(own_low), np.int64)
    is_unheard = _is_unheard(known.at_ms, np.full(len(own_low), LAG_MS_MAX), others)  # then usage may be late, which is no limit
    begins = np.flatnonzero(np.diff(known.unnamed, prepend=-1.0))
    lowest, highest, unnamed = 0.0, begin, 0.0
    for first, end in zip(begins.tolist(), [*begins[1:].tolist(), len(low)], strict=True):
        its = slice(first, end)
        highest, unnamed = highest + known.unnamed[first] - unnamed, known.unnamed[first]
        high[its] = np.minimum(np.minimum.accumulate(own_high[its]), highest)
        lag_ms[its] = np.maximum(0, known.at_ms[its] - totals.since_ms(known.reported[its] + high[its] + slack))
        certain = np.where((lag_ms[its] > LATE_MS) | is_unheard[its], -np.inf, own_low[its])
        low[its] = np.maximum(np.maximum.accumulate(certain), lowest)
        lowest, highest = float(low[end - 1]), float(high[end - 1])
    return _Limits(low, high, own_low, own_high, lag_ms, lag_ms > LATE_MS)


def _missing_from(limits: _Limits, known: _Known, others: Others) -> int:
    """Return the first decision from which on some usage was never known; their number if there is none, or if a member was not heard."""
    count = len(limits.is_late)
    in_time = np.flatnonzero(~limits.is_late)
    first = int(in_time[-1]) + 1 if len(in_time) else 0
    if first == count or _is_unheard(known.at_ms[-1:], limits.lag_ms[-1:], others)[0]:
        return count
    return first


def _is_unheard(at_ms: Ints, lag_ms: Ints, others: Others) -> Flags:
    """Return whether a member was not heard during each lag."""
    begin = np.searchsorted(others.unheard_ms, at_ms - lag_ms - AROUND_MS)
    end = np.searchsorted(others.unheard_ms, at_ms + AROUND_MS, side="right")
    found: Flags = end > begin
    return found


def _check_lag(history: GroupHistory, known: _Known, others: Others, lag_ms: Ints, findings: Findings) -> None:
    late = np.flatnonzero(lag_ms > LAG_MS_MAX)
    late = late[~_is_unheard(known.at_ms[late], lag_ms[late], others)]
    if len(late):
        at = int(late[0])
        recorded = f"unknown for {lag_ms[at]} ms, with {known.reported[at]:.0f} known"
        what = f"usage of {others.names} behind a decision of {_who(history)}"
        findings.add(Finding(Kind.STALE, *_place(history, known, at), f"known within {LAG_MS_MAX} ms", recorded, what), len(late))


def _add(history: GroupHistory, known: _Known, others: Others, at: int, recorded: str, number: int, findings: Findings) -> None:
    what = f"units of {others.names} as recorded by {_who(history)}"
    expected = f"what they recorded themselves, {others.totals.highest_at(known.at_ms[at : at + 1])[0]:.0f} by then"
    findings.add(Finding(Kind.SHARED, *_place(history, known, at), expected, recorded, what), number)


def _who(history: GroupHistory) -> str:
    assert history.run.member_of is not None
    return f"member {history.run.member_of.member}, worker {history.run.worker}"


def _place(history: GroupHistory, known: _Known, at: int) -> tuple[int, int, int]:
    event = known.event[at]
    return history.group_ref, int(history.seq[event]), int(history.ts_ms[event]) + history.run.offset_ms
