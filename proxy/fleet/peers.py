"""The other members: what each has published, and what of it is new."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from proxy.fleet.rows import NO_ROWS, Ints
from proxy.fleet.wire import IDS_MAX, About, Entries, Message

UNKNOWN: Final = -1
"""Place of an id that was not named yet, or that has no row here."""
OVERTAKEN_MAX: Final = 40
"""Number of newer messages that a message may follow and still name groups: those of 2 s in use. An id is free again when its group was not
used for a minute, in which there are more messages; so a copy that is sent again then names nothing."""
_FIRST_IDS: Final = 1_024

PlaceOf = Callable[[bytes], int]
"""Returns the place of a group by its digest; a negative number: there is none."""


class Usage(NamedTuple):
    """New usage of one member; no place occurs twice.

    Attributes:
        places: places of the groups.
        amounts: what each group used since the last message, in units of its total.
        flight: change of each group's usage in flight, in the same units; empty: none has changed.
        rounds: places of groups with a throttle round.
        named, bases: places of groups that were named now, and their totals before that.
    """

    places: Ints
    amounts: Ints
    flight: Ints
    rounds: Ints
    named: Ints = NO_ROWS
    bases: Ints = NO_ROWS


NOTHING: Final = Usage(NO_ROWS, NO_ROWS, NO_ROWS, NO_ROWS)


def _with_names(usage: Usage, bases: dict[int, int]) -> Usage:
    """Return usage with the places that were named, each with its total before that."""
    if not bases:
        return usage
    return usage._replace(named=np.fromiter(bases, np.int64, len(bases)), bases=np.fromiter(bases.values(), np.int64, len(bases)))


class _Steady(msgspec.Struct):
    """What a message contained whose groups and usage in flight the next one often has again. `totals` are not in the arrays of `Peer` yet.

    Attributes:
        heads: ids with usage in flight, as in `TOTAL`.
        places, totals: of its groups.
        rounds: places of groups with a throttle round.
    """

    heads: Ints
    places: Ints
    totals: Ints
    rounds: Ints


class Peer:
    """One incarnation of a member.

    Args:
        incarnation: its number.
        places_max: number of places.

    Attributes:
        about: its description; None: it was not received yet.
        sequence: number of its last message.
        heard_ms: when it was received, in monotonic ms.
        quotas: number of its quotas.
    """

    def __init__(self, incarnation: int, places_max: int) -> None:
        self.incarnation = incarnation
        self.about: About | None = None
        self.sequence = self.heard_ms = self.quotas = 0
        self._places: Ints = np.full(_FIRST_IDS, UNKNOWN, np.int64)  # by id, as the next two
        self._high: Ints = np.zeros(_FIRST_IDS, np.int64)
        self._low: Ints = np.zeros(_FIRST_IDS, np.int64)
        self._totals: Ints = np.zeros(places_max, np.int64)  # by place, as the next two
        self._flight: Ints = np.zeros(places_max, np.int64)
        self._ids: dict[int, int] = {}
        self._last: tuple[Ints, Ints] = NO_ROWS, NO_ROWS  # ids of the last message and their places: the next one often has the same
        self._has_flight = False
        self._steady: _Steady | None = None

    def take(self, message: Message, place_of: PlaceOf, heard_ms: int) -> Usage | None:
        """Note a message that came at `heard_ms`; return what it has new. None: nothing, as in a copy.

        A message that a newer one has overtaken may still name groups: the newer one does not repeat the names.
        """
        if message.sequence <= self.sequence:
            if message.sequence <= self.sequence - OVERTAKEN_MAX:
                return None
            named = len(self._ids)
            bases = self._name(message.names, place_of, is_older=True)
            return _with_names(NOTHING, bases) if len(self._ids) > named else None
        self.sequence, self.heard_ms, self.quotas = message.sequence, heard_ms, message.quotas
        self.about = message.about or self.about
        bases = self._name(message.names, place_of)
        return _with_names(self._new(message.totals), bases)

    def place_of(self, number: int) -> int:
        """Return the place of an id; `UNKNOWN`: it has none here."""
        return int(self._places[number]) if number < len(self._places) else UNKNOWN

    def _name(self, names: Entries, place_of: PlaceOf, *, is_older: bool = False) -> dict[int, int]:
        """Note the groups of ids; return the total before this message of each place that got an id.

        The total of a group that was known already stays, since its messages may have been lost. Names of an older message change neither
        the group of an id nor the id of a group.
        """
        bases: dict[int, int] = {}
        if not len(names):
            return bases
        self._fit(int(names["id"].max()))
        ids = names["id"].astype(np.int64)
        is_known = self._places[ids] != UNKNOWN
        if not is_older:
            is_known &= (self._high[ids] == names["high"]) & (self._low[ids] == names["low"])
        for number, high, low, base in names[~is_known].tolist():
            self._high[number], self._low[number] = high, low
            place = place_of(high.to_bytes(8, "little", signed=True) + low.to_bytes(8, "little", signed=True))
            if place != self._places[number] and not (is_older and place in self._ids):
                self._assign(number, max(place, UNKNOWN), base)
                if place >= 0 and base > 0:
                    bases[place] = base
        return bases

    def _assign(self, number: int, place: int, base: int) -> None:
        """Let an id have this place, and no other id."""
        self._end_steady()
        self._last = NO_ROWS, NO_ROWS
        self._ids.pop(int(self._places[number]), None)
        self._places[number] = place
        if place == UNKNOWN:
            return
        before = self._ids.get(place)
        if before is not None:
            self._places[before] = UNKNOWN
        self._ids[place] = number
        self._totals[place], self._flight[place] = base, 0

    def _new(self, totals: Entries) -> Usage:
        if not len(totals):
            return NOTHING
        words = totals.view(np.int64)
        heads, now = words[::2], words[1::2]
        steady = self._steady
        if steady is not None and len(heads) == len(steady.heads) and not np.count_nonzero(heads != steady.heads):
            highest = np.maximum(now, steady.totals)
            amounts, steady.totals = highest - steady.totals, highest
            return Usage(steady.places, amounts, NO_ROWS, steady.rounds)
        self._end_steady()
        places = self._places_of(totals["id"])
        are_all_known = places.min() >= 0
        if not are_all_known:
            is_known = places >= 0
            places, totals, now = places[is_known], totals[is_known], now[is_known]
        before = self._totals[places]
        highest = np.maximum(now, before)
        change, rounds = self._set_flight(places, totals["flight"])
        if are_all_known:
            self._steady = _Steady(heads.copy(), places, highest, rounds)
        else:
            self._totals[places] = highest
        return Usage(places, highest - before, change, rounds)

    def _set_flight(self, places: Ints, flight: npt.NDArray[np.uint32]) -> tuple[Ints, Ints]:
        """Note usage in flight, as in `TOTAL`; return its change, and the places of groups with a throttle round."""
        if not self._has_flight and not flight.any():
            return NO_ROWS, NO_ROWS
        self._has_flight = True
        flights = flight.astype(np.int64)
        in_flight, was = (flights >> 1) << 10, self._flight[places]
        self._flight[places] = in_flight
        return in_flight - was, places[(flights & 1) == 1]

    def _end_steady(self) -> None:
        """Put the totals of the last message into the arrays, before these change or are read."""
        if self._steady is not None:
            self._totals[self._steady.places] = self._steady.totals
            self._steady = None

    def _places_of(self, numbers: npt.NDArray[np.uint32]) -> Ints:
        """Return the places of ids."""
        last, places = self._last
        if len(last) != len(numbers) or (last != numbers).any():
            ids = numbers.astype(np.int64)
            self._fit(int(ids.max()))
            places = self._places[ids]
            self._last = ids, places
        return places

    def lose_flight(self) -> Usage:
        """Return the change when the member's usage in flight no longer counts."""
        self._end_steady()
        places = np.fromiter(self._ids, np.int64, len(self._ids))
        places = places[self._flight[places] != 0]
        change = -self._flight[places]
        self._flight[places] = 0
        return Usage(places, np.zeros(len(places), np.int64), change, NO_ROWS)

    def forget(self, places: Ints) -> None:
        """These places belong to other groups, or to none."""
        self._end_steady()
        self._last = NO_ROWS, NO_ROWS
        for place in places.tolist():
            number = self._ids.pop(place, None)
            if number is not None:
                self._places[number] = UNKNOWN

    def _fit(self, number: int) -> None:
        """Make room for an id."""
        size = len(self._places)
        if number < size:
            return
        more = min(IDS_MAX, max(2 * size, number + 1)) - size
        self._places = np.concatenate((self._places, np.full(more, UNKNOWN, np.int64)))
        for name in ("_high", "_low"):
            setattr(self, name, np.concatenate((getattr(self, name), np.zeros(more, np.int64))))
