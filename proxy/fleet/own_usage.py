"""What this member publishes: for each group that changed, its total, its usage in flight, and whether it had a throttle round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from proxy.fleet.rows import FleetRows, Ints
from proxy.fleet.wire import NAME, NO_NAMES, NO_TOTALS, TOTAL, Entries

NAME_AGAIN_MS: Final = 20_000
"""Time after which an active group is named again, for members that have joined meanwhile."""
SILENT_MS: Final = 10_000
"""A group without usage for this time is named again at its next usage."""
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
        self._named_ms: Ints = np.full(count, -NAME_AGAIN_MS, np.int64)
        self._used_ms: Ints = np.full(count, -SILENT_MS, np.int64)

    def changes(self, entries_max: int, now_ms: int) -> tuple[Entries, Entries]:
        """Return names and totals to publish now, at most `entries_max` groups: those with the most new usage.

        It counts as published; `Message` has cumulative totals, so a lost message has no effect after the next one.
        """
        found = self._rows.shared_rows()
        self._begin_new(found)
        totals, flight = self._rows.totals(found), self._flight_of(found)
        rounds_ms = self._rows.throttle_rounds_ms(found)
        used = totals - self._rows.published[found]
        is_changed = (used != 0) | (flight != self._flight[found]) | (rounds_ms > self._rounds_ms[found])
        some = np.flatnonzero(is_changed)
        if not len(some):
            return NO_NAMES, NO_TOTALS
        if len(some) > entries_max:
            some = some[np.argsort(-used[some], kind="stable")[:entries_max]]
        rows = found[some]
        has_round = rounds_ms[some] > self._rounds_ms[rows]
        names = self._names(rows, now_ms)
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
        self._named_ms[new], self._used_ms[new] = -NAME_AGAIN_MS, -SILENT_MS

    def _flight_of(self, rows: Ints) -> Ints:
        return np.asarray(np.minimum(self._rows.under_way(rows) >> 10, FLIGHT_MAX))

    def _names(self, rows: Ints, now_ms: int) -> Entries:
        """Return names of the groups that other members may not know."""
        unknown = rows[(now_ms - self._named_ms[rows] >= NAME_AGAIN_MS) | (now_ms - self._used_ms[rows] >= SILENT_MS)]
        names = np.zeros(len(unknown), NAME)
        digests = self._rows.digests(unknown)
        names["id"], names["high"], names["low"], names["base"] = unknown, digests[:, 0], digests[:, 1], self._rows.published[unknown]
        self._named_ms[unknown] = now_ms
        return names


def in_messages(names: Entries, totals: Entries) -> Iterator[tuple[Entries, Entries]]:
    """Divide entries into messages; the name of a group is in the message with its total or an earlier one."""
    for at in range(0, max(len(totals), 1), MESSAGE_ENTRIES_MAX):
        part = totals[at : at + MESSAGE_ENTRIES_MAX]
        yield names[np.isin(names["id"], part["id"])], part
