"""What this member publishes: for each group that changed, its total, its usage in flight, and whether it had a throttle round.

A change is published at once if it may matter for decisions of other members: the group had a throttle round, or half of what its bound
allows in a window is used, or the change is more than a small part of that. All other changes are published together, once in `REPEAT_MS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from proxy.fleet.rows import NO_ROWS, FleetRows, Ints, Reading
from proxy.fleet.wire import NAME, NO_NAMES, NO_TOTALS, TOTAL, Entries
from proxy.shared_usage.shared_groups import LITTLE_PARTS

NAME_AGAIN_MS: Final = 20_000
"""Time after which an active group is named again, for members that have joined meanwhile."""
SILENT_MS: Final = 10_000
"""A group without usage for this time is named again at its next usage."""
REPEAT_MS: Final = 1_000
"""Interval in which all changes are published, and after which totals and names are sent once more, since a message can be lost."""
RECENT_MS: Final = 60_000
"""Time after its last usage during which a group is sent again when this member joins again. A window is shorter."""
NEVER_MS: Final = -(2**62)
NO_REPEAT_MS: Final = 2**62
FLIGHT_MAX: Final = 2**31 - 1
MESSAGE_ENTRIES_MAX: Final = 20_000
"""Entries in one message: 880 kB with a name for each, below the 1 MB that brokers accept."""

Flags = npt.NDArray[np.bool_]


class Changes(NamedTuple):
    """Groups and what has changed since they were published.

    Attributes:
        used: usage that was not published.
        flight: usage in flight now, in KiB.
        amounts: changes of usage and usage in flight together, without signs.
        has_round: whether the group had a throttle round.
        is_changed: whether there is a change at all.
        window_max: what the bound allows in a window; 0: not known.
        reading: what their rows contain.
    """

    used: Ints
    flight: Ints
    amounts: Ints
    has_round: Flags
    is_changed: Flags
    window_max: Ints
    reading: Reading


class OwnUsage:
    """Compares the rows with what was published last. The id of a group in messages is its row."""

    def __init__(self, rows: FleetRows) -> None:
        count = len(rows.generations)
        self._rows = rows
        self._shared: Ints = NO_ROWS
        self._generations: Ints = np.zeros(count, np.int64)
        self._flight: Ints = np.zeros(count, np.int64)
        self._rounds_ms: Ints = np.zeros(count, np.int64)
        self._name_due_ms: Ints = np.full(count, NEVER_MS, np.int64)
        self._is_named_once: Flags = np.zeros(count, np.bool_)
        self._base: Ints = np.zeros(count, np.int64)
        self._used_ms: Ints = np.full(count, NEVER_MS, np.int64)
        self._repeat_ms: Ints = np.full(count, NO_REPEAT_MS, np.int64)  # when the last total is sent once more
        self._all_due_ms = NEVER_MS  # when all changes are published
        self._before: Ints = np.zeros(count, np.int64)  # what all members used before the slots of the present window
        self._slot = -1

    def changes(
        self, reading: Reading, entries_max: int, now_ms: int, also_named: Ints = NO_ROWS, *, members: int, is_last: bool = False
    ) -> tuple[Entries, Entries]:
        """Return names and totals to publish now, at most `entries_max` groups: those whose change is the largest part of their bound.

        The groups of the rows `also_named` are named too, if other members may not know them.

        It counts as published. Totals are cumulative, so a lost message has no effect after the next one; a total that does not change any
        more is sent once more after `REPEAT_MS`.

        Args:
            reading: of all rows whose usage the fleet shares.
            members: number of members that are heard, with this one.
            is_last: whether no change may wait, since there is no later call.
        """
        shared = reading.rows
        if not len(shared):
            return self._names(also_named, now_ms), NO_TOTALS
        found = self._changes_of(reading)
        is_time_for_all = is_last or now_ms >= self._all_due_ms
        if is_time_for_all:
            is_due = found.is_changed | (self._repeat_ms[shared] <= now_ms)
        else:
            is_due = found.is_changed & (found.has_round | self._matters(found, members, now_ms))
        some = np.flatnonzero(is_due)
        if len(some) > entries_max:
            some = _first(found, some, entries_max)
        elif is_time_for_all:
            self._all_due_ms = now_ms + REPEAT_MS
        if not len(some):
            return self._names(also_named, now_ms), NO_TOTALS
        return self._published(found, some, also_named, now_ms)

    def send_again(self, now_ms: int) -> None:
        """Let totals of recent usage be sent once more: what a member has not read may be in no log any more."""
        self._repeat_ms[now_ms - self._used_ms <= RECENT_MS] = now_ms
        self._all_due_ms = NEVER_MS

    def _changes_of(self, reading: Reading) -> Changes:
        rows = reading.rows
        if rows is not self._shared:
            self._begin_new(reading)
            self._shared = rows
        used = reading.totals - self._rows.published[rows]
        flight = np.minimum(reading.under_way >> 10, FLIGHT_MAX)
        in_flight = flight - self._flight[rows]
        has_round = reading.rounds_ms > self._rounds_ms[rows]
        amounts = np.abs(used) + (np.abs(in_flight) << 10)
        is_changed = (amounts != 0) | has_round
        return Changes(used, flight, amounts, has_round, is_changed, self._rows.window_max(rows), reading)

    def _matters(self, found: Changes, members: int, now_ms: int) -> Flags:
        """Return whether each change may matter for decisions of other members.

        While half of the window is free, all members together leave at most one part in `LITTLE_PARTS` of the window unpublished. This is
        the rule by which workers publish late (`shared_groups`).
        """
        self._begin_slot(found, now_ms)
        everything = found.reading.everything - self._before[found.reading.rows]
        return np.asarray((everything >= found.window_max >> 1) | (found.amounts > found.window_max // (LITTLE_PARTS * members)))

    def _begin_slot(self, found: Changes, now_ms: int) -> None:
        """Note what was used before the present window, when a slot of the rows begins."""
        slot = now_ms // self._rows.segment.slot_ms
        if slot != self._slot:
            self._slot = slot
            rows = found.reading.rows
            some = rows[found.reading.everything != self._before[rows]]
            self._before[some] = self._rows.all_totals(some) - self._rows.in_slots(some, now_ms)

    def _published(self, found: Changes, some: Ints, also_named: Ints, now_ms: int) -> tuple[Entries, Entries]:
        """Return names and totals of some of the groups, which count as published."""
        rows, totals, flight = found.reading.rows[some], found.reading.totals[some], found.flight[some]
        self._repeat_ms[rows] = np.where(found.is_changed[some], now_ms + REPEAT_MS, NO_REPEAT_MS)
        names = self._names(np.union1d(rows, also_named) if len(also_named) else rows, now_ms)
        entries = np.zeros(len(rows), TOTAL)
        entries["id"], entries["total"], entries["flight"] = rows, totals, (flight << 1) | found.has_round[some]
        self._used_ms[rows[found.used[some] != 0]] = now_ms
        self._rows.published[rows] = totals
        self._flight[rows], self._rounds_ms[rows] = flight, found.reading.rounds_ms[some]
        return names, entries

    def _begin_new(self, reading: Reading) -> None:
        """Forget what was published of earlier groups of these rows."""
        rows = reading.rows
        is_new = self._generations[rows] != self._rows.generations[rows]
        new = rows[is_new]
        if not len(new):
            return
        self._generations[new] = self._rows.generations[new]
        self._flight[new] = self._before[new] = 0
        self._rounds_ms[new] = reading.rounds_ms[is_new]
        self._is_named_once[new] = False
        self._name_due_ms[new] = self._used_ms[new] = NEVER_MS
        self._repeat_ms[new] = NO_REPEAT_MS

    def _names(self, rows: Ints, now_ms: int) -> Entries:
        """Return names of the groups that other members may not know: each twice, since the first message may be lost."""
        is_new_use = now_ms - self._used_ms[rows] >= SILENT_MS
        is_due = self._name_due_ms[rows] <= now_ms
        is_named = is_new_use | is_due
        if not is_named.any():
            return NO_NAMES
        is_first = is_new_use | (~self._is_named_once[rows] & is_due)
        first, due = rows[is_first], rows[is_named]
        self._base[first] = self._rows.published[first]
        names = np.zeros(len(due), NAME)
        digests = self._rows.digests(due)
        names["id"], names["high"], names["low"], names["base"] = due, digests[:, 0], digests[:, 1], self._base[due]
        self._is_named_once[due] = False
        self._is_named_once[first] = True
        self._name_due_ms[due] = now_ms + NAME_AGAIN_MS
        self._name_due_ms[first] = now_ms + REPEAT_MS
        return names


def _first(found: Changes, some: Ints, entries_max: int) -> Ints:
    """Return those of the groups that precede when not all fit: with a throttle round, or with the largest part of the bound."""
    parts = found.amounts[some] / np.maximum(found.window_max[some], 1)
    parts[found.has_round[some]] = np.inf
    return np.sort(some[np.argsort(-parts, kind="stable")[:entries_max]])


def in_messages(names: Entries, totals: Entries) -> Iterator[tuple[Entries, Entries]]:
    """Divide entries into messages; the name of a group is in the message with its total, and a name without a total in the last one."""
    if len(totals) <= MESSAGE_ENTRIES_MAX:
        yield names, totals
        return
    alone = names[~np.isin(names["id"], totals["id"])]
    for at in range(0, len(totals), MESSAGE_ENTRIES_MAX):
        part = totals[at : at + MESSAGE_ENTRIES_MAX]
        its = names[np.isin(names["id"], part["id"])]
        yield (its, part) if at + MESSAGE_ENTRIES_MAX < len(totals) else (np.concatenate((its, alone)), part)
