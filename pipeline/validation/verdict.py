"""The verdict over all files: what was judged, what was found, and the hashes of the files that it follows from."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from metering_format.manifest import Manifest
from pipeline.completeness import completeness_of
from pipeline.manifest import RunKey
from pipeline.replay.findings import Finding, Findings
from pipeline.text import counted
from pipeline.validation.against_broker import APART, Compared
from pipeline.validation.divergence import Divergence
from pipeline.validation.fleet import FleetUsage
from pipeline.validation.rules.application import Observed
from pipeline.validation.rules.whole_run.rates import LongRuns
from pipeline.validation.shared_usage import SharedUsage
from pipeline.validation.whole_run import RunVerdict


@dataclass(slots=True)
class Verdict:
    """The verdict over all runs of a metering directory.

    Attributes:
        findings: by (proxy_id, run_id), since group numbers restart with each run.
        further_groups: number of groups with divergences whose first one is not in `findings`: Spark returns those that are printed.
        names: display names of groups with findings, by (proxy_id, run_id) and group number.
        unjudged: number of decisions that are too close after a loss to be recomputed.
        removed: file sets that retention removed, one line each; they are not losses.
        incomplete: known losses, one line each: gaps that the proxy reported, truncated file sets, runs without an end.
        manifests: SHA-256 of every judged manifest, by its path.
        long_runs: long-run rates of the groups that were active for a minute or more.
        against_broker: the comparison with the brokers' throttle times by group, when requested.
        observed: throttles that were decided without effect on a client, because the mode or a switch was `observe`.
        shared: figures about workers that share usage; None when no workers do.
        fleets: figures about each fleet of which there are files.
    """

    decisions: int = 0
    unjudged: int = 0
    groups: int = 0
    replayed_exactly: int = 0
    dropped: int = 0
    findings: dict[RunKey, Findings] = field(default_factory=dict)
    further_groups: int = 0
    names: dict[RunKey, dict[int, str]] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)
    manifests: dict[str, str] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    long_runs: LongRuns = field(default_factory=LongRuns)
    against_broker: list[Compared] | None = None
    observed: Observed = field(default_factory=Observed)
    shared: SharedUsage | None = None
    fleets: list[FleetUsage] = field(default_factory=list)

    @property
    def violations(self) -> int:
        """The number of divergences of all kinds."""
        return sum(findings.total for findings in self.findings.values())

    @property
    def holds(self) -> bool:
        """Whether no requested check found a difference."""
        return not (self.violations or self.objections)

    @property
    def word(self) -> str:
        """`exact`, `violations`, or `differences` when only checks other than the replay found differences."""
        return "violations" if self.violations else "differences" if self.objections else "exact"

    @property
    def objections(self) -> list[str]:
        """Differences that checks other than the replay found, one line for each check."""
        return [f"the brokers throttle {counted(self.groups_apart, 'group')} otherwise"] if self.groups_apart else []

    @property
    def groups_apart(self) -> int:
        """The number of groups for which brokers' throttle times differ from Sluice's."""
        return sum(one.verdict == APART for one in self.against_broker or ())

    def concerns(self, key: RunKey) -> bool:
        """Whether a run has divergences. Differences of brokers concern all runs."""
        return bool(self.objections) or (key in self.findings and self.findings[key].total > 0)

    @property
    def coverage_percent(self) -> float:
        """Percentage of the decisions taken that are present."""
        there = self.decisions + self.unjudged
        taken = there + self.dropped
        return 100.0 * there / taken if taken else 100.0

    def add(self, found: Mapping[RunKey, Findings]) -> None:
        """Add further findings, by run."""
        for key, findings in found.items():
            self.findings.setdefault(key, Findings()).merge([findings])

    def kinds(self) -> dict[str, int]:
        """Return the number of divergences by kind."""
        kinds: dict[str, int] = {}
        for findings in self.findings.values():
            for kind, number in findings.counts.items():
                kinds[kind.value] = kinds.get(kind.value, 0) + number
        return kinds

    def name(self, key: RunKey, finding: Finding) -> str | None:
        """Return the display name of a finding's group; None when it concerns a whole file, or the name is unknown."""
        return self.names.get(key, {}).get(finding.group_ref)

    def first(self) -> list[tuple[RunKey, Finding]]:
        """Return the first divergence of each group, in decision order."""
        found = [(key, finding) for key, findings in self.findings.items() for finding in findings.first.values()]
        return sorted(found, key=lambda pair: (pair[0], pair[1].seq, pair[1].group_ref))

    @property
    def groups_with_divergences(self) -> int:
        """The number of groups that have divergences, where those of whole files are a group of each run."""
        return sum(len(findings.first) for findings in self.findings.values()) + self.further_groups

    def divergences(self, max_violations: int) -> list[Divergence]:
        """Return the first divergence of each group with its run and display name."""
        return [Divergence(key, self.name(key, finding), finding) for key, finding in self.first()[:max_violations]]

    def as_dict(self, max_violations: int) -> dict[str, Any]:
        """Return the verdict as plain data for JSON."""
        return {
            "verdict": self.word,
            "decisions": self.decisions,
            "unjudged_after_losses": self.unjudged,
            "groups": self.groups,
            "replayed_exactly": self.replayed_exactly,
            "coverage_percent": self.coverage_percent,
            "dropped_decisions": self.dropped,
            "violations": self.violations,
            "kinds": self.kinds(),
            "counts": self.counts,
            "would_have_waited": self.observed._asdict(),
            "long_run": {
                "groups": self.long_runs.groups,
                "paced_groups": self.long_runs.paced_groups,
                "highest_ratio": None if self.long_runs.highest is None else self.long_runs.highest.ratio,
                "nearest_to_ceiling": self.long_runs.nearest_to_ceiling,
            },
            "shared": None if self.shared is None else self.shared.as_dict(),
            "fleets": [fleet.as_dict() for fleet in self.fleets],
            "removed": self.removed,
            "incomplete": self.incomplete,
            "against_broker": None if self.against_broker is None else [asdict(one) for one in self.against_broker],
            "first_divergences": [divergence.as_row() for divergence in self.divergences(max_violations)],
            "manifests": self.manifests,
        }


def add_run(verdict: Verdict, key: RunKey, run: RunVerdict) -> None:
    """Add the result of a run, or of a share of its groups, without the completeness of the run."""
    verdict.add({key: run.findings})
    verdict.names.setdefault(key, {}).update(run.names)
    verdict.decisions += run.decisions
    verdict.unjudged += run.unjudged
    verdict.groups += run.groups
    verdict.replayed_exactly += run.replayed_exactly
    verdict.observed += run.observed
    verdict.long_runs.merge(run.long_runs)
    for quota_type, count in run.counts.items():
        totals = verdict.counts.setdefault(quota_type, dict.fromkeys(count, 0))
        for name, number in count.items():
            totals[name] += number


def add_completeness(verdict: Verdict, runs: Mapping[RunKey, Sequence[Manifest]], removed: Mapping[RunKey, int]) -> None:
    """Add the losses of runs.

    Args:
        runs: the manifests of each run, in decision order.
        removed: sequence number of the last decision that retention removed, by run.
    """
    completeness = completeness_of(runs, removed)
    verdict.dropped = completeness.dropped
    verdict.removed += completeness.removed
    verdict.incomplete += completeness.incomplete + completeness.unfinished
