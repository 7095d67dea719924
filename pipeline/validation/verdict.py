"""The verdict over all files: what was judged, what was found, and the files from which it can be recomputed."""

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
from pipeline.validation.file_set_verdict import FileSetVerdict
from pipeline.validation.rules.application import Observed
from pipeline.validation.rules.buckets import check_buckets
from pipeline.validation.rules.group_bits import number_of, united
from pipeline.validation.rules.long_run import LongRun, judge_run
from pipeline.validation.rules.settings import check_settings
from pipeline.validation.shared_usage import SharedUsage


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """What SQL says of all recorded waits.

    Attributes:
        left_out: so near to a bound or to half a millisecond that only the order of doubles tells, or beyond 24 days.
    """

    decisions: int
    differences: int
    left_out: int

    def __add__(self, other: "CrossCheck") -> "CrossCheck":
        return CrossCheck(self.decisions + other.decisions, self.differences + other.differences, self.left_out + other.left_out)


@dataclass(slots=True)
class Verdict:
    """Over all runs of a metering directory.

    Attributes:
        findings: by (proxy_id, run_id), since group numbers restart with each run.
        names: of groups by (proxy_id, run_id) and number, where something was found.
        unjudged: decisions that are there, too close behind a loss to be worked out again.
        removed: what retention removed, which is no loss.
        incomplete: what is known to be missing: gaps that the proxy reported, truncated file sets, runs without an end.
        manifests: SHA-256 of every manifest that was judged, by its path.
        long_runs: of each group whose rate could be looked at over a minute or more.
        cross_check: what SQL says, where it was asked.
        against_broker: throttle times of brokers beside Sluice's, by group, where it was asked.
        paced: long-run rates were held to those of a proxy that paces its groups.
        observed: waits that were decided where no client had to wait, since the mode, or a switch, was `observe`.
        shared: of workers that share usage, what they recorded of each other; None: none do.
    """

    decisions: int = 0
    unjudged: int = 0
    groups: int = 0
    replayed_exactly: int = 0
    dropped: int = 0
    findings: dict[RunKey, Findings] = field(default_factory=dict)
    names: dict[RunKey, dict[int, str]] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)
    manifests: dict[str, str] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    long_runs: list[LongRun] = field(default_factory=list)
    cross_check: CrossCheck | None = None
    against_broker: list[Compared] | None = None
    paced: bool = False
    observed: Observed = field(default_factory=Observed)
    shared: SharedUsage | None = None

    @property
    def violations(self) -> int:
        """Divergences of all kinds."""
        return sum(findings.total for findings in self.findings.values())

    @property
    def holds(self) -> bool:
        """Whether nothing that was asked found a difference."""
        return not (self.violations or self.objections)

    @property
    def word(self) -> str:
        """`exact`, `violations`, or `differences` where only other looks than the replay found some."""
        return "violations" if self.violations else "differences" if self.objections else "exact"

    @property
    def objections(self) -> list[str]:
        """What other looks than the replay found different."""
        in_sql = 0 if self.cross_check is None else self.cross_check.differences
        said = [f"{in_sql:,} waits differ in SQL"] if in_sql else []
        return said + ([f"the brokers throttle {counted(self.groups_apart, 'group')} otherwise"] if self.groups_apart else [])

    @property
    def groups_apart(self) -> int:
        """Groups that brokers throttle otherwise than Sluice."""
        return sum(one.verdict == APART for one in self.against_broker or ())

    def blames(self, key: RunKey) -> bool:
        """Whether a run is said to diverge; what SQL and brokers say otherwise is said of all runs."""
        return bool(self.objections) or (key in self.findings and self.findings[key].total > 0)

    @property
    def coverage_percent(self) -> float:
        """Decisions that are there, of all that were taken."""
        there = self.decisions + self.unjudged
        taken = there + self.dropped
        return 100.0 * there / taken if taken else 100.0

    def add(self, found: Mapping[RunKey, Findings]) -> None:
        """Take in what was found besides, by run."""
        for key, findings in found.items():
            self.findings.setdefault(key, Findings()).merge([findings])

    def kinds(self) -> dict[str, int]:
        """Divergences by kind."""
        kinds: dict[str, int] = {}
        for findings in self.findings.values():
            for kind, number in findings.counts.items():
                kinds[kind.value] = kinds.get(kind.value, 0) + number
        return kinds

    def name(self, key: RunKey, finding: Finding) -> str | None:
        """What people call the group of a finding; None: it is a file's, or unknown."""
        return self.names.get(key, {}).get(finding.group_ref)

    def first(self) -> list[tuple[RunKey, Finding]]:
        """The first divergence of each group, in decision order."""
        found = [(key, finding) for key, findings in self.findings.items() for finding in findings.first.values()]
        return sorted(found, key=lambda pair: (pair[0], pair[1].seq))

    def divergences(self, max_violations: int) -> list[Divergence]:
        """The first divergence of each group, with whose it is."""
        return [Divergence(key, self.name(key, finding), finding) for key, finding in self.first()[:max_violations]]

    def as_dict(self, max_violations: int) -> dict[str, Any]:
        """The verdict as plain data for JSON."""
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
                "mode": "paced" if self.paced else "kafka",
                "groups": len(self.long_runs),
                "highest_ratio": max((one.ratio for one in self.long_runs), default=None),
                "nearest_to_ceiling": max((one.ratio / one.allowed for one in self.long_runs), default=None),
            },
            "shared": None if self.shared is None else self.shared.as_dict(),
            "removed": self.removed,
            "incomplete": self.incomplete,
            "cross_check": None if self.cross_check is None else asdict(self.cross_check),
            "against_broker": None if self.against_broker is None else [asdict(one) for one in self.against_broker],
            "first_divergences": [divergence.as_row() for divergence in self.divergences(max_violations)],
            "manifests": self.manifests,
        }


