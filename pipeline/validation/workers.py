"""Applies the rules over file sets of workers that share usage. Each run is judged by itself before."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pipeline.file_set import FileSet
from pipeline.manifest import RunKey
from pipeline.replay.findings import Findings
from pipeline.validation.file_set_verdict import names_of
from pipeline.validation.rules.workers.group_histories import GroupHistory, Identity, Share, WorkerRun, histories_of, run_of, timelines_of
from pipeline.validation.rules.workers.shared import check_chain, check_recorded
from pipeline.validation.rules.workers.stale import check_lag
from pipeline.validation.rules.workers.union_rate import highest_ratio
from pipeline.validation.shared_usage import Lags, SharedUsage
from pipeline.validation.verdict import Verdict

EVENTS_AT_ONCE: Final = 4_000_000
"""Above this number of events, the groups are read in several shares, which bounds memory. A group is always read whole."""


def judge_shared(runs: Mapping[RunKey, Sequence[FileSet]]) -> tuple[dict[RunKey, Findings], SharedUsage] | None:
    """Compare the workers' records of each other's usage; return None when no run shares usage.

    Args:
        runs: the file sets of each run.

    Returns:
        The findings by run, and the figures.

    Raises:
        BadInputError, IncompleteError: a file cannot be used.
    """
    by_segment: dict[str, list[tuple[WorkerRun, Sequence[FileSet]]]] = {}
    for key, file_sets in runs.items():
        run = run_of(key, file_sets)
        if run is not None:
            by_segment.setdefault(run.segment, []).append((run, file_sets))
    if not by_segment:
        return None
    findings: dict[RunKey, Findings] = {}
    result = SharedUsage()
    lags = Lags()
    for its in by_segment.values():
        _judge_segment(its, findings, result, lags)
    result.compared, result.lag_ms_p99, result.lag_ms_max = lags.number, lags.within(99), lags.within(100)
    return findings, result


def add_shared(verdict: Verdict, runs: Mapping[RunKey, Sequence[FileSet]]) -> None:
    """Add the comparison of workers that share usage to a verdict.

    Raises:
        BadInputError, IncompleteError: a file cannot be used.
    """
    judged = judge_shared(runs)
    if judged is None:
        return
    found, verdict.shared = judged
    verdict.add(found)
    verdict.incomplete += verdict.shared.missing
    for key, findings in found.items():
        for file_set in runs[key] if findings.first else ():
            verdict.names.setdefault(key, {}).update(names_of(file_set, list(findings.first)))


def _judge_segment(
    its: Sequence[tuple[WorkerRun, Sequence[FileSet]]], findings: dict[RunKey, Findings], result: SharedUsage, lags: Lags
) -> None:
    workers = {run.worker for run, _ in its if not run.is_of_connections}
    wanted = {number for run, _ in its for number in run.beside if not run.is_of_connections}
    result.workers += len(workers)
    result.missing += [f"worker {number} of those that share usage is in no file set" for number in sorted(wanted - workers)]
    manifests = [one.manifest for _, file_sets in its for one in file_sets]
    history_ms = max((one.num_samples + 1) * one.window_ms for one in manifests)
    shares = 1 + sum(one.last_seq - one.first_seq for one in manifests) // EVENTS_AT_ONCE
    for number in range(shares):
        for histories in _alike(its, Share(number, shares), findings, result):
            if its[0][0].is_of_connections:
                continue
            _judge_group(histories, findings, history_ms, lags)
            ratio = highest_ratio(histories)
            if ratio is not None:
                result.highest_ratio = max(result.highest_ratio or 0.0, ratio)
            result.groups += 1


def _alike(
    its: Sequence[tuple[WorkerRun, Sequence[FileSet]]], share: Share, findings: dict[RunKey, Findings], result: SharedUsage
) -> Iterable[list[GroupHistory]]:
    """Judge each history of some groups by itself. Yield the histories with the same name together."""
    by_name: dict[Identity, list[GroupHistory]] = {}
    for run, file_sets in its:
        found = findings.setdefault(run.key, Findings())
        for history in histories_of(run, file_sets, share):
            check_chain(history, found)
            _count(history, result)
            if history.identity is not None:
                by_name.setdefault(history.identity, []).append(history)
    return by_name.values()


def _count(history: GroupHistory, result: SharedUsage) -> None:
    remote = ~history.is_own
    result.remote_records += int(remote.sum())
    result.remote_units += int(history.value[remote].sum())
    result.skipped_units += sum(skip.amount for skip in history.skips)


def _next_ms(history: GroupHistory, histories: Sequence[GroupHistory]) -> float:
    """Return the start of the worker's next history in the same group in ms. Both histories may begin in the same ms."""
    if not history.claims:
        return math.inf
    begins = [other.claims[0] for other in histories if other.run.worker == history.run.worker and other.claims and other is not history]
    begin = history.claims[0]
    return min((other.ts_ms for other in begins if (other.ts_ms, other.seq) > (begin.ts_ms, begin.seq)), default=math.inf)


def _judge_group(histories: Sequence[GroupHistory], findings: Mapping[RunKey, Findings], history_ms: int, lags: Lags) -> None:
    """Compare the histories of one group with each other. Only histories of complete runs are compared: a loss would look like a lag."""
    whole = [history for history in histories if not history.run.losses]
    timelines = {at: timelines_of(history, _next_ms(history, histories), history_ms) for at, history in enumerate(whole)}
    for history in whole:
        for at, other in enumerate(whole):
            if other.run.worker == history.run.worker:
                continue
            found = findings[history.run.key]
            check_recorded(history, other.run.worker, timelines[at], found)
            lags.add(check_lag(history, other.run.worker, timelines[at], found, history_ms))
