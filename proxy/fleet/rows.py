"""The rows of the segment as arrays, for the fleet's hub: own usage is read, and usage of the other members is written."""

from __future__ import annotations

import time
from typing import Final

import numpy as np
import numpy.typing as npt

from proxy.shared_usage.departed_rows import DEPARTED_WORDS
from proxy.shared_usage.segment import FACTOR_ONE, FLEET_LAG_AT, FLEET_READ_AT, FLEET_SEQUENCE_AT, LOCKED, ROWS_CHANGED_AT, Segment
from proxy.shared_usage.segment_row import NO_SLOT
from proxy.shared_usage.shared_usage import FLEET_BIT

Ints = npt.NDArray[np.int64]
NO_ROWS: Final[Ints] = np.zeros(0, np.int64)

CLAIM_TRIES: Final = 20
CLAIM_PAUSE_S: Final = 0.0002
"""Another process changes rows for some microseconds, unless it is interrupted."""


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
        self._departed: Ints = np.frombuffer(segment.departed.words, dtype=np.int64).reshape(-1, DEPARTED_WORDS)
        first = segment.totals_at(0)
        self._under_way_at, self._rounds_at = segment.under_way_at(0) - first, segment.throttle_rounds_at(0) - first
        self._totals = self._rows[:, : self._fleet]
        self._under_way = self._rows[:, self._under_way_at : self._under_way_at + self._fleet]
        self._rounds = self._rows[:, self._rounds_at : self._rounds_at + self._fleet]
        factor_at = segment.fleet_factor_at(0) - first
        self._factors = self._rows[:, factor_at]
        self.published: Ints = self._rows[:, factor_at + 1]
        self._ring = segment.ring_at(0, self._fleet) - first

    @property
    def window_ms(self) -> int:
        """Time covered by the samples of a group."""
        return (self.segment.slots - 1) * self.segment.slot_ms

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
        return np.asarray(self._totals[rows].sum(axis=1))

    def under_way(self, rows: Ints) -> Ints:
        """Return the usage in flight of all workers for each row."""
        return np.asarray(self._under_way[rows].sum(axis=1))

    def throttle_rounds_ms(self, rows: Ints) -> Ints:
        """Return the time of the last throttle round at any worker for each row."""
        return np.asarray(self._rounds[rows].max(axis=1))

    def departed_sums(self, rows: Ints) -> Ints:
        """Return a number for each row that changes with the throttles that departed connections left."""
        return np.asarray(self._departed[rows].sum(axis=1))

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
        self.segment.release(row, self._fleet)

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

    def set_under_way(self, rows: Ints, amounts: Ints) -> None:
        """Set the usage in flight of the other members."""
        self._rows[rows, self._under_way_at + self._fleet] = amounts

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
