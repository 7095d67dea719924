"""What this member publishes: for each group that changed, its total, its usage in flight, and whether it had a throttle round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from proxy.fleet.rows import NO_ROWS, FleetRows, Ints
from proxy.fleet.wire import NAME, NO_TOTALS, TOTAL, Entries

NAME_AGAIN_MS: Final = 20_000
"""Time after which an active group is named again, for members that have joined meanwhile."""
SILENT_MS: Final = 10_000
"""A group without usage for this time is named again at its next usage."""
REPEAT_MS: Final = 1_000
"""Time after which the last total and the name of a group are sent once more: a message can be lost."""
NEVER_MS: Final = -(2**62)
FLIGHT_MAX: Final = 2**31 - 1
MESSAGE_ENTRIES_MAX: Final = 20_000
"""Entries in one message: 880 kB with a name for each, below the 1 MB that brokers accept."""


class OwnUsage:
    """Compares the rows with what was published last. The id of a group in messages is its row."""

    def __init__(self, rows: FleetRows) -> None:
        count = len(rows.generations)
        self._rows = rows
        self._generations: Ints = np.zeros(count, np.int64)
        self._flight: Ints = np.zeros(count, np.int64)
        self._rounds_ms: Ints = np.zeros(count, np.int64)
        self._name_due_ms: Ints = np.full(count, NEVER_MS, np.int64)
        self._is_named_once: npt.NDArray[np.bool_] = np.zeros(count, np.bool_)
        self._base: Ints = np.zeros(count, np.int64)
        self._used_ms: Ints = np.full(count, NEVER_MS, np.int64)
        self._repeat_ms: Ints = np.full(count, NEVER_MS, np.int64)  # when the last total is sent once more; NEVER_MS: it was

    def changes(self, entries_max: int, now_ms: int, also_named: Ints = NO_ROWS) -> tuple[Entries, Entries]:
        """Return names and totals to publish now, at most `entries_max` groups: those with the most new usage.

        The groups of the rows `also_named` are named too, if other members may not know them.

        It counts as published. Totals are cumulative, so a lost message has no effect after the next one; a total that does not change any
        more is sent once more after `REPEAT_MS`.
        """
        found = self._rows.shared_rows()
        self._begin_new(found)
        totals, flight = self._rows.totals(found), self._flight_of(found)
        rounds_ms = self._rows.throttle_rounds_ms(found)
        used = totals - self._rows.published[found]
        is_changed = (used != 0) | (flight != self._flight[found]) | (rounds_ms > self._rounds_ms[found])
        repeat_ms = self._repeat_ms[found]
        some = np.flatnonzero(is_changed | ((repeat_ms != NEVER_MS) & (repeat_ms <= now_ms)))
        if not len(some):
            return self._names(also_named, now_ms), NO_TOTALS
        if len(some) > entries_max:
            some = some[np.argsort(-used[some], kind="stable")[:entries_max]]
        rows = found[some]
        has_round = rounds_ms[some] > self._rounds_ms[rows]
        self._repeat_ms[rows] = np.where(is_changed[some], now_ms + REPEAT_MS, NEVER_MS)
        names = self._names(np.union1d(rows, also_named), now_ms)
        entries = np.zeros(len(rows), TOTAL)
        entries["id"], entries["total"], entries["flight"] = rows, totals[some], (flight[some] << 1) | has_round
        self._used_ms[rows[used[some] != 0]] = now_ms
        self._rows.published[rows], self._flight[rows], self._rounds_ms[rows] = totals[some], flight[some], rounds_ms[some]
        return names, entries

    def _begin_new(self, rows: Ints) -> None:
        """Forget what was published of earlier groups of these rows."""
        new = rows[self._generations[rows] != self._rows.generations[rows]]
        if not len(new):
            return
        self._generations[new] = self._rows.generations[new]
        self._flight[new] = 0
        self._rounds_ms[new] = self._rows.throttle_rounds_ms(new)
        self._is_named_once[new] = False
        self._name_due_ms[new] = self._used_ms[new] = self._repeat_ms[new] = NEVER_MS

    def _flight_of(self, rows: Ints) -> Ints:
        return np.asarray(np.minimum(self._rows.under_way(rows) >> 10, FLIGHT_MAX))

    def _names(self, rows: Ints, now_ms: int) -> Entries:
        """Return names of the groups that other members may not know: each twice, since the first message may be lost."""
        is_new_use = now_ms - self._used_ms[rows] >= SILENT_MS
        is_first = is_new_use | (~self._is_named_once[rows] & (self._name_due_ms[rows] <= now_ms))
        first = rows[is_first]
        self._base[first] = self._rows.published[first]
        due = rows[is_first | (self._name_due_ms[rows] <= now_ms)]
        names = np.zeros(len(due), NAME)
        digests = self._rows.digests(due)
        names["id"], names["high"], names["low"], names["base"] = due, digests[:, 0], digests[:, 1], self._base[due]
        self._is_named_once[due] = False
        self._is_named_once[first] = True
        self._name_due_ms[due] = now_ms + NAME_AGAIN_MS
        self._name_due_ms[first] = now_ms + REPEAT_MS
        return names


def in_messages(names: Entries, totals: Entries) -> Iterator[tuple[Entries, Entries]]:
    """Divide entries into messages; the name of a group is in the message with its total, and a name without a total in the last one."""
    alone = names[~np.isin(names["id"], totals["id"])]
    for at in range(0, max(len(totals), 1), MESSAGE_ENTRIES_MAX):
        part = totals[at : at + MESSAGE_ENTRIES_MAX]
        its = names[np.isin(names["id"], part["id"])]
        yield (its, part) if at + MESSAGE_ENTRIES_MAX < len(totals) else (np.concatenate((its, alone)), part)
