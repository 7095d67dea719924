"""How much each member uses of each group: the factor of the groups' assumption, and the rates that are assumed during a silence.

Source: the formula of `proxy.shared_usage.assumption`. Usages are sums whose weights halve each `HALF_LIFE_MS`.
"""

from __future__ import annotations

from math import log
from typing import Final

import numpy as np
import numpy.typing as npt

from proxy.fleet.rows import FleetRows, Ints

Floats = npt.NDArray[np.float64]

HALF_LIFE_MS: Final = 3_000
RATE: Final = log(2.0) / HALF_LIFE_MS
"""Units per ms of a steady use, for each unit of its weighted sum."""
HEARD_MS: Final = 11_000
"""Time after its last usage during which a member counts as a user of a group."""
_SMALL: Final = 1e-3


class MemberUsage:
    """What one member uses of each group.

    Attributes:
        used: weighted sums of its usage.
        used_ms: time of its last usage; 0: never.
        advance: units that were assumed and recorded, and that it has not reported.
    """

    __slots__ = ("_has_advance", "advance", "used", "used_ms")

    def __init__(self, rows: int) -> None:
        self._has_advance = False
        self.used: Floats = np.zeros(rows)
        self.used_ms: Ints = np.zeros(rows, np.int64)
        self.advance: Ints = np.zeros(rows, np.int64)

    def is_user(self, rows: Ints, now_ms: int) -> npt.NDArray[np.bool_]:
        """Return whether it counts as a user of each group."""
        used_ms = self.used_ms[rows]
        return np.asarray((used_ms > 0) & (now_ms - used_ms <= HEARD_MS))

    def settle(self, rows: Ints, amounts: Ints) -> Ints:
        """Return the part of reported usage that was not assumed and recorded before."""
        if not self._has_advance:
            return amounts
        known = np.minimum(self.advance[rows], amounts)
        self.advance[rows] -= known
        return amounts - known

    def assume(self, rows: Ints, amounts: Ints, most: Ints) -> None:
        """Note units that were assumed and recorded; of each group at most `most` are kept."""
        self._has_advance = True
        self.advance[rows] = np.minimum(self.advance[rows] + amounts, most)


class Factors:
    """The usage of all groups of a segment by this member and by the others."""

    def __init__(self, rows: FleetRows) -> None:
        self._count = len(rows.generations)
        self._rows = rows
        self._own = MemberUsage(self._count)
        self._own_totals: Ints = np.zeros(self._count, np.int64)
        self._others: dict[int, MemberUsage] = {}
        self._updated_ms = 0

    def of(self, member: int) -> MemberUsage:
        """Return the usage of another member."""
        usage = self._others.get(member)
        if usage is None:
            usage = self._others[member] = MemberUsage(self._count)
        return usage

    def note_other(self, member: int, rows: Ints, amounts: Ints, now_ms: int) -> None:
        """Another member used `amounts` of these groups."""
        usage = self.of(member)
        usage.used_ms[rows] = now_ms
        usage.used[rows] += amounts

    def forget(self, member: int) -> None:
        """A member is gone."""
        self._others.pop(member, None)

    def release(self, rows: Ints) -> None:
        """These rows belong to other groups from now on."""
        for usage in (self._own, *self._others.values()):
            usage.used[rows] = 0.0
            usage.used_ms[rows] = usage.advance[rows] = 0
        self._rows.set_factors(rows, np.zeros(len(rows)))

    def update(self, now_ms: int) -> None:
        """Set the factors of all groups in use."""
        weight = 0.5 ** ((now_ms - self._updated_ms) / HALF_LIFE_MS)
        self._updated_ms = now_ms
        rows = self._rows.shared_rows()
        own = self._own.used[rows] * weight + self._own_amounts(rows)
        self._own.used[rows] = own
        users, others = np.zeros(len(rows)), np.zeros(len(rows))
        for usage in self._others.values():
            used = usage.used[rows] * weight
            usage.used[rows] = used
            others += used
            users += usage.is_user(rows, now_ms)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = others / own
        self._rows.set_factors(rows, np.where(own > _SMALL, np.minimum(users, ratio), users))

    def _own_amounts(self, rows: Ints) -> Ints:
        """Return what this member has used since the last call."""
        totals = self._rows.totals(rows)
        amounts: Ints = np.maximum(totals - self._own_totals[rows], 0)
        self._own_totals[rows] = totals
        return amounts

    def rates(self, member: int, heard_ms: int) -> tuple[Ints, Floats]:
        """Return the groups that a member used before it was heard last, and the rates at that time, in units per ms."""
        usage, shared = self.of(member), self._rows.shared_rows()
        rows = shared[usage.used[shared] > _SMALL]
        decayed_ms = max(0, self._updated_ms - heard_ms)
        return rows, usage.used[rows] * (RATE * 2.0 ** (decayed_ms / HALF_LIFE_MS))

    def own_rates(self, rows: Ints) -> Floats:
        """Return the rates of this member, in units per ms."""
        return np.asarray(self._own.used[rows] * RATE)
