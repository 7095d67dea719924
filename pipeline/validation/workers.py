"""Applies the rules over file sets of workers that share usage, and of members of a fleet. Each run is judged by itself before."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pipeline.file_set import FileSet
from pipeline.manifest import RunKey
from pipeline.replay.findings import Findings
from pipeline.validation.file_set_verdict import names_of
from pipeline.validation.fleet import FleetJudge, FleetUsage
from pipeline.validation.rules.fleet.members import FleetFiles, fleets_of
from pipeline.validation.rules.workers.group_histories import (
    GroupHistory,
    Identity,
    Share,
    WorkerRun,
    histories_of,
    next_ms,
    run_of,
    timelines_of,
)
from pipeline.validation.rules.workers.shared import check_chain, check_recorded
from pipeline.validation.rules.workers.stale import check_lag
from pipeline.validation.rules.workers.union_rate import highest_ratio
from pipeline.validation.rules.workers.union_schedule import check_union
from pipeline.validation.shared_usage import Lags, SharedUsage
from pipeline.validation.verdict import Verdict

Files = tuple[WorkerRun, Sequence[FileSet]]
"""A run of a worker with its file sets."""

EVENTS_AT_ONCE: Final = 4_000_000
"""Above this number of events, the groups are read in several shares, which bounds memory. A group is always read whole."""


@dataclass(slots=True)
class Judged:
    """The result of the comparison.

    Attributes:
        findings: by run.
        shared: figures about workers.
        fleets: figures about each fleet.
    """

    findings: dict[RunKey, Findings] = field(default_factory=dict)
    shared: SharedUsage = field(default_factory=SharedUsage)
    fleets: list[FleetUsage] = field(default_factory=list)


def judge_shared(runs: Mapping[RunKey, Sequence[FileSet]]) -> Judged | None:
    """Compare the records that workers, and members of a fleet, have of each other's usage; return None when no run shares usage.

    Args:
        runs: the file sets of each run.

    Raises:
        BadInputError, IncompleteError: a file cannot be used.
    """
    workers = [run for key, file_sets in runs.items() if (run := run_of(key, file_sets)) is not None]
    if not workers:
        return None
    together: dict[str, list[Files]] = {}
    for run in workers:
        number = run.segment if run.member_of is None else run.member_of.fleet
        together.setdefault(number, []).append((run, runs[run.key]))
    judged, lags = Judged(), Lags()
    judged.findings = {run.key: Findings() for run in workers}
    fleets = fleets_of(runs, [run for run in workers if not run.is_of_connections])
    for number, its in together.items():
        _judge_together(its, fleets.get(number), judged, lags)
    shared = judged.shared
    shared.compared, shared.lag_ms_p99, shared.lag_ms_max = lags.number, lags.within(99), lags.within(100)
    return judged


def add_shared(verdict: Verdict, runs: Mapping[RunKey, Sequence[FileSet]]) -> None:
    """Add the comparison of workers that share usage to a verdict.

    Raises:
        BadInputError, IncompleteError: a file cannot be used.
    """
    judged = judge_shared(runs)
    if judged is None:
        return
    verdict.shared, verdict.fleets = judged.shared, judged.fleets
    verdict.add(judged.findings)
    verdict.incomplete += judged.shared.missing
    for key, findings in judged.findings.items():
        for file_set in runs[key] if findings.first else ():
            verdict.names.setdefault(key, {}).update(names_of(file_set, list(findings.first)))


def _judge_together(its: Sequence[Files], fleet: FleetFiles | None, judged: Judged, lags: Lags) -> None:
    """Compare the workers of one segment, or those of all members of a fleet."""
    for segment in dict.fromkeys(run.segment for run, _ in its):
        _note_workers([run for run, _ in its if run.segment == segment and not run.is_of_connections], judged.shared)
    manifests = [one.manifest for _, file_sets in its for one in file_sets]
    history_ms = max((one.num_samples + 1) * one.window_ms for one in manifests)
    file_sets_of = {run.key: file_sets for run, file_sets in its}
    judge = None if fleet is None else FleetJudge(fleet, file_sets_of, judged.findings, history_ms)
    shares = 1 + sum(one.last_seq - one.first_seq for one in manifests) // EVENTS_AT_ONCE
    for number in range(shares):
        for histories in _alike(its, Share(number, shares), judged.findings, judged.shared):
            _judge_segments(histories, judged, history_ms, lags)
            if judge is not None:
                judge.judge(histories)
    if judge is not None:
        judged.fleets.append(judge.result())


def _note_workers(runs: Sequence[WorkerRun], result: SharedUsage) -> None:
    workers = {run.worker for run in runs}
    wanted = {number for run in runs for number in run.beside}
    result.workers += len(workers)
    result.missing += [f"worker {number} of those that share usage is in no file set" for number in sorted(wanted - workers)]


def _judge_segments(histories: Sequence[GroupHistory], judged: Judged, history_ms: int, lags: Lags) -> None:
    """Compare the workers of each segment in one group."""
    for segment in dict.fromkeys(history.run.segment for history in histories if not history.run.is_of_connections):
        its = [history for history in histories if history.run.segment == segment]
        _judge_group(its, judged.findings, history_ms, lags)
        check_union(its, judged.findings)
        ratio = highest_ratio(its)
        if ratio is not None:
            judged.shared.highest_ratio = max(judged.shared.highest_ratio or 0.0, ratio)
        judged.shared.groups += 1


def _alike(its: Sequence[Files], share: Share, findings: Mapping[RunKey, Findings], result: SharedUsage) -> Iterable[list[GroupHistory]]:
    """Judge each history of some groups by itself. Yield the histories with the same name together."""
    by_name: dict[Identity, list[GroupHistory]] = {}
    for run, file_sets in its:
        for history in histories_of(run, file_sets, share):
            check_chain(history, findings[run.key])
            _count(history, result)
            if history.identity is not None:
                by_name.setdefault(history.identity, []).append(history)
    return by_name.values()


def _count(history: GroupHistory, result: SharedUsage) -> None:
    sources = [source for source in np.unique(history.source[~history.is_own]) if history.run.is_other_process(source)]
    remote = np.isin(history.source, sources)
    result.remote_records += int(remote.sum())
    result.remote_units += int(history.value[remote].sum())
    result.skipped_units += sum(skip.amount for skip in history.skips if history.run.is_other_process(skip.source))


def _judge_group(histories: Sequence[GroupHistory], findings: Mapping[RunKey, Findings], history_ms: int, lags: Lags) -> None:
    """Compare the histories of one group with each other. Only histories of complete runs are compared: a loss would look like a lag."""
    whole = [history for history in histories if not history.run.losses]
    timelines = {at: timelines_of(history, next_ms(history, histories), history_ms) for at, history in enumerate(whole)}
    for history in whole:
        for at, other in enumerate(whole):
            if other.run.worker == history.run.worker:
                continue
            found = findings[history.run.key]
            check_recorded(history, other.run.worker, timelines[at], found)
            lags.add(check_lag(history, other.run.worker, timelines[at], found, history_ms))
