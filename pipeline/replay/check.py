"""Compares recorded decisions with recomputed ones, one file set at a time."""

import functools
import itertools
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline.replay.decisions import NO_CAP, Decisions, Sensor, with_recorded_waits
from pipeline.replay.findings import Finding, Findings, Kind
from pipeline.replay.row_figures import differing_figures, differing_waits
from pipeline.replay.rows import NOT_LISTED, Flags, Ints, Rows

SAMPLES_SHOWN: Final = 12

Describe = Callable[[int], tuple[str, str, str]]
"""Returns for a row or an event: the name of the value, the expected value, the recorded value."""


def check_samples(rows: Rows, sensor: Sensor, judged: Flags, findings: Findings) -> Flags:
    """Compare the rows with their own events and with the rows before them.

    Args:
        rows: rows of the file set and of its warm-up.
        sensor: parameters of the groups.
        judged: whether each row belongs to the file set and is judged.
        findings: where divergences are added.

    Returns:
        Whether each row can be replayed.
    """
    first_ms = rows.first_event_ms
    empty = rows.count == 0
    miscounted = empty | (rows.n != rows.count)
    _note(rows, miscounted & judged, Kind.SEGMENT, lambda row: ("events of the row", str(rows.count[row]), str(rows.n[row])), findings)
    pointed = ("positions in the lists", "ascending, within the row", "otherwise")
    _note(rows, rows.misplaced & judged, Kind.SEGMENT, functools.partial(_the_same, pointed), findings)
    sums = np.diff(rows.total_before, append=rows.running_total[-1])
    _note(
        rows,
        (sums != rows.total) & judged & ~empty,
        Kind.MATH,
        lambda row: ("sum of the row", str(sums[row]), str(rows.total[row])),
        findings,
    )
    _note(
        rows,
        rows.is_new_sample & (first_ms != rows.sample_start_ms) & judged & ~empty,
        Kind.SEGMENT,
        lambda row: ("start of the sample", str(first_ms[row]), str(rows.sample_start_ms[row])),
        findings,
    )
    _check_steps(rows, sensor, judged, findings)
    _check_chain(rows, sensor, judged, findings)
    whole: Flags = ~empty
    return whole


def _check_steps(rows: Rows, sensor: Sensor, judged: Flags, findings: Findings) -> None:
    """Check that events of a row ascend and stay within its sample, and that the row has the time of its last event."""
    outside = _outside(rows, sensor)
    earlier = np.flatnonzero(rows.ts_ms[1:] < rows.ts_ms[:-1]) + 1  # few apart from the starts of groups
    back = earlier[rows.row_of[earlier] == rows.row_of[earlier - 1]]
    for wrong, kind, what in ((outside, Kind.SEGMENT, "time within the sample"), (back, Kind.ORDER, "order of events")):
        at = np.zeros(len(rows.n), np.bool_)
        at[rows.row_of[wrong]] = True
        figures = (what, f"0 to {sensor.window_ms - 1} ms, ascending", "otherwise")
        _note(rows, at & judged, kind, functools.partial(_the_same, figures), findings)
    wrong_end = (rows.final_event_ms != rows.last_event_ms) | (rows.last_seq - rows.first_seq < rows.count - 1)
    _note(
        rows,
        wrong_end & judged & (rows.count > 0),
        Kind.SEGMENT,
        lambda row: ("last event", f"{rows.final_event_ms[row]} ms", f"{rows.last_event_ms[row]} ms, seq {rows.last_seq[row]}"),
        findings,
    )


def _outside(rows: Rows, sensor: Sensor) -> Ints:
    """Return the events that are before or after the sample of their row."""
    if rows.dt_ends_ms is not None and rows.dt_ends_ms[0] >= 0 and rows.dt_ends_ms[1] < sensor.window_ms:
        return np.zeros(0, np.int64)
    since_start = rows.ts_ms - rows.sample_start_ms.take(rows.row_of, mode="clip")
    return np.flatnonzero((since_start < 0) | (since_start >= sensor.window_ms))


