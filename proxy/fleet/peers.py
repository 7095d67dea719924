"""The other members: what each has published, and what of it is new."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from proxy.fleet.rows import NO_ROWS, Ints
from proxy.fleet.wire import IDS_MAX, About, Entries, Message

UNKNOWN: Final = -1
"""Row of an id that was not named yet, or that has no row here."""
_FIRST_IDS: Final = 1_024

RowOf = Callable[[bytes], int]
"""Returns the row of a group by its digest; a negative number: there is none."""


class Usage(NamedTuple):
    """New usage of one member; no row occurs twice.

    Attributes:
        rows: rows of the groups.
        amounts: what each group used since the last message, in units of its total.
        flight: change of each group's usage in flight, in the same units; empty: none has changed.
        rounds: rows of groups with a throttle round.
    """

    rows: Ints
    amounts: Ints
    flight: Ints
    rounds: Ints


NOTHING: Final = Usage(NO_ROWS, NO_ROWS, NO_ROWS, NO_ROWS)


@dataclass
class Peer:
    """One incarnation of a member.

    Attributes:
        incarnation: its number.
        about: its description; None: it was not received yet.
        sequence: number of its last message.
        heard_ms: when it was received, in monotonic ms.
        quotas: number of its quotas.
    """

    incarnation: int
    about: About | None = None
    sequence: int = 0
    heard_ms: int = 0
    quotas: int = 0
    rows: Ints = field(default_factory=lambda: np.full(_FIRST_IDS, UNKNOWN, np.int64))
    _high: Ints = field(default_factory=lambda: np.zeros(_FIRST_IDS, np.int64))
    _low: Ints = field(default_factory=lambda: np.zeros(_FIRST_IDS, np.int64))
    _totals: Ints = field(default_factory=lambda: np.zeros(_FIRST_IDS, np.int64))
    _flight: Ints = field(default_factory=lambda: np.zeros(_FIRST_IDS, np.int64))
    _ids: dict[int, int] = field(default_factory=dict)
    _has_flight: bool = False

    def take(self, message: Message, row_of: RowOf, heard_ms: int) -> Usage | None:
        """Note a message that came at `heard_ms`; return what it has new. None: an older message, or a copy of one."""
        if message.sequence <= self.sequence:
            return None
        self.sequence, self.heard_ms, self.quotas = message.sequence, heard_ms, message.quotas
        self.about = message.about or self.about
        self._name(message.names, row_of)
        return self._new(message.totals)

    def row_of(self, number: int) -> int:
        """Return the row of an id; `UNKNOWN`: it has none here."""
        return int(self.rows[number]) if number < len(self.rows) else UNKNOWN

    def _name(self, names: Entries, row_of: RowOf) -> None:
        """Note the groups of ids. The total of a group that was known already stays, since its messages may have been lost."""
        if not len(names):
            return
        self._fit(int(names["id"].max()))
        ids = names["id"].astype(np.int64)
        is_known = (self.rows[ids] != UNKNOWN) & (self._high[ids] == names["high"]) & (self._low[ids] == names["low"])
        names = names[~is_known]
        for number, high, low, base in names.tolist():
            self._high[number], self._low[number] = high, low
            row = row_of(high.to_bytes(8, "little", signed=True) + low.to_bytes(8, "little", signed=True))
            if row != self.rows[number]:
                self._assign(number, max(row, UNKNOWN), base)

    def _assign(self, number: int, row: int, base: int) -> None:
        """Let an id have this row, and no other id."""
        self._ids.pop(int(self.rows[number]), None)
        if row != UNKNOWN:
            before = self._ids.get(row)
            if before is not None:
                self.rows[before] = UNKNOWN
            self._ids[row] = number
        self.rows[number], self._totals[number], self._flight[number] = row, base, 0

    def _new(self, totals: Entries) -> Usage:
        ids = totals["id"].astype(np.int64)
        if not len(ids):
            return NOTHING
        self._fit(int(ids.max()))
        rows = self.rows[ids]
        known = rows >= 0
        if not known.all():
            ids, rows, totals = ids[known], rows[known], totals[known]
        before = self._totals[ids]
        amounts = np.maximum(totals["total"] - before, 0)
        self._totals[ids] = before + amounts
        flight = totals["flight"].astype(np.int64)
        if not self._has_flight and not flight.any():
            return Usage(rows, amounts, NO_ROWS, NO_ROWS)
        self._has_flight = True
        now, was = (flight >> 1) << 10, self._flight[ids]
        self._flight[ids] = now
        return Usage(rows, amounts, now - was, rows[(flight & 1) == 1])

    def lose_flight(self) -> Usage:
        """Return the change when the member's usage in flight no longer counts."""
        ids = np.flatnonzero((self._flight != 0) & (self.rows >= 0))
        change = -self._flight[ids]
        self._flight[ids] = 0
        return Usage(self.rows[ids], np.zeros(len(ids), np.int64), change, NO_ROWS)

    def forget(self, rows: Ints) -> None:
        """These rows belong to other groups, or to none."""
        for row in rows.tolist():
            number = self._ids.pop(row, None)
            if number is not None:
                self.rows[number] = UNKNOWN

    def _fit(self, number: int) -> None:
        """Make room for an id."""
        size = len(self.rows)
        if number < size:
            return
        more = min(IDS_MAX, max(2 * size, number + 1)) - size
        self.rows = np.concatenate((self.rows, np.full(more, UNKNOWN, np.int64)))
        for name in ("_high", "_low", "_totals", "_flight"):
            setattr(self, name, np.concatenate((getattr(self, name), np.zeros(more, np.int64))))