def merge(
    file_sets: Mapping[RunKey, Sequence[tuple[Manifest, FileSetVerdict]]],
    hashes: Mapping[str, str],
    removed: Mapping[RunKey, int] | None = None,
    *,
    paced: bool = False,
) -> Verdict:
    """Put the verdicts of all file sets together; each run's file sets come in decision order.

    Args:
        removed: by run, the number of the last decision that retention removed.
        paced: hold long-run rates to those of a proxy that paces its groups.
    """
    verdict = Verdict(manifests=dict(hashes), paced=paced)
    for key, judged in file_sets.items():
        findings = verdict.findings[key] = Findings()
        findings.merge(file_set.findings for _, file_set in judged)
        long_runs, too_fast = judge_run((file_set.throttle_windows for _, file_set in judged), paced=paced)
        verdict.long_runs += long_runs.values()
        for finding in too_fast:
            findings.add(finding)
        check_buckets([(manifest, file_set.buckets) for manifest, file_set in judged], findings, is_whole=judged[0][0].first_seq == 0)
        check_settings([(manifest, file_set.states) for manifest, file_set in judged], findings)
        verdict.groups += number_of(united(file_set.groups for _, file_set in judged))
        for _, file_set in judged:
            verdict.names.setdefault(key, {}).update(file_set.names)
            verdict.decisions += file_set.decisions
            verdict.unjudged += file_set.unjudged
            verdict.replayed_exactly += file_set.replayed_exactly
            verdict.observed += file_set.observed
            for quota_type, count in file_set.counts.items():
                totals = verdict.counts.setdefault(quota_type, {"decisions": 0, "units": 0, "throttled": 0, "throttle_ms": 0})
                for name in totals:
                    totals[name] += getattr(count, name)
    completeness = completeness_of({key: [manifest for manifest, _ in judged] for key, judged in file_sets.items()}, removed or {})
    verdict.dropped = completeness.dropped
    verdict.removed += completeness.removed
    verdict.incomplete += completeness.incomplete + completeness.unfinished
    return verdict
