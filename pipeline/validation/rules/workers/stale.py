"""STALE: a decision knew what the other workers had recorded; how long before it they had recorded the oldest of what it did not know."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from pipeline.replay.findings import Finding, Findings, Kind
from pipeline.replay.rows import Floats, Ints
from pipeline.validation.rules.workers.lives import Life, Timeline

LAG_MS_MAX: Final = 1_000
"""While both lived."""


def check_lag(life: Life, source: str, timelines: Sequence[Timeline], findings: Findings, history_ms: int) -> Ints:
    """Compare what each checked record of one group knew of another worker with what that one had recorded by then.

    Usage that is older than `history_ms`, and so than all samples, is not compared: it changes no decision, and the row that had it in the
    shared memory may be another group's by then.

    Returns:
        For each record that can be judged, for how many ms there had been something that it did not know.
    """
    if not life.claims:
        return np.zeros(0, np.int64)
    claim_ms = life.claims[-1].ts_ms
    decisions = np.flatnonzero(life.checked & (life.ts_ms >= claim_ms))
    known = _known(life, source, claim_ms)[decisions]
    at_ms = life.ts_ms[decisions]
    lags: list[Ints] = []
    for one in timelines:
        judged = np.flatnonzero((at_ms >= one.from_ms) & (at_ms <= one.until_ms))
        lag_ms = _lag_ms(one, at_ms[judged], known[judged] + life.tolerance, history_ms)
        lags.append(lag_ms)
        late = np.flatnonzero(lag_ms > LAG_MS_MAX)
        if len(late):
            event = int(decisions[judged[late[0]]])
            place = (life.group_ref, int(life.seq[event]), int(life.ts_ms[event]) + life.run.offset_ms)
            said = f"unknown for {lag_ms[late[0]]} ms, with {known[judged[late[0]]]:.0f} known"
            what = f"usage of worker {source} behind a decision of worker {life.run.worker}"
            findings.add(Finding(Kind.STALE, *place, f"known within {LAG_MS_MAX} ms", said, what), len(late))
    return np.concatenate(lags) if lags else np.zeros(0, np.int64)


def _known(life: Life, source: str, claim_ms: int) -> Floats:
    """The total of a source that was known at each event."""
    earlier = np.flatnonzero(life.is_own & (life.ts_ms < claim_ms))
    begin = int(earlier[-1]) + 1 if len(earlier) and len(life.claims) > 1 else 0
    known = np.zeros(len(life.ts_ms))
    at = np.flatnonzero(life.source == source)
    at = at[at >= begin]
    if len(at):
        last = np.searchsorted(at, np.arange(len(known)), side="right")
        known = np.append(0, life.total[at]).astype(np.float64)[last]
    for skip in life.skips:
        if skip.source == source and skip.ts_ms >= claim_ms:
            known[life.ts_ms >= skip.ts_ms] = np.maximum(known[life.ts_ms >= skip.ts_ms], skip.total)
    return known


def _lag_ms(timeline: Timeline, at_ms: Ints, known: Floats, history_ms: int) -> Ints:
    """For how long there has been something beyond what is known; what was taken back later counts as if it had never been there."""
    lasting = np.minimum.accumulate(np.append(timeline.base, timeline.total)[::-1])[::-1]
    began_ms = np.append(timeline.from_ms, timeline.ts_ms)
    first = np.maximum(np.searchsorted(lasting, known, side="right"), np.searchsorted(began_ms, at_ms - history_ms))
    since_ms = np.append(began_ms, np.iinfo(np.int64).max)[first]
    lag_ms: Ints = np.where(since_ms < at_ms, at_ms - np.minimum(since_ms, at_ms), 0)
    return lag_ms
