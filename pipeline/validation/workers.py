"""Applies the rules over file sets of workers that share usage, and of members of a fleet. Each run is judged by itself before."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from metering_format.manifest import Manifest
from metering_format.places import SHARED
from pipeline.file_set import FileSet
from pipeline.manifest import RunKey
from pipeline.replay.findings import Findings
from pipeline.validation.file_set_verdict import names_of
from pipeline.validation.fleet import FleetFigures, FleetJudge
from pipeline.validation.rules.fleet.members import fleets_of
from pipeline.validation.rules.workers.group_histories import (
    GroupHistory,
    WorkerRun,
    histories_of,
    member_of,
    next_ms,
    run_of,
    timelines_of,
)
from pipeline.validation.rules.workers.group_shares import Identity, Share
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
class SharedFigures:
    """Figures about the runs that are compared with each other, in a share of their groups.

    Attributes:
        shared: figures about workers, without lags.
        lags: of all comparisons of workers.
        fleet: figures about the fleet; None: the workers belong to none.
    """

    shared: SharedUsage = field(default_factory=SharedUsage)
    lags: Lags = field(default_factory=Lags)
    fleet: FleetFigures | None = None

    def merge(self, other: "SharedFigures") -> None:
        """Add the figures of another share."""
        self.shared.merge(other.shared)
        self.lags.merge(other.lags)
        if self.fleet is not None and other.fleet is not None:
            self.fleet.merge(other.fleet)


@dataclass(slots=True)
class Judged:
    """The result of the comparison in a share of the groups.

    Attributes:
        findings: by run.
        names: display names of the groups with findings, by run.
    """

    findings: dict[RunKey, Findings]
    names: dict[RunKey, dict[int, str]] = field(default_factory=dict)
    figures: SharedFigures = field(default_factory=SharedFigures)


def sharing_runs(runs: Mapping[RunKey, Sequence[Manifest]]) -> dict[str, list[RunKey]]:
    """Return the runs that are compared with each other, by the name of their segment or fleet.

    With those of a fleet are also the runs that only tell about its members.

    Args:
        runs: the manifests of each run, in order.
    """
    together: dict[str, list[RunKey]] = {}
    for key, manifests in runs.items():
        name = _together(manifests[0])
        if name is not None:
            together.setdefault(name, []).append(key)
    for key, manifests in runs.items():
        member = member_of(manifests[0])
        if member is not None and member.fleet in together and key not in together[member.fleet]:
            together[member.fleet].append(key)
    return together


def _together(manifest: Manifest) -> str | None:
    """Return the name of the segment or fleet whose runs a run is compared with; None: it does not share usage."""
    shared = manifest.settings.get(SHARED)
    if shared is None:
        return None
    member = None if shared.get("of") == "connections" else member_of(manifest)
    return str(shared["segment"]) if member is None else member.fleet


def tables_compared(name: str, manifest: Manifest) -> tuple[str, ...]:
    """Return the tables of a file set that the comparison of runs reads.

    Args:
        name: name of their segment or fleet.
        manifest: of a file set of one of them.
    """
    if _together(manifest) != name:  # a run that only tells about its member
        return ("states",)
    member = member_of(manifest)
    is_of_fleet = member is not None and member.fleet == name
    return ("dim_group", "samples", "events", "gaps", *(("states", "usage", "dim_client") if is_of_fleet else ()))


def shares_of_events(runs: Iterable[Sequence[Manifest]]) -> int:
    """Return the number of shares of the groups of runs, of which each has some millions of events."""
    return 1 + sum(one.last_seq - one.first_seq for manifests in runs for one in manifests) // EVENTS_AT_ONCE


class SharingRuns:
    """Runs that are compared with each other: the workers of one segment, or those of all members of a fleet.

    Args:
        name: name of the segment or fleet.
        runs: the file sets of each run, as `sharing_runs` groups them.

    Raises:
        BadInputError, IncompleteError: a file cannot be used.
    """

    def __init__(self, name: str, runs: Mapping[RunKey, Sequence[FileSet]]) -> None:
        its = {key: file_sets for key, file_sets in runs.items() if _together(file_sets[0].manifest) == name}
        self._file_sets = its
        self._workers = [run for key, file_sets in its.items() if (run := run_of(key, file_sets)) is not None]
        self._fleet = fleets_of(runs, [run for run in self._workers if not run.is_of_connections]).get(name)

    def judge(self, share: Share) -> Judged:
        """Compare the records that the runs have of each other's usage, in a share of the groups.

        Raises:
            BadInputError, IncompleteError: a file cannot be used.
        """
        judged = Judged({run.key: Findings() for run in self._workers})
        figures = judged.figures
        if share.number == 0:
            for segment in dict.fromkeys(run.segment for run in self._workers):
                _note_workers([run for run in self._workers if run.segment == segment and not run.is_of_connections], figures.shared)
        manifests = [one.manifest for file_sets in self._file_sets.values() for one in file_sets]
        history_ms = max((one.num_samples + 1) * one.window_ms for one in manifests)
        judge = None if self._fleet is None else FleetJudge(self._fleet, self._file_sets, judged.findings, history_ms)
        files = [(run, self._file_sets[run.key]) for run in self._workers]
        for histories in _alike(files, share, judged.findings, figures.shared):
            _judge_segments(histories, judged.findings, figures, history_ms)
            if judge is not None:
                judge.judge(histories)
        figures.fleet = None if judge is None else judge.result()
        for key, findings in judged.findings.items():
            for file_set in self._file_sets[key] if findings.first else ():
                judged.names.setdefault(key, {}).update(names_of(file_set, list(findings.first)))
        return judged


def add_shared(verdict: Verdict, runs: Mapping[RunKey, Sequence[FileSet]]) -> None:
    """Add the comparison of workers that share usage, and of the members of fleets, to a verdict.

    Args:
        verdict: the verdict.
        runs: the file sets of each run.

    Raises:
        BadInputError, IncompleteError: a file cannot be used.
    """
    figures: list[tuple[str, SharedFigures]] = []
    manifests = {key: [file_set.manifest for file_set in file_sets] for key, file_sets in runs.items()}
    for name, keys in sharing_runs(manifests).items():
        together = SharingRuns(name, {key: runs[key] for key in keys})
        shares = shares_of_events(manifests[key] for key in keys)
        for number in range(shares):
            judged = together.judge(Share(number, shares))
            verdict.add(judged.findings)
            for key, names in judged.names.items():
                verdict.names.setdefault(key, {}).update(names)
            figures.append((name, judged.figures))
    add_figures(verdict, figures)


def add_figures(verdict: Verdict, figures: Iterable[tuple[str, SharedFigures]]) -> None:
    """Add the figures of all runs that share usage to a verdict: the name of a segment or fleet, and those of each share of its groups."""
    by_name: dict[str, SharedFigures] = {}
    for name, one in figures:
        if name in by_name:
            by_name[name].merge(one)
        else:
            by_name[name] = one
    if not by_name:
        return
    shared, lags = SharedUsage(), Lags()
    for one in by_name.values():
        shared.merge(one.shared)
        lags.merge(one.lags)
    shared.compared, shared.lag_ms_p99, shared.lag_ms_max = lags.number, lags.within(99), lags.within(100)
    verdict.shared, verdict.fleets = shared, [one.fleet.result() for one in by_name.values() if one.fleet is not None]
    verdict.incomplete += shared.missing


def _note_workers(runs: Sequence[WorkerRun], result: SharedUsage) -> None:
    workers = {run.worker for run in runs}
    wanted = {number for run in runs for number in run.beside}
    result.workers += len(workers)
    result.missing += [f"worker {number} of those that share usage is in no file set" for number in sorted(wanted - workers)]


def _judge_segments(
    histories: Sequence[GroupHistory], findings: Mapping[RunKey, Findings], figures: SharedFigures, history_ms: int
) -> None:
    """Compare the workers of each segment in one group."""
    for segment in dict.fromkeys(history.run.segment for history in histories if not history.run.is_of_connections):
        its = [history for history in histories if history.run.segment == segment]
        _judge_group(its, findings, history_ms, figures.lags)
        check_union(its, findings)
        ratio = highest_ratio(its)
        if ratio is not None:
            figures.shared.highest_ratio = max(figures.shared.highest_ratio or 0.0, ratio)
        figures.shared.groups += 1


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
