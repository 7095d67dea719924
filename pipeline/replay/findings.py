"""Divergences of metered decisions, by kind."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

WHOLE_FILE: Final = -1


class Kind(StrEnum):
    """Kinds of divergences."""

    MATH = "MATH"  # a rate, a sum or a throttle time differs from the recomputed value
    SEGMENT = "SEGMENT"  # the start or the end of a sample does not match its events
    MISSED = "MISSED"  # a throttle was due and was not decided
    SPURIOUS = "SPURIOUS"  # a throttle was decided and was not due
    EARLY = "EARLY"  # a request of a paced group passed before its schedule let it
    FAIR = "FAIR"  # a member of a paced group passed less than its share, while it wanted more
    CAP = "CAP"  # a throttle time exceeds its cap
    GAP = "GAP"  # decisions are missing or duplicated
    ORDER = "ORDER"  # time goes back
    BOUND = "BOUND"  # the bound is not the one in force
    GROUP = "GROUP"  # the group is not the one that the quota file gives
    SHARED = "SHARED"  # another worker's usage is missing, duplicated, or was never recorded by that worker
    STALE = "STALE"  # a worker decided without usage that another worker had recorded long before
    RATE = "RATE"  # the long-run rate exceeds the ceiling
    NOT_APPLIED = "NOT_APPLIED"  # a throttle was decided and not applied, or was applied in `observe`


@dataclass(frozen=True, slots=True)
class Finding:
    """One divergence.

    Attributes:
        group_ref: number of the group; `WHOLE_FILE` when it concerns no single group.
        seq: sequence number of the first decision concerned.
        ts_ms: wall-clock time of that decision.
        expected, recorded: the recomputed and the recorded value, as text, since kinds compare different types.
        evidence: the live samples that prove it, one line each.
    """

    kind: Kind
    group_ref: int
    seq: int
    ts_ms: int | None
    expected: str
    recorded: str
    what: str
    evidence: tuple[str, ...] = ()


@dataclass(slots=True)
class Findings:
    """The first divergence of each group, and the number of divergences by kind."""

    first: dict[int, Finding] = field(default_factory=dict)
    counts: dict[Kind, int] = field(default_factory=dict)

    def add(self, finding: Finding, number: int = 1) -> None:
        """Add a divergence that stands for `number` divergences of its kind in its group."""
        self.counts[finding.kind] = self.counts.get(finding.kind, 0) + number
        known = self.first.get(finding.group_ref)
        if known is None or finding.seq < known.seq:
            self.first[finding.group_ref] = finding

    def merge(self, others: Iterable["Findings"]) -> None:
        """Add the findings of other files."""
        for other in others:
            for kind, number in other.counts.items():
                self.counts[kind] = self.counts.get(kind, 0) + number
            for group_ref, finding in other.first.items():
                known = self.first.get(group_ref)
                if known is None or finding.seq < known.seq:
                    self.first[group_ref] = finding

    @property
    def total(self) -> int:
        """The number of divergences of all kinds."""
        return sum(self.counts.values())
