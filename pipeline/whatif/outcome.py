"""The outcome of a quota file by group. Outcomes of file sets and runs can be added."""

import itertools
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from pipeline.replay.rows import Ints
from pipeline.whatif.groups import Group


class Waits(msgspec.Struct):
    """Exact counts of waits: distinct lengths in ms, ascending, and the number of decisions of each."""

    lengths: list[int] = []
    numbers: list[int] = []

    @classmethod
    def of(cls, throttle_ms: Ints) -> "Waits":
        """Count the waits above 0."""
        lengths, numbers = np.unique(throttle_ms[throttle_ms > 0], return_counts=True)
        return cls(lengths.tolist(), numbers.tolist())

    @property
    def number(self) -> int:
        """Number of decisions with a wait."""
        return sum(self.numbers)

    @property
    def total_ms(self) -> int:
        """Sum of all waits."""
        return sum(length * number for length, number in zip(self.lengths, self.numbers, strict=True))

    @property
    def max_ms(self) -> int:
        """The longest wait, 0 without any."""
        return self.lengths[-1] if self.lengths else 0

    def percentile_ms(self, percent: float) -> int:
        """Return a percentile: the smallest length that `percent` of the waits do not exceed."""
        if not self.lengths:
            return 0
        reached = np.cumsum(self.numbers)
        return self.lengths[int(np.searchsorted(reached, percent / 100 * reached[-1], side="left"))]

    @classmethod
    def total(cls, parts: "Sequence[Waits]") -> "Waits":
        """Return the sum of several counts."""
        parts = [part for part in parts if part.lengths]
        if len(parts) < 2:
            return parts[0] if parts else cls()
        each = np.fromiter(itertools.chain.from_iterable(part.lengths for part in parts), np.int64)
        weights = np.fromiter(itertools.chain.from_iterable(part.numbers for part in parts), np.int64)
        lengths, at = np.unique(each, return_inverse=True)
        return cls(lengths.tolist(), np.bincount(at, weights=weights).astype(np.int64).tolist())


class Outcome(msgspec.Struct):
    """The outcome of one group under one quota file.

    Attributes:
        bound: bound under the quota file; None when it stays as recorded.
        bound_today: last bound in force; for several recorded groups, the sum.
        recorded: waits in the record.
        waits: waits under the quota file.
        units_sent, units_offered: mode `closed` only: units sent by the end of the record, and in total.
        groups: number of recorded groups that this group replaces.
        is_certain: False when the file would split a group's members, and the record cannot separate them.
        moves: clients would be in another group with another bound; their decisions stay in this group.
        knows_connections: False when a whole group was played as one connection.
        knows_requests: False when requests pass that were refused in the record, which has only their first topic.
        paced_today, paced: whether a schedule enforces the group, in the record and in the replay.
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
    moves: bool = False
    knows_connections: bool = True
    knows_requests: bool = True
    paced_today: bool = False
    paced: bool = False

    @classmethod
    def total(cls, parts: "Sequence[Outcome]") -> "Outcome":
        """Return the sum of outcomes in order; the last outcome gives the bounds."""
        last = parts[-1]
        return cls(
            last.group,
            last.bound,
            last.bound_today,
            sum(part.decisions for part in parts),
            sum(part.units for part in parts),
            Waits.total([part.recorded for part in parts]),
            Waits.total([part.waits for part in parts]),
            sum(part.units_sent for part in parts),
            sum(part.units_offered for part in parts),
            max(part.groups for part in parts),
            all(part.is_certain for part in parts),
            any(part.moves for part in parts),
            all(part.knows_connections for part in parts),
            all(part.knows_requests for part in parts),
            last.paced_today,
            last.paced,
        )


Outcomes = dict[Group, Outcome]


def add_up(parts: Iterable[Sequence[Outcome]]) -> Outcomes:
    """Return the sum of outcomes by group, in order."""
    found: dict[Group, list[Outcome]] = {}
    for part in parts:
        for outcome in part:
            found.setdefault(outcome.group, []).append(outcome)
    return {group: Outcome.total(own) for group, own in found.items()}
