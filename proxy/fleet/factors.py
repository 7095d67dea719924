"""How much each member uses of each group: the factor of the groups' assumption, and the rates that are assumed during a silence.

Source: the formula of `proxy.shared_usage.assumption`. Usages are sums whose weights halve each `HALF_LIFE_MS`. Rates are averages over a
longer time: clients at their bound stop and go with the period of the window.

Instead of all sums becoming smaller, what is added to them becomes larger with time (`Weight`). Arrays are by place (`Places`).
"""

from __future__ import annotations

from math import log
from typing import Final

import numpy as np
import numpy.typing as npt

from proxy.fleet.rows import FleetRows, Ints, Places

Floats = npt.NDArray[np.float64]

HALF_LIFE_MS: Final = 3_000
RATE_HALF_LIFE_MS: Final = 8_000
RATE: Final = log(2.0) / RATE_HALF_LIFE_MS
"""Units per ms of a steady use, for each unit of its weighted sum with `RATE_HALF_LIFE_MS`."""
HEARD_MS: Final = 25_000
"""Time after its last usage during which a member counts as a user of a group. A group whose window is full may have no usage for 11 s."""
AT_BOUND: Final = 0.85
"""Part of a bound above which the rates of all members count as the bound."""
HALF_LIVES_MAX: Final = 200
"""Half-lives after which weights begin with 1 again. A process may have been stopped for much longer."""
_EXPONENT_MAX: Final = 1_000
_SMALL: Final = 1e-3


class Weight:
    """The weight of what is added to sums at a time; it doubles in each half-life."""

    def __init__(self, half_life_ms: int) -> None:
        self._half_life_ms = half_life_ms
        self._begin_ms: int | None = None

    def at(self, time_ms: int) -> float:
        """Return the weight; the first call begins the time with weight 1."""
        if self._begin_ms is None:
            self._begin_ms = time_ms
        return float(2.0 ** min(_EXPONENT_MAX, (time_ms - self._begin_ms) / self._half_life_ms))

    def less(self, time_ms: int) -> float | None:
        """Let the weight be about 1 again if it is large; return the number by which the sums are to be multiplied, a power of two."""
        half_lives = 0 if self._begin_ms is None else (time_ms - self._begin_ms) // self._half_life_ms
        if self._begin_ms is None or half_lives <= HALF_LIVES_MAX:
            return None
        self._begin_ms += half_lives * self._half_life_ms
        return float(2.0**-half_lives)


class MemberUsage:
    """What one other member uses of each group.

    Attributes:
        fresh: its usage since the last update.
        long: weighted sums of its usage, with `RATE_HALF_LIFE_MS`.
        used_ms: time of its last usage; 0: never.
        advance: units that were assumed and recorded, and that it has not reported.
    """

    __slots__ = ("_has_advance", "advance", "fresh", "long", "used_ms")

    def __init__(self, places: int) -> None:
        self._has_advance = False
        self.fresh: Ints = np.zeros(places, np.int64)
        self.long: Floats = np.zeros(places)
        self.used_ms: Ints = np.zeros(places, np.int64)
        self.advance: Ints = np.zeros(places, np.int64)

    def clear(self, places: Ints) -> None:
        """These places belong to other groups from now on."""
        self.long[places] = 0.0
        self.fresh[places] = self.used_ms[places] = self.advance[places] = 0

    def settle(self, places: Ints, amounts: Ints) -> Ints:
        """Return the part of reported usage that was not assumed and recorded before."""
        if not self._has_advance:
            return amounts
        known = np.minimum(self.advance[places], amounts)
        self.advance[places] -= known
        return amounts - known

    def assume(self, places: Ints, amounts: Ints, most: Ints) -> None:
        """Note units that were assumed and recorded; of each group at most `most` are kept."""
        self._has_advance = True
        self.advance[places] = np.minimum(self.advance[places] + amounts, most)


