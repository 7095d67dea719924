"""Applies the rules over whole runs to the verdicts of their file sets, in decision order.

The memory grows with the groups, not with the file sets. Groups do not depend on each other, so a run can be judged in shares of its
groups, each on its own core: the results of all shares add up to that of the run.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from metering_format.manifest import Manifest
from pipeline.replay.findings import WHOLE_FILE, Findings
from pipeline.validation.file_set_verdict import FileSetVerdict
from pipeline.validation.rules.application import Observed
from pipeline.validation.rules.group_bits import GroupBits
from pipeline.validation.rules.long_run import paced_windows_in
from pipeline.validation.rules.settings import RunSettings
from pipeline.validation.rules.whole_run.balances import Breaks, RunBalances
from pipeline.validation.rules.whole_run.rates import LongRuns, RunRates


class JudgedFileSet(msgspec.Struct, frozen=True):
    """The verdict of a file set in its run.

    Attributes:
        position: its position in the run.
        breaks: number of losses before it in the run, as `Breaks` counts them.
        manifest: without its files and totals; None: in all shares of groups but the first.
        verdict: of all groups, or of a share of them.
    """

    position: int
    breaks: int
    manifest: Manifest | None
    verdict: FileSetVerdict


@dataclass(slots=True)
class RunVerdict:
    """The result of a run, or of a share of its groups.

    Attributes:
        file_sets: number of file sets.
        groups: number of groups with decisions.
        findings: the first divergence of each group.
        names: display names of groups with findings, by group number.
    """

    file_sets: int = 0
    decisions: int = 0
    unjudged: int = 0
    replayed_exactly: int = 0
    groups: int = 0
    observed: Observed = field(default_factory=Observed)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    long_runs: LongRuns = field(default_factory=LongRuns)
    findings: Findings = field(default_factory=Findings)
    names: dict[int, str] = field(default_factory=dict)


def shares_of(judged: JudgedFileSet, number: int) -> Iterator[tuple[int, JudgedFileSet]]:
    """Divide the groups of a file set into a number of shares; yield each with its number.

    The first share has what concerns all groups. Others without a group of interest are left out.
    """
    whole = judged.verdict
    parts = [FileSetVerdict(whole.file_set) for _ in range(number)]
    parts[0] = replace(whole, findings=Findings(counts=whole.findings.counts), throttle_windows={}, paced_windows=b"", buckets={}, names={})
    for ref, finding in whole.findings.first.items():
        parts[share_of(ref, number)].findings.first[ref] = finding
    for ref, throttle_window in whole.throttle_windows.items():
        parts[share_of(ref, number)].throttle_windows[ref] = throttle_window
    paced = paced_windows_in(whole.paced_windows)
    shares = paced["group_ref"] % number
    for share in np.unique(shares).tolist():
        parts[share].paced_windows = paced[shares == share].tobytes()
    for ref, ends in whole.buckets.items():
        parts[share_of(ref, number)].buckets[ref] = ends
    for ref, name in whole.names.items():
        parts[share_of(ref, number)].names[ref] = name
    for share, part in enumerate(parts):
        if share == 0 or part.findings.first or part.throttle_windows or part.paced_windows or part.buckets:
            yield share, JudgedFileSet(judged.position, judged.breaks, judged.manifest if share == 0 else None, part)


def share_of(ref: int, number: int) -> int:
    """Return the share of a group; that of whole files is the first one."""
    return 0 if ref == WHOLE_FILE else ref % number


class WholeRun:
    """A run, or a share of its groups, whose file sets are added in order."""

    def __init__(self) -> None:
        self._result = RunVerdict()
        self._names: dict[int, str] = {}
        self._groups = GroupBits()
        self._rates, self._balances, self._settings = RunRates(), RunBalances(), RunSettings()
        self._later: list[Findings] = []

    def add(self, judged: JudgedFileSet) -> None:
        """Add the next file set."""
        result, verdict = self._result, judged.verdict
        result.findings.merge([verdict.findings])
        self._rates.add(judged.position, verdict.throttle_windows, paced_windows_in(verdict.paced_windows))
        self._balances.add(judged.breaks, verdict.buckets)
        self._names.update(verdict.names)
        if judged.manifest is not None:
            self._settings.add(judged.manifest, verdict.states)
            self._groups.add(verdict.groups)
            result.file_sets += 1
            _add_sums(result, verdict)

    def add_later(self, findings: Findings, names: dict[int, str]) -> None:
        """Add what other checks found in the run, after the rules over whole runs; with names of groups."""
        self._later.append(findings)
        self._names.update(names)

    def result(self) -> RunVerdict:
        """Return the result, after the last file set."""
        result = self._result
        result.groups = self._groups.number
        result.long_runs, too_fast = self._rates.result()
        for finding in too_fast:
            result.findings.add(finding)
        result.findings.merge([self._balances.findings, self._settings.findings, *self._later])
        result.names = {ref: self._names[ref] for ref in result.findings.first if ref in self._names}
        return result


def _add_sums(result: RunVerdict, verdict: FileSetVerdict) -> None:
    result.decisions += verdict.decisions
    result.unjudged += verdict.unjudged
    result.replayed_exactly += verdict.replayed_exactly
    result.observed += verdict.observed
    for quota_type, count in verdict.counts.items():
        totals = result.counts.setdefault(quota_type, {"decisions": 0, "units": 0, "throttled": 0, "throttle_ms": 0})
        for name in totals:
            totals[name] += getattr(count, name)


def judge_whole_run(judged: Iterable[tuple[Manifest, FileSetVerdict]], *more: Findings) -> RunVerdict:
    """Return the result of a run, of whose file sets one is in memory at a time.

    Args:
        judged: manifest and verdict of each file set, in decision order.
        more: what other checks found.
    """
    run, breaks = WholeRun(), Breaks()
    for position, (manifest, verdict) in enumerate(judged):
        run.add(JudgedFileSet(position, breaks.before(manifest), manifest, verdict))
    for findings in more:
        run.add_later(findings, {})
    return run.result()
