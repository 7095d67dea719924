"""Waiting fetches: each member publishes how many fetches of a group wait there, and since when.

So all members forward their fetches in about the order in which one process would, and only the oldest one takes a throttle round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from proxy.fleet.clock import Clock
from proxy.fleet.rows import FleetRows, Ints, Places, Reading, WaitingFetches
from proxy.fleet.wire import NO_QUEUES, QUEUE, Entries
from proxy.shared_usage.segment import FETCH_TIMES

REPEAT_MS: Final = 1_000
"""Interval in which a queue without changes is published again, since a message can be lost."""
AFTER_MAX: Final = 2**16 - 1
"""The most ms after the oldest fetch that a message can contain."""
_NEVER: Final = 2**62


class MemberQueues:
    """The queues of another member, by place; as `WaitingFetches`."""

    __slots__ = ("counts", "fronts", "times")

    def __init__(self, places: int) -> None:
        self.counts: Ints = np.zeros(places, np.int64)
        self.fronts: Ints = np.zeros(places, np.int64)
        self.times: Ints = np.zeros((places, FETCH_TIMES), np.int64)


class FleetQueues:
    """The queues of all rows.

    Args:
        rows: the segment.
        places: of the groups that other members use.
    """

    def __init__(self, rows: FleetRows, places: Places) -> None:
        self._count = len(rows.generations)
        self._rows = rows
        self._places = places
        self._counts: Ints = np.zeros(self._count, np.int64)  # as published, by row, as the next two
        self._fronts: Ints = np.zeros(self._count, np.int64)
        self._sums: Ints = np.zeros(self._count, np.int64)
        self._repeat_ms = 0
        self._of: dict[int, MemberQueues] = {}  # of other members, by incarnation
        self._changed: list[Ints] = []  # places that `record` writes

    # --- own queues

    def changes(self, reading: Reading, clock: Clock, now_ms: int) -> Entries:
        """Return the entries to publish, of the rows of a reading."""
        rows = reading.rows
        if not (reading.has_queues or self._counts[rows].any()):
            return NO_QUEUES
        queues = self._rows.queues(rows, now_ms)
        counts, fronts, sums = queues.counts.sum(axis=1), queues.fronts.sum(axis=1), queues.times.sum(axis=(1, 2))
        is_due = (counts != self._counts[rows]) | ((counts > 0) & ((fronts != self._fronts[rows]) | (sums != self._sums[rows])))
        if now_ms >= self._repeat_ms:
            is_due |= counts > 0
            self._repeat_ms = now_ms + REPEAT_MS
        if not is_due.any():
            return NO_QUEUES
        some = rows[is_due]
        self._counts[some], self._fronts[some], self._sums[some] = counts[is_due], fronts[is_due], sums[is_due]
        return _entries(some, merged(WaitingFetches(*(part[is_due] for part in queues))), clock)

    # --- queues of other members

    def take(self, incarnation: int, entries: Entries, place_of: Callable[[int], int], clock: Clock) -> None:
        """Note the queues of a member; `record` follows."""
        if not len(entries):
            return
        places = np.fromiter((place_of(number) for number in entries["id"].tolist()), np.int64, len(entries))
        entries, places = entries[places >= 0], places[places >= 0]
        queues = self._of.get(incarnation)
        if queues is None:
            queues = self._of[incarnation] = MemberQueues(self._count)
        is_first = incarnation < self._rows.segment.incarnation  # at equal times its fetches are the older ones here, and newer ones there
        fronts = np.where(entries["count"] > 0, entries["front"] + (1 + clock.local(0) - is_first), 0)
        queues.counts[places], queues.fronts[places] = entries["count"], fronts
        queues.times[places] = fronts[:, None] + entries["after"]
        self._changed.append(places)

    def lose(self, incarnation: int) -> None:
        """A member is not heard any more: nothing waits for its fetches; `record` follows."""
        queues = self._of.pop(incarnation, None)
        if queues is not None:
            self._changed.append(np.flatnonzero(queues.counts))

    def record(self) -> None:
        """Write what has changed into the rows."""
        if not self._changed:
            return
        places = np.unique(np.concatenate(self._changed))
        self._changed = []
        all_queues = list(self._of.values()) or [MemberQueues(self._count)]
        by_member = WaitingFetches(
            np.stack([one.counts[places] for one in all_queues], axis=1),
            np.stack([one.fronts[places] for one in all_queues], axis=1),
            np.stack([one.times[places] for one in all_queues], axis=1),
        )
        self._rows.set_queues(self._places.rows[places], merged(by_member))

    def release(self, places: Ints) -> None:
        """These places belong to other groups from now on."""
        for queues in self._of.values():
            queues.counts[places] = queues.fronts[places] = 0
        self._changed = [np.setdiff1d(some, places) for some in self._changed]


def merged(queues: WaitingFetches) -> WaitingFetches:
    """Return one queue for each row, of queues in the second dimension."""
    counts = queues.counts.sum(axis=1)
    fronts = np.where(queues.counts > 0, queues.fronts, _NEVER).min(axis=1, initial=_NEVER)
    fronts[counts == 0] = 0
    if queues.counts.shape[1] == 1:
        return WaitingFetches(counts, fronts, queues.times[:, 0])
    weights = np.repeat(queues.counts, FETCH_TIMES, axis=1)  # each time stands for a part of its queue
    times = queues.times.reshape(len(counts), -1)
    order = np.argsort(np.where(weights > 0, times, _NEVER), axis=1, kind="stable")
    times, until = np.take_along_axis(times, order, axis=1), np.take_along_axis(weights, order, axis=1).cumsum(axis=1)
    middles = np.arange(1, 2 * FETCH_TIMES, 2) * counts[:, None]  # in parts of a fetch: `until` is in `FETCH_TIMES` parts, this in twice
    chosen = (2 * until[:, None, :] <= middles[:, :, None]).sum(axis=2)
    return WaitingFetches(counts, fronts, np.take_along_axis(times, np.minimum(chosen, times.shape[1] - 1), axis=1))


def _entries(rows: Ints, queues: WaitingFetches, clock: Clock) -> Entries:
    entries = np.zeros(len(rows), QUEUE)
    is_waiting = queues.counts > 0
    entries["id"], entries["count"] = rows, queues.counts
    entries["front"] = np.where(is_waiting, queues.fronts + (clock.bus(0) - 1), 0)
    entries["after"] = np.where(is_waiting[:, None], np.clip(queues.times - queues.fronts[:, None], 0, AFTER_MAX), 0)
    return entries
