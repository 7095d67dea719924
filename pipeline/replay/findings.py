"""Divergences of metered decisions, by kind."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

WHOLE_FILE: Final = -1


class Kind(StrEnum):
    """Kinds of violations."""

    MATH = "MATH"  # a rate, a sum or a wait is another number than the samples give
    SEGMENT = "SEGMENT"  # a sample begins or ends elsewhere than at its events
    MISSED = "MISSED"  # a wait was due and none was taken
    SPURIOUS = "SPURIOUS"  # a wait was taken and none was due
    CAP = "CAP"  # a wait longer than its cap
    GAP = "GAP"  # decisions are missing, or there twice
    ORDER = "ORDER"  # time goes back
    BOUND = "BOUND"  # not the bound in force
    GROUP = "GROUP"  # not the group that the quota file gives
    SHARED = "SHARED"  # of usage that another worker recorded something is missing, there twice, or was never recorded there
    STALE = "STALE"  # a worker decided without usage that another one had recorded long before
    RATE = "RATE"  # the long-run rate is above the ceiling
    NOT_APPLIED = "NOT_APPLIED"  # decided, and not done: or done in `observe`


@dataclass(frozen=True, slots=True)
class Finding:
    """One divergence.

    Attributes:
        group_ref: of the group; `WHOLE_FILE` when it belongs to no single group.
        seq: number of the first decision concerned.
        ts_ms: when it was taken, wall clock.
        expected, recorded: the recomputed value, and that of the file; text, since kinds compare different values.
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
    """The first divergence of each group, and how many followed it, by kind."""

    first: dict[int, Finding] = field(default_factory=dict)
    counts: dict[Kind, int] = field(default_factory=dict)

    def add(self, finding: Finding, number: int = 1) -> None:
        """Take in a divergence that stands for `number` of its kind in its group."""
        self.counts[finding.kind] = self.counts.get(finding.kind, 0) + number
        known = self.first.get(finding.group_ref)
        if known is None or finding.seq < known.seq:
            self.first[finding.group_ref] = finding

    def merge(self, others: Iterable["Findings"]) -> None:
        """Take in what other files gave."""
        for other in others:
            for kind, number in other.counts.items():
                self.counts[kind] = self.counts.get(kind, 0) + number
            for group_ref, finding in other.first.items():
                known = self.first.get(group_ref)
                if known is None or finding.seq < known.seq:
                    self.first[group_ref] = finding

    @property
    def total(self) -> int:
        """How many divergences of all kinds."""
        return sum(self.counts.values())
