"""What is assumed about members that are not heard, and what becomes of it when they are heard again.

A member that is silent although own messages come back has probably ended, and its clients come here: its last rates are assumed for
`SILENT_MS`, then nothing. A member that is cut off itself hears nobody: it assumes the last rates of all for `CUT_MS`, which then slide to
its own rates within the same time, so that in the end each member uses an equal share. The bound itself stays.

Assumed units are recorded as usage of the others. What a member reports later counts only as far as it exceeds them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from metering_format.fleet_notes import ASSUMED
from proxy.fleet.factors import Factors, Floats, MemberUsage
from proxy.fleet.rows import FleetRows, Ints, Places

BEGIN_MS: Final = 1_250
"""A member sends a message each second, so a shorter time without one means nothing."""
SILENT_MS: Final = 3_000
CUT_MS: Final = 30_000


class Silence:
    """Records assumed usage of members that are not heard.

    Args:
        rows: the segment.
        places: of the groups that other members use.
        factors: the usage of all members.
    """

    def __init__(self, rows: FleetRows, places: Places, factors: Factors) -> None:
        self._rows = rows
        self._places = places
        self._factors = factors
        self._window_ms = rows.window_ms
        self._begun: dict[int, tuple[int, Ints, Floats]] = {}  # of silent members: up to when it is recorded, groups, their rates

    def update(self, member: int, heard_ms: int, now_ms: int, *, is_cut_off: bool) -> None:
        """Record what a member is assumed to have used since the last call.

        Args:
            heard_ms: when it was heard last.
            is_cut_off: whether this member hears nobody.
        """
        silent_ms = now_ms - heard_ms
        if silent_ms < BEGIN_MS:
            self._begun.pop(member, None)
            return
        usage = self._factors.of(member)
        begun = self._begun.get(member)
        if begun is None:
            begun = (heard_ms, *self._factors.rates(member, heard_ms))
        until_ms, places, rates = begun
        if not is_cut_off:
            now_ms = min(now_ms, heard_ms + SILENT_MS)
        self._record(usage, places, self._present(places, rates, silent_ms), now_ms - until_ms, now_ms)
        self._begun[member] = max(until_ms, now_ms), places, rates

    def _present(self, places: Ints, rates: Floats, silent_ms: int) -> Floats:
        """Return the rates to assume after this time."""
        slid = min(1.0, max(0.0, (silent_ms - CUT_MS) / CUT_MS))
        return rates if not slid else rates * (1.0 - slid) + self._factors.own_rates(places) * slid

    def _record(self, usage: MemberUsage, places: Ints, rates: Floats, duration_ms: int, now_ms: int) -> None:
        if duration_ms <= 0 or not len(places):
            return
        amounts = (rates * duration_ms).astype(np.int64)
        rows = self._places.rows[places]
        self._rows.note(ASSUMED, rows, amounts)
        self._rows.record(rows, amounts, now_ms)
        usage.assume(places, amounts, (rates * self._window_ms).astype(np.int64))

    def forget(self, member: int) -> None:
        """A member is gone."""
        self._begun.pop(member, None)

    def release(self, places: Ints) -> None:
        """These places belong to other groups from now on."""
        for member, (until_ms, its, rates) in list(self._begun.items()):
            kept = ~np.isin(its, places)
            self._begun[member] = until_ms, its[kept], rates[kept]