class Factors:
    """The usage of the groups that other members use, by this member and by the others."""

    def __init__(self, rows: FleetRows, places: Places) -> None:
        self._count = len(rows.generations)
        self._rows = rows
        self._places = places
        self._short, self._long = Weight(HALF_LIFE_MS), Weight(RATE_HALF_LIFE_MS)
        self._own_seen: Ints = np.zeros(self._count, np.int64)
        self._own_used: Floats = np.zeros(self._count)
        self._own_long: Floats = np.zeros(self._count)
        self._others_used: Floats = np.zeros(self._count)
        self._others: dict[int, MemberUsage] = {}
        self._updated_ms = 0

    def of(self, member: int) -> MemberUsage:
        """Return the usage of another member."""
        usage = self._others.get(member)
        if usage is None:
            usage = self._others[member] = MemberUsage(self._count)
        return usage

    def begin(self, place: int, now_ms: int) -> None:
        """A group has got this place: note what this member used of it in the last windows."""
        row = int(self._places.rows[place])
        self._own_seen[place] = self._rows.totals(self._places.rows[place : place + 1])[0]
        used = long = 0.0
        for start_ms, amount in self._rows.own_slots(row):
            at_ms = min(now_ms, start_ms + self._rows.segment.slot_ms // 2)
            used += amount * self._short.at(at_ms)
            long += amount * self._long.at(at_ms)
        self._own_used[place], self._own_long[place] = used, long

    def forget(self, member: int) -> None:
        """A member is gone."""
        self._others.pop(member, None)

    def release(self, places: Ints) -> None:
        """These places belong to other groups from now on."""
        for usage in self._others.values():
            usage.clear(places)
        self._own_used[places] = self._own_long[places] = self._others_used[places] = 0.0
        self._rows.set_factors(self._places.rows[places], np.zeros(len(places)))

    def update(self, now_ms: int) -> None:
        """Set the factors of all groups that other members use."""
        self._updated_ms = now_ms
        self._keep_weights_small(now_ms)
        places, size = self._places.used(), self._places.size
        short, long = self._short.at(now_ms), self._long.at(now_ms)
        rows = self._places.rows[places]
        own = self._use_own(places, rows, short, long)
        fresh, users = np.zeros(size, np.int64), np.zeros(size, np.int64)
        since_ms = max(1, now_ms - HEARD_MS)
        for usage in self._others.values():
            its, used_ms = usage.fresh[:size], usage.used_ms[:size]
            np.copyto(used_ms, now_ms, where=its > 0)
            fresh += its
            usage.long[:size] += its * long
            its[:] = 0
            users += used_ms >= since_ms
        self._others_used[:size] += fresh * short
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self._others_used[places] / own
        users = users[places]
        self._rows.set_factors(rows, np.where(own > _SMALL * short, np.minimum(users, ratio), users))

    def _use_own(self, places: Ints, rows: Ints, short: float, long: float) -> Floats:
        """Add this member's usage since the last call to its sums; return them."""
        totals = self._rows.totals(rows)
        amounts = totals - self._own_seen[places]
        self._own_seen[places] = totals
        own = np.maximum(self._own_used[places] + amounts * short, 0.0)
        self._own_used[places] = own
        self._own_long[places] += amounts * long
        return np.asarray(own)

    def _keep_weights_small(self, now_ms: int) -> None:
        less = self._short.less(now_ms)
        if less is not None:
            self._own_used *= less
            self._others_used *= less
        less = self._long.less(now_ms)
        if less is not None:
            self._own_long *= less
            for usage in self._others.values():
                usage.long *= less

    def rates(self, member: int, heard_ms: int) -> tuple[Ints, Floats]:
        """Return the groups that a member used before it was heard last, and the rates at that time, in units per ms.

        While all members together use a group's bound, or nearly, the rates are this member's part of the bound: an average over some
        periods of the window is too high or too low by some percent, and each of N members would leave N - 1 such errors to its clients.
        """
        usage, places = self.of(member), self._places.used()
        at = self._long.at(min(heard_ms, self._updated_ms))
        places = places[usage.long[places] > _SMALL * self._long.at(self._updated_ms)]
        rates = usage.long[places] * (RATE / at)
        everything = self.own_rates(places) + sum(other.long[places] for other in self._others.values()) * (RATE / at)
        bound = self._rows.window_max(self._places.rows[places]) / self._rows.bound_ms
        return places, np.where((bound > 0) & (everything > AT_BOUND * bound), rates * bound / everything, rates)

    def own_rates(self, places: Ints) -> Floats:
        """Return the rates of this member, in units per ms."""
        return np.asarray(self._own_long[places] * (RATE / self._long.at(self._updated_ms)))
