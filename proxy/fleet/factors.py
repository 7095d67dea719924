"""How much each member uses of each group: the factor of the groups' assumption, and the rates that are assumed during a silence.

Source: the formula of `proxy.shared_usage.assumption`. Usages are sums whose weights halve each `HALF_LIFE_MS`. Rates are averages over a
longer time: clients at their bound stop and go with the period of the window.
"""

from __future__ import annotations

from math import log
from typing import Final

import numpy as np
import numpy.typing as npt

from proxy.fleet.rows import FleetRows, Ints

Floats = npt.NDArray[np.float64]

HALF_LIFE_MS: Final = 3_000
RATE_HALF_LIFE_MS: Final = 8_000
RATE: Final = log(2.0) / RATE_HALF_LIFE_MS
"""Units per ms of a steady use, for each unit of its weighted sum with `RATE_HALF_LIFE_MS`."""
HEARD_MS: Final = 11_000
"""Time after its last usage during which a member counts as a user of a group."""
_SMALL: Final = 1e-3


class MemberUsage:
    """What one member uses of each group.

    Attributes:
        total: its usage since it was heard first.
        used, long: weighted sums of its usage, with `HALF_LIFE_MS` and with `RATE_HALF_LIFE_MS`.
        used_ms: time of its last usage; 0: never.
        advance: units that were assumed and recorded, and that it has not reported.
    """

    __slots__ = ("_has_advance", "_seen", "advance", "long", "total", "used", "used_ms")

    def __init__(self, rows: int) -> None:
        self._has_advance = False
        self.total: Ints = np.zeros(rows, np.int64)
        self._seen: Ints = np.zeros(rows, np.int64)
        self.used: Floats = np.zeros(rows)
        self.long: Floats = np.zeros(rows)
        self.used_ms: Ints = np.zeros(rows, np.int64)
        self.advance: Ints = np.zeros(rows, np.int64)

    def decay(self, rows: Ints, elapsed_ms: int) -> Floats:
        """Add what was used since the last call to the sums of these groups; return `used`."""
        total = self.total[rows]
        amounts = total - self._seen[rows]
        self._seen[rows] = total
        used = self.used[rows] * 0.5 ** (elapsed_ms / HALF_LIFE_MS) + amounts
        self.used[rows] = used
        self.long[rows] = self.long[rows] * 0.5 ** (elapsed_ms / RATE_HALF_LIFE_MS) + amounts
        return np.asarray(used)

    def clear(self, rows: Ints) -> None:
        """These rows belong to other groups from now on."""
        self.used[rows] = self.long[rows] = 0.0
        self.used_ms[rows] = self.advance[rows] = 0
        self._seen[rows] = self.total[rows]

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
        usage.total[rows] += amounts

    def forget(self, member: int) -> None:
        """A member is gone."""
        self._others.pop(member, None)

    def release(self, rows: Ints) -> None:
        """These rows belong to other groups from now on."""
        for usage in (self._own, *self._others.values()):
            usage.clear(rows)
        self._rows.set_factors(rows, np.zeros(len(rows)))

    def update(self, now_ms: int) -> None:
        """Set the factors of all groups in use."""
        elapsed_ms = now_ms - self._updated_ms
        self._updated_ms = now_ms
        rows = self._rows.shared_rows()
        self._own.total[rows] = self._rows.totals(rows)
        own = np.maximum(self._own.decay(rows, elapsed_ms), 0.0)
        users, others = np.zeros(len(rows)), np.zeros(len(rows))
        for usage in self._others.values():
            others += usage.decay(rows, elapsed_ms)
            users += usage.is_user(rows, now_ms)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = others / own
        self._rows.set_factors(rows, np.where(own > _SMALL, np.minimum(users, ratio), users))

    def rates(self, member: int, heard_ms: int) -> tuple[Ints, Floats]:
        """Return the groups that a member used before it was heard last, and the rates at that time, in units per ms."""
        usage, shared = self.of(member), self._rows.shared_rows()
        rows = shared[usage.long[shared] > _SMALL]
        decayed_ms = max(0, self._updated_ms - heard_ms)
        return rows, usage.long[rows] * (RATE * 2.0 ** (decayed_ms / RATE_HALF_LIFE_MS))

    def own_rates(self, rows: Ints) -> Floats:
        """Return the rates of this member, in units per ms."""
        return np.asarray(self._own.long[rows] * RATE)
