"""How much the other members use of each group for each unit that this member uses: the factor of the groups' assumption.

Source: the formula of `proxy.shared_usage.assumption`. Both usages are averages whose weights halve each `HALF_LIFE_MS`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from proxy.fleet.rows import FleetRows, Ints

HALF_LIFE_MS: Final = 3_000
HEARD_MS: Final = 11_000
"""Time after its last usage during which a member counts as a user of a group."""
_SMALL: Final = 1e-3


class Factors:
    """The usage of all groups of a segment by this member and by the others."""

    def __init__(self, rows: FleetRows) -> None:
        count = len(rows.generations)
        self._rows = rows
        self._own: npt.NDArray[np.float64] = np.zeros(count)
        self._others: npt.NDArray[np.float64] = np.zeros(count)
        self._used_ms: dict[int, Ints] = {}
        self._updated_ms = 0

    def note_own(self, rows: Ints, amounts: Ints) -> None:
        """This member used `amounts` of these groups."""
        self._own[rows] += np.maximum(amounts, 0)

    def note_other(self, member: int, rows: Ints, amounts: Ints, now_ms: int) -> None:
        """Another member used `amounts` of these groups."""
        used_ms = self._used_ms.get(member)
        if used_ms is None:
            used_ms = self._used_ms[member] = np.full(len(self._own), -HEARD_MS, np.int64)
        used_ms[rows] = now_ms
        self._others[rows] += amounts

    def forget(self, member: int) -> None:
        """A member is gone."""
        self._used_ms.pop(member, None)

    def release(self, rows: Ints) -> None:
        """These rows belong to other groups from now on."""
        self._own[rows] = self._others[rows] = 0.0
        for used_ms in self._used_ms.values():
            used_ms[rows] = -HEARD_MS
        self._rows.set_factors(rows, np.zeros(len(rows)))

    def update(self, now_ms: int) -> None:
        """Set the factors of all groups in use."""
        own, others = self._own, self._others
        active = np.flatnonzero((own > 0.0) | (others > 0.0))
        weight = 0.5 ** ((now_ms - self._updated_ms) / HALF_LIFE_MS)
        self._updated_ms = now_ms
        own[active] *= weight
        others[active] *= weight
        over = active[(own[active] < _SMALL) & (others[active] < _SMALL)]
        own[over] = others[over] = 0.0
        users = np.zeros(len(active))
        for used_ms in self._used_ms.values():
            users += now_ms - used_ms[active] <= HEARD_MS
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = others[active] / own[active]
        self._rows.set_factors(active, np.where(own[active] > 0.0, np.minimum(users, ratio), users))
