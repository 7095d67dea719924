"""STALE: a decision includes the other workers' usage. The lag is the age of the oldest usage that it does not include."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from pipeline.replay.findings import Finding, Findings, Kind
from pipeline.replay.rows import Floats, Ints
from pipeline.validation.rules.workers.group_histories import GroupHistory, Timeline

LAG_MS_MAX: Final = 1_000
"""Highest lag while both workers run."""


def check_lag(history: GroupHistory, source: str, timelines: Sequence[Timeline], findings: Findings, history_ms: int) -> Ints:
    """Compare another worker's usage that each checked record knew with the usage that this worker had recorded by then.

    Usage that is older than `history_ms` is outside of all samples, and is not compared: it changes no decision, and its row in the shared
    memory may belong to another group by then.

    Args:
        history: the records of one group.
        source: number of the other worker.
        timelines: the other worker's totals.
        findings: where divergences are added.
        history_ms: length of the history that is compared.

    Returns:
        The lag in ms of each record that can be judged.
    """
    if not history.claims:
        return np.zeros(0, np.int64)
    claim_ms = history.claims[-1].ts_ms
    decisions = np.flatnonzero(history.checked & (history.ts_ms >= claim_ms))
    known = known_totals(history, source, claim_ms)[decisions]
    at_ms = history.ts_ms[decisions]
    lags: list[Ints] = []
    for one in timelines:
        judged = np.flatnonzero((at_ms >= one.from_ms) & (at_ms <= one.until_ms))
        lag_ms = _lag_ms(one, at_ms[judged], known[judged] + history.tolerance, history_ms)
        lags.append(lag_ms)
        late = np.flatnonzero(lag_ms > LAG_MS_MAX)
        if len(late):
            event = int(decisions[judged[late[0]]])
            place = (history.group_ref, int(history.seq[event]), int(history.ts_ms[event]) + history.run.offset_ms)
            recorded = f"unknown for {lag_ms[late[0]]} ms, with {known[judged[late[0]]]:.0f} known"
            what = f"usage of worker {source} behind a decision of worker {history.run.worker}"
            findings.add(Finding(Kind.STALE, *place, f"known within {LAG_MS_MAX} ms", recorded, what), len(late))
    return np.concatenate(lags) if lags else np.zeros(0, np.int64)


def known_totals(history: GroupHistory, source: str, claim_ms: int) -> Floats:
    """Return the known total of a source at each event; before the claim at `claim_ms` it has no meaning."""
    earlier = np.flatnonzero(history.is_own & (history.ts_ms < claim_ms))
    begin = int(earlier[-1]) + 1 if len(earlier) and len(history.claims) > 1 else 0
    known = np.zeros(len(history.ts_ms))
    at = np.flatnonzero(history.source == source)
    at = at[at >= begin]
    if len(at):
        last = np.searchsorted(at, np.arange(len(known)), side="right")
        known = np.append(0, history.total[at]).astype(np.float64)[last]
    for skip in history.skips:
        if skip.source == source and skip.ts_ms >= claim_ms:
            known[history.ts_ms >= skip.ts_ms] = np.maximum(known[history.ts_ms >= skip.ts_ms], skip.total)
    return known


def _lag_ms(timeline: Timeline, at_ms: Ints, known: Floats, history_ms: int) -> Ints:
    """Return how long, in ms, usage beyond the known total has existed. Usage that was returned later does not count."""
    lasting = np.minimum.accumulate(np.append(timeline.base, timeline.total)[::-1])[::-1]
    began_ms = np.append(timeline.from_ms, timeline.ts_ms)
    first = np.maximum(np.searchsorted(lasting, known, side="right"), np.searchsorted(began_ms, at_ms - history_ms))
    since_ms = np.append(began_ms, np.iinfo(np.int64).max)[first]
    lag_ms: Ints = np.where(since_ms < at_ms, at_ms - np.minimum(since_ms, at_ms), 0)
    return lag_ms
