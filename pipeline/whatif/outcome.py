"""What a quota file would have done, group by group; outcomes of file sets and runs add up."""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from pipeline.replay.rows import Ints
from pipeline.whatif.groups import Group


class Waits(msgspec.Struct):
    """How many decisions had to wait how long, exactly: lengths in ms and their numbers, ascending."""

    lengths: list[int] = []
    numbers: list[int] = []

    @classmethod
    def of(cls, throttle_ms: Ints) -> "Waits":
        """Count the waits above 0."""
        lengths, numbers = np.unique(throttle_ms[throttle_ms > 0], return_counts=True)
        return cls(lengths.tolist(), numbers.tolist())

    @property
    def number(self) -> int:
        """How many decisions waited."""
        return sum(self.numbers)

    @property
    def total_ms(self) -> int:
        """All waits together."""
        return sum(length * number for length, number in zip(self.lengths, self.numbers, strict=True))

    @property
    def max_ms(self) -> int:
        """The longest wait, 0 without any."""
        return self.lengths[-1] if self.lengths else 0

    def percentile_ms(self, percent: float) -> int:
        """Return the smallest length that so many percent of the waits do not exceed."""
        if not self.lengths:
            return 0
        reached = np.cumsum(self.numbers)
        return self.lengths[int(np.searchsorted(reached, percent / 100 * reached[-1], side="left"))]

    def plus(self, other: "Waits") -> "Waits":
        """Add what another file set gave."""
        together = dict(zip(self.lengths, self.numbers, strict=True))
        for length, number in zip(other.lengths, other.numbers, strict=True):
            together[length] = together.get(length, 0) + number
        lengths = sorted(together)
        return Waits(lengths, [together[length] for length in lengths])


class Outcome(msgspec.Struct):
    """Of one group under one quota file.

    Attributes:
        bound: the proposed one; None: as recorded.
        bound_today: the last that was in force; of several groups together, the sum.
        recorded: the waits of the record.
        waits: those under the quota file.
        units_sent, units_offered: mode `closed` only: by the end of the record, and in all.
        groups: recorded groups that are one under the quota file.
        is_certain: False when members would part that the record does not tell apart.
        knows_connections: False when a group was played as one connection.
    """

    group: Group
    bound: float | None
    bound_today: float
    decisions: int
    units: int
    recorded: Waits
    waits: Waits
    units_sent: int = 0
    units_offered: int = 0
    groups: int = 1
    is_certain: bool = True
    knows_connections: bool = True

    def plus(self, other: "Outcome") -> "Outcome":
        """Add what a later file set or another run gave."""
        return Outcome(
            self.group,
            other.bound,
            other.bound_today,
            self.decisions + other.decisions,
            self.units + other.units,
            self.recorded.plus(other.recorded),
            self.waits.plus(other.waits),
            self.units_sent + other.units_sent,
            self.units_offered + other.units_offered,
            max(self.groups, other.groups),
            self.is_certain and other.is_certain,
            self.knows_connections and other.knows_connections,
        )


Outcomes = dict[Group, Outcome]


def add_up(parts: Iterable[Sequence[Outcome]]) -> Outcomes:
    """Add outcomes by group, in the order in which they come."""
    total: Outcomes = {}
    for part in parts:
        for outcome in part:
            known = total.get(outcome.group)
            total[outcome.group] = outcome if known is None else known.plus(outcome)
    return total