def _check_chain(rows: Rows, sensor: Sensor, judged: Flags, findings: Findings) -> None:
    """Check that a row continues its group's previous row: in the same sample, or in a new one that begins a window later or more."""
    if len(rows.n) < 2:
        return
    follows, begins = ~rows.is_new_group[1:], rows.is_new_sample[1:]
    too_soon, misnumbered = np.zeros((2, len(rows.n)), np.bool_)
    too_soon[1:] = follows & begins & (np.diff(rows.sample_start_ms) < sensor.window_ms)
    misnumbered[1:] = follows & (np.diff(rows.sample_index) != begins)
    _note(
        rows,
        too_soon & judged,
        Kind.SEGMENT,
        lambda row: (
            "start of the sample",
            f"{sensor.window_ms} ms or more after {rows.sample_start_ms[row - 1]}",
            str(rows.sample_start_ms[row]),
        ),
        findings,
    )
    _note(
        rows,
        misnumbered & judged & ~too_soon,
        Kind.SEGMENT,
        lambda row: ("number of the sample", str(rows.sample_index[row - 1] + rows.is_new_sample[row]), str(rows.sample_index[row])),
        findings,
    )


def check_decisions(rows: Rows, decided: Decisions, sensor: Sensor, judged: Flags, findings: Findings) -> None:
    """Compare every recorded throttle time with the recomputed one, and the figures of each row with its events."""
    judged = judged & (rows.count > 0)
    figures = differing_figures(rows, decided, judged)
    if not (_waits_agree(rows, decided, judged) and rows.waits_fit()):  # else rows agree with their lists, and lists with the replay
        decided = with_recorded_waits(rows, decided)
        event_judged = judged.take(rows.row_of)
        _check_waits(rows, decided, sensor, event_judged, findings)
        figures = itertools.chain(figures, differing_waits(rows, decided, judged, event_judged))
    for what, due, recorded in figures:
        _note(rows, (due != recorded) & judged, Kind.MATH, functools.partial(_figure, what, due, recorded), findings)


def _waits_agree(rows: Rows, decided: Decisions, judged: Flags) -> bool:
    """Return True when every recorded throttle time of the judged rows is known to be the recomputed one.

    One of a schedule depends on when the request came, which `rows` has only as the time at which it passed less this wait. It is right
    when the schedule admitted the request.
    """
    waits = rows.waits
    if rows.paced.all():
        are_checked = rows.all_checked or rows.checked.take(waits.at).all()
        return bool(are_checked and waits.throttle_ms.min(initial=1) > 0)
    if rows.paced.any():
        return False
    differs = decided.violated.copy()
    differs[waits.at] ^= True
    wrong = np.concatenate((np.flatnonzero(differs), waits.at[decided.throttle_ms.take(waits.at) != waits.throttle_ms]))
    return not judged.take(rows.row_of.take(wrong)).any()


def _check_waits(rows: Rows, decided: Decisions, sensor: Sensor, event_judged: Flags, findings: Findings) -> None:
    recorded = np.where(rows.throttle_ms == NOT_LISTED, 0, rows.throttle_ms)
    expected = decided.throttle_ms
    differs = event_judged & (recorded != expected)
    over_cap = np.zeros(rows.events, np.bool_)
    if sensor.cap_ms != NO_CAP:  # a schedule has none
        over_cap = event_judged & (recorded > sensor.cap_ms) & ~rows.paced.take(rows.row_of)
    differs &= ~over_cap
    missed, spurious = differs & (recorded == 0) & (expected > 0), differs & (recorded > 0) & (expected <= 0)
    listed = rows.throttle_ms != NOT_LISTED
    unlisted = event_judged & (recorded == expected) & (listed != decided.violated) & ~decided.in_margin
    masks: tuple[tuple[NDArray[np.bool_], Kind], ...] = (
        (over_cap, Kind.CAP),
        (missed, Kind.MISSED),
        (spurious, Kind.SPURIOUS),
        (differs & ~missed & ~spurious, Kind.MATH),
        (unlisted, Kind.MATH),
    )
    for wrong, kind in masks:
        _note_events(rows, decided, wrong, kind, findings)


