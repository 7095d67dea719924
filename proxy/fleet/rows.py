"""The rows of the segment as arrays, for the fleet's hub: own usage is read, and usage of the other members is written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import reduce
from heapq import heappop, heappush
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from metering_format.fleet_notes import ASSUMED
from proxy.shared_usage.departed_rows import CHANGES_AT, DEPARTED_WORDS, FIRST_ROW_AT
from proxy.shared_usage.segment import (
    FACTOR_ONE,
    FETCH_TIMES,
    FLEET_LAG_AT,
    FLEET_NOTES,
    FLEET_READ_AT,
    FLEET_SEQUENCE_AT,
    LOCKED,
    ROWS_CHANGED_AT,
    SCHEDULE,
    Segment,
)
from proxy.shared_usage.segment_row import NO_SLOT
from proxy.shared_usage.shared_usage import FLEET_BIT

Ints = npt.NDArray[np.int64]
NO_ROWS: Final[Ints] = np.zeros(0, np.int64)

FREE: Final = -1

CLAIM_TRIES: Final = 20
CLAIM_PAUSE_S: Final = 0.0002
"""Another process changes rows for some microseconds, unless it is interrupted."""


class Places:
    """Numbers of the groups that other members use, from 0 on. There are many more rows, so arrays by place are much smaller.

    Attributes:
        rows: the row of each place; `FREE`: there is none.
        size: the highest place that was ever used, plus one.
    """

    def __init__(self, rows_max: int) -> None:
        self.rows: Ints = np.full(rows_max, FREE, np.int64)
        self.size = 0
        self._of: dict[int, int] = {}
        self._free: list[int] = []

    def add(self, row: int) -> int:
        """Return a place for a row that has none: the lowest that is free."""
        if self._free:
            place = heappop(self._free)
        else:
            place = self.size
            self.size += 1
        self.rows[place] = row
        self._of[row] = place
        return place

    def find(self, row: int) -> int | None:
        """Return the place of a row; None: it has none."""
        return self._of.get(row)

    def used(self) -> Ints:
        """Return all places with a row."""
        return np.flatnonzero(self.rows[: self.size] != FREE)

    def remove(self, places: Ints) -> None:
        """Free these places."""
        for place in places.tolist():
            del self._of[int(self.rows[place])]
            heappush(self._free, place)
        self.rows[places] = FREE


class Reading(NamedTuple):
    """What the cells of some rows contain.

    Attributes:
        rows: the rows.
        totals, under_way: of all workers.
        everything: totals and usage in flight of all members, as far as they are known here.
        rounds_ms: time of the last throttle round at any worker.
        has_queues: whether a fetch waits at any worker in one of the rows.
    """

    rows: Ints
    totals: Ints
    under_way: Ints
    everything: Ints
    rounds_ms: Ints
    has_queues: bool


class WaitingFetches(NamedTuple):
    """Waiting fetches of some rows, for each row or for each worker in it.

    Attributes:
        counts: their number.
        fronts: the time of the oldest, one more than in ms; 0: none waits.
        times: of the fetches in the middle of each of `FETCH_TIMES` equal parts of the queue, as `fronts`.
    """

    counts: Ints
    fronts: Ints
    times: Ints


class FleetRows:
    """The rows of a segment with a fleet.

    Attributes:
        segment: the shared memory.
        generations: the generation of each row.
        published: the total of this member for each row that was published.
    """

    def __init__(self, segment: Segment) -> None:
        assert segment.fleet is not None
        self.segment = segment
        self._fleet = segment.fleet
        self.generations: Ints = np.frombuffer(segment.generations, dtype=np.int64)
        self._changed = -1
        self._shared: Ints = np.zeros(0, np.int64)
        self._words: Ints = np.frombuffer(segment.rows, dtype=np.int64)
        self._row_words = segment.row_words
        self._digests: Ints = np.frombuffer(segment.digests, dtype=np.int64).reshape(-1, 2)
        self._rows: Ints = np.frombuffer(segment.rows, dtype=np.int64).reshape(-1, segment.row_words)
        self._departed: Ints = np.frombuffer(segment.departed.words, dtype=np.int64)[FIRST_ROW_AT + CHANGES_AT :: DEPARTED_WORDS]
        first = segment.totals_at(0)
        self._under_way_at, self._rounds_at = segment.under_way_at(0) - first, segment.throttle_rounds_at(0) - first
        self._totals = self._rows[:, : self._fleet]
        notes_at = segment.notes_at(0) - first
        self._waiting_at = waiting_at = segment.waiting_at(0) - first
        oldest_at = segment.oldest_fetches_at(0) - first
        self._waiting = self._rows[:, waiting_at : waiting_at + self._fleet + 1]
        self._oldest_fetches = self._rows[:, oldest_at : oldest_at + self._fleet + 1]
        times_at = segment.fetch_times_at(0, 0) - first
        self._fetch_times = self._rows[:, times_at : times_at + FETCH_TIMES * (self._fleet + 1)]
        self._notes = self._rows[:, notes_at : notes_at + FLEET_NOTES]
        self._cells = self._rows[:, : self._rounds_at + self._fleet]
        factor_at = segment.fleet_factor_at(0) - first
        self._factors = self._rows[:, factor_at]
        self.published: Ints = self._rows[:, factor_at + 1]
        self._window_max: Ints = self._rows[:, segment.window_max_at(0) - first]
        self._ring = segment.ring_at(0, self._fleet) - first
        self._slots = self._rows[:, segment.ring_at(0, 0) - first : factor_at]

    @property
    def window_ms(self) -> int:
        """Time covered by the samples of a group."""
        return (self.segment.slots - 1) * self.segment.slot_ms

    @property
    def bound_ms(self) -> int:
        """Time for which a bound allows as much as in a window (`window_max`)."""
        return (self.segment.slots - 2) * self.segment.slot_ms

    # Own usage

    def shared_rows(self) -> Ints:
        """Return the rows of groups whose usage the fleet shares."""
        changed = self.segment.words[ROWS_CHANGED_AT]
        if changed != self._changed:
            self._changed = changed
            self._shared = np.flatnonzero((self.generations & 1) & (self._digests[:, 0] & FLEET_BIT))
        return self._shared

    def digests(self, rows: Ints) -> Ints:
        """Return two words for each row."""
        return self._digests[rows]

    def totals(self, rows: Ints) -> Ints:
        """Return the total of all workers for each row."""
        return _sums(self._totals[rows])

    def all_totals(self, rows: Ints) -> Ints:
        """Return the total of all members for each row, as far as it is known here."""
        return _sums(self._rows[rows, : self._fleet + 1])

    def reading(self, rows: Ints) -> Reading:
        """Return what the cells of these rows contain: each row is far from the others, so to read them once takes less time."""
        cells, fleet = self._cells[rows], self._fleet
        totals, under_way = _sums(cells[:, :fleet]), _sums(cells[:, self._under_way_at : self._under_way_at + fleet])
        others = cells[:, fleet] + cells[:, self._under_way_at + fleet]
        has_queues = bool(cells[:, self._waiting_at : self._waiting_at + fleet].any())
        return Reading(rows, totals, under_way, totals + under_way + others, _greatest(cells[:, self._rounds_at :]), has_queues)

    def window_max(self, rows: Ints) -> Ints:
        """Return the most that the bound of each row allows in a window; 0: not known."""
        return np.asarray(self._window_max[rows])

    def in_slots(self, rows: Ints, now_ms: int) -> Ints:
        """Return the usage of all members in the last slots of each row, which are one more than a window has."""
        rings = self._slots[rows]
        is_young = rings[:, ::2] > now_ms // self.segment.slot_ms - self.segment.slots
        return np.asarray((rings[:, 1::2] * is_young).sum(axis=1))

    def queues(self, rows: Ints, now_ms: int) -> WaitingFetches:
        """Return the waiting fetches of each row at all responsive workers, by worker. Paced groups have none: these words are others."""
        workers = [worker for worker in range(self._fleet) if not self.segment.is_unresponsive(worker, now_ms)]
        times = self._fetch_times[rows].reshape(len(rows), self._fleet + 1, FETCH_TIMES)
        counts, fronts = self._waiting[rows][:, workers], self._oldest_fetches[rows][:, workers]
        paced = fronts >= SCHEDULE
        return WaitingFetches(np.where(paced, 0, counts), np.where(paced, 0, fronts), times[:, workers])

    @property
    def departed_change(self) -> int:
        """A number that is another one after each change of throttles that departed connections left, in any row."""
        return self.segment.departed.change

    def departed_changes(self, rows: Ints) -> Ints:
        """Return a number for each row that increases when the throttles that departed connections left change."""
        return np.asarray(self._departed[rows])

    # Usage of the other members

    def claim(self, digest: bytes, now_ms: int) -> int:
        """Return the row of a group, created if necessary; a negative number: there is none now."""
        for _ in range(CLAIM_TRIES):
            row = self.segment.claim(digest, self._fleet, now_ms)
            if row != LOCKED:
                return row
            time.sleep(CLAIM_PAUSE_S)
        return LOCKED

    def release(self, row: int) -> None:
        """Stop using a row."""
        self._rows[row, self._under_way_at + self._fleet] = 0
        self._waiting[row, self._fleet] = self._oldest_fetches[row, self._fleet] = 0
        self.segment.release(row, self._fleet)

    def own_slots(self, row: int) -> Iterator[tuple[int, int]]:
        """Yield (start of the slot in ms, usage in it) of all workers in the slots of a row, in no order."""
        slots = self._slots[row, : 2 * self.segment.slots * self._fleet].tolist()
        return ((number * self.segment.slot_ms, amount) for number, amount in zip(slots[::2], slots[1::2], strict=True) if amount)

    def record(self, rows: Ints, amounts: Ints, time_ms: int) -> None:
        """Add usage that happened at `time_ms`. No row occurs twice. Sums of slots precede totals, as in `SegmentRow.publish`."""
        number = time_ms // self.segment.slot_ms
        words, totals = self._words, rows * self._row_words + self._fleet
        slots = totals + (self._ring - self._fleet + 2 * (number % self.segment.slots))
        is_stale = words[slots] < number
        if is_stale.any():
            stale = slots[is_stale]
            words[stale] = NO_SLOT
            words[stale + 1] = 0
            words[stale] = number
        words[slots + 1] += amounts
        words[totals] += amounts

    def note(self, what: int, rows: Ints, amounts: Ints) -> None:
        """Add to a note of these rows, `what` of `metering_format.fleet_notes`, before the usage is recorded. No row occurs twice."""
        self._notes[rows, what - ASSUMED] += amounts

    def set_under_way(self, rows: Ints, amounts: Ints) -> None:
        """Set the usage in flight of the other members."""
        self._rows[rows, self._under_way_at + self._fleet] = amounts

    def set_queues(self, rows: Ints, queues: WaitingFetches) -> None:
        """Set the waiting fetches of the other members."""
        self._fetch_times[rows, -FETCH_TIMES:] = queues.times
        self._waiting[rows, self._fleet] = queues.counts
        self._oldest_fetches[rows, self._fleet] = queues.fronts

    def set_throttle_rounds(self, rows: Ints, time_ms: int) -> None:
        """Other members had a throttle round of these groups."""
        self._rows[rows, self._rounds_at + self._fleet] = time_ms

    def set_factors(self, rows: Ints, factors: npt.NDArray[np.float64]) -> None:
        """Set what the other members use while this one uses 1, for each row."""
        self._factors[rows] = factors * FACTOR_ONE

    def set_others(self, lag_ms: int, others: int) -> None:
        """Set the age at which usage of other members becomes known here, and how many of them are heard."""
        self.segment.words[FLEET_LAG_AT], self.segment.words[FLEET_LAG_AT + 1] = lag_ms, others

    # Positions

    def next_sequence(self) -> int:
        """Return the sequence number of the next message; it increases also when the hub is restarted."""
        self.segment.words[FLEET_SEQUENCE_AT] += 1
        return self.segment.words[FLEET_SEQUENCE_AT]

    @property
    def read(self) -> tuple[int, int]:
        """Time and position of the last message of the bus that is contained in the rows; (0, 0): none."""
        time_ms, position = self.segment.words[FLEET_READ_AT : FLEET_READ_AT + 2].tolist()
        return time_ms, position

    @read.setter
    def read(self, read: tuple[int, int]) -> None:
        self.segment.words[FLEET_READ_AT], self.segment.words[FLEET_READ_AT + 1] = read


def _sums(columns: Ints) -> Ints:
    """Return the sum of each row; there are few columns, so that this is faster than a sum along them."""
    return np.asarray(reduce(np.add, columns.T))


def _greatest(columns: Ints) -> Ints:
    return np.asarray(reduce(np.maximum, columns.T))
