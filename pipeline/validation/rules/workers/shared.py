"""SHARED: a worker records all of another worker's usage of a group, each unit once, and nothing else.

Each record has the total of its source, and its amount is the difference from the record before. Usage that is older than all samples is
skipped, and a record of its total fills the place. A group that begins to share usage begins at 0.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np

from pipeline.replay.findings import Finding, Findings, Kind
from pipeline.replay.rows import Ints
from pipeline.validation.rules.workers.group_histories import OWN, GroupHistory, Timeline

PUBLISHED_MS: Final = 1_000
"""Highest delay of the record of usage that is recorded at an earlier time: one slot and the time to publish it."""


def check_chain(history: GroupHistory, findings: Findings) -> None:
    """Check that the totals of each source in a group form a chain."""
    for source in sorted(set(history.source[~history.is_own].tolist())):
        at = np.flatnonzero(history.source == source)
        amount, total = history.value[at], history.total[at]
        before = total - amount
        expected = np.append(0, total[:-1])
        wrong = _unbridged(history, source, before, expected)
        allowed = history.run.losses
        if len(wrong) > allowed:
            first = int(wrong[allowed])
            expected_from = f"usage of {history.run.name_of(source)} from {expected[first]} on"
            recorded = f"{before[first]} + {amount[first]} = {total[first]}"
            _add(
                history,
                int(at[first]),
                expected_from,
                recorded,
                len(wrong) - allowed,
                findings,
            )


def _unbridged(history: GroupHistory, source: str, before: Ints, expected: Ints) -> Ints:
    """Return the positions of records that continue neither the record before, nor skipped usage, nor a start at 0."""
    skipped: dict[int, set[int]] = {}  # usage that is taken back lets a source pass the same total again
    for skip in history.skips:
        if skip.source == source and skip.amount:
            skipped.setdefault(skip.total - skip.amount, set()).add(skip.total)
    begins = len(history.claims)
    wrong = []
    places = np.flatnonzero((before != expected) | (np.arange(len(before)) == 0))
    for at in places.tolist():
        goes_on = at and int(before[at]) in _reached(int(expected[at]), skipped)
        if goes_on:
            continue
        if begins and int(before[at]) in _reached(0, skipped):
            begins -= 1
            continue
        wrong.append(at)
    return np.array(wrong, np.int64)


def _reached(total: int, skipped: Mapping[int, Collection[int]]) -> set[int]:
    """Return the totals that can be reached from `total` by skipped usage."""
    found: set[int] = set()
    reached = [total]
    while reached:
        if (at := reached.pop()) not in found:
            found.add(at)
            reached += skipped.get(at, ())
    return found


def check_recorded(history: GroupHistory, source: str, timelines: Sequence[Timeline], findings: Findings) -> None:
    """Check that no recorded total exceeds the total that the source's own files have for that time."""
    if len(history.claims) != 1:
        return
    at = np.flatnonzero(history.source == source)
    for one in timelines:
        its = at[(history.ts_ms[at] >= one.from_ms) & (history.ts_ms[at] + PUBLISHED_MS <= one.until_ms)]
        if not len(its) or not one.is_exact:
            continue
        highest = np.maximum.accumulate(np.append(float(one.base), one.total))
        known = highest[np.searchsorted(one.ts_ms, history.ts_ms[its] + PUBLISHED_MS, side="right")]
        wrong = np.flatnonzero(history.total[its] > known + history.tolerance)
        if len(wrong):
            first = int(wrong[0])
            recorded = f"{history.total[its[first]]}"
            _add(history, int(its[first]), f"at most {known[first]:.0f}, the total of worker {source}", recorded, len(wrong), findings)


def _add(history: GroupHistory, event: int, expected: str, recorded: str, number: int, findings: Findings) -> None:
    assert history.source[event] != OWN
    place = (history.group_ref, int(history.seq[event]), int(history.ts_ms[event]) + history.run.offset_ms)
    what = f"usage of {history.run.name_of(history.source[event])} as recorded by worker {history.run.worker}"
    findings.add(Finding(Kind.SHARED, *place, expected, recorded, what), number)