def _the_same(figures: tuple[str, str, str], _row: int) -> tuple[str, str, str]:
    return figures


def _figure(what: str, expected: NDArray[Any], recorded: NDArray[Any], row: int) -> tuple[str, str, str]:
    return what, str(expected[row]), str(recorded[row])


def _note(rows: Rows, wrong: Flags, kind: Kind, describe: Describe, findings: Findings) -> None:
    at = np.flatnonzero(wrong)
    if not len(at):
        return
    _, firsts, counts = np.unique(rows.group_ref[at], return_index=True, return_counts=True)
    for index, number in zip(firsts, counts, strict=True):
        row = int(at[index])
        what, expected, recorded = describe(row)
        place = (int(rows.group_ref[row]), int(rows.first_seq[row]), int(rows.sample_start_ms[row]))
        findings.add(Finding(kind, *place, expected, recorded, what, _row_and_before(rows, row)), int(number))


def _row_and_before(rows: Rows, row: int) -> tuple[str, ...]:
    """Describe a row of `samples` and the earlier rows that its figures depend on."""
    first = max(row - SAMPLES_SHOWN + 1, int(np.searchsorted(rows.group_ref, rows.group_ref[row])))
    columns = (
        rows.sample_index,
        rows.first_seq,
        rows.sample_start_ms,
        rows.last_event_ms,
        rows.count,
        rows.total,
        rows.max_observed,
        rows.bound,
    )
    lines = []
    for at in range(first, row + 1):
        index, seq, start_ms, last_ms, count, total, highest, bound = (column[at] for column in columns)
        lines.append(
            f"sample {index}, row from seq {seq}, {start_ms} to {last_ms} ms: {count} events, sum {total}, highest rate {highest}, "
            f"bound {bound}"
        )
    return tuple(lines)


def _note_events(rows: Rows, decided: Decisions, wrong: Flags, kind: Kind, findings: Findings) -> None:
    at = np.flatnonzero(wrong)
    if not len(at):
        return
    groups = rows.group_ref[rows.row_of[at]]
    _, firsts, counts = np.unique(groups, return_index=True, return_counts=True)
    for index, number in zip(firsts, counts, strict=True):
        event = int(at[index])
        recorded = int(rows.throttle_ms[event])
        findings.add(
            Finding(
                kind,
                int(groups[index]),
                int(rows.first_seq[rows.row_of[event]]),
                int(rows.ts_ms[event]),
                f"{decided.throttle_ms[event]} ms",
                "no violation" if recorded == NOT_LISTED else f"{recorded} ms",
                _wait_of(rows, decided, event),
                _evidence(rows, decided, event),
            ),
            int(number),
        )


def _wait_of(rows: Rows, decided: Decisions, event: int) -> str:
    rate, bound = float(decided.observed[event]), float(rows.bound[rows.row_of[event]])
    position = event - int(rows.event_at[rows.row_of[event]])
    measured = f"rate {rate!r}, bound {bound!r}, window {decided.window_ms[event]} ms"
    return f"event {position} of the row: wait after {rows.value[event]} at {measured}"


def _evidence(rows: Rows, decided: Decisions, event: int) -> tuple[str, ...]:
    """Describe the rows with samples that were live at an event."""
    row = int(rows.row_of[event])
    lines: list[str] = []
    at = row
    while at >= 0 and rows.group_ref[at] == rows.group_ref[row] and rows.sample_start_ms[at] >= decided.oldest_start_ms[event]:
        until = event + 1 if at == row else int(rows.event_at[at] + rows.count[at])
        total = int(rows.value[int(rows.event_at[at]) : until].sum())
        lines.append(
            f"sample {rows.sample_index[at]} from {rows.sample_start_ms[at]} ms: {until - int(rows.event_at[at])} events, sum {total}"
        )
        at -= 1
    return tuple(reversed(lines[:SAMPLES_SHOWN]))
