"""The memory that workers share: a row of 64-bit words for each quota group, in which each worker writes its own cells.

Layout, in words of 8 bytes:

1. the header;
2. for each row a generation, two halves of a digest and, for each worker, a mark "in use";
3. the rows;
4. the rows of brokers (`broker_rows`);
5. for each row the throttles that departed connections left (`departed_rows`).

A row has for each worker: the total, the usage in flight, the number of waiting fetches, the time of the oldest of them, the size of the
last response to a fetch, the time of the last throttle round, the end of the longest throttle of its open connections (0: none), and a ring
of (number of a time slot, sum). With a fleet the notes of its hub (`FLEET_NOTES`) precede the times of throttle rounds, and the times of
waiting fetches (`FETCH_TIMES`) precede the rings. Where a group is paced, three of these words have another meaning, and its members have
rows of their own (`paced`). While the pacing of a group changes, some workers may write the one and some the other:
a word of the other kind is recognized by its value, and counts for nothing.

With a fleet the last number belongs to no worker: its cells contain the usage of the other members, which the fleet's hub writes. Three
words after the rings are the fleet's: the factor of the group, which is what the other members use while this one uses 1, in units of
`FACTOR_ONE`; the total of this member that was published; and the most that the bound allows in a window, in units of totals (0: not
known).

Reads take no lock: a store of 8 aligned bytes is atomic on x86-64 and aarch64, and each word has one writer. What the bound allows is
written by all workers, which have the same bound, except while quotas change. A lock of the file protects the assignment of rows to groups
(`file_lock`).

A row with an odd generation belongs to a group. A row with an even one is free, or its writer died during a change.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import struct
from typing import Final

from proxy.base.errors import ProxyError
from proxy.shared_usage.broker_rows import broker_words, claim_broker
from proxy.shared_usage.departed_rows import DEPARTED_WORDS, FIRST_ROW_AT, DepartedRows
from proxy.shared_usage.file_lock import ROWS_AT, try_lock

MAGIC: Final = int.from_bytes(b"SLUICEUS", "little")
VERSION: Final = 9
WORD_BYTES: Final = 8
DIGEST_BYTES: Final = 16
PROBES_MAX: Final = 64
"""Number of consecutive rows that are candidates for a group; the segment is full for a group if other groups use them all."""
CACHE_LINE_WORDS: Final = 8
NEVER_MS: Final = -(2**62)
"""Time of the last throttle round of a worker without one."""

SCHEDULE: Final = 1 << 61
"""Where a group is paced, a worker's virtual time in ns plus this number takes the place of the time of its oldest waiting fetch. It stays
for the worker that replaces one that died."""
ANSWER_MAX: Final = 2**31
"""The size of the largest response, plus one. Where a group is paced, the word has a higher number, about the members of the group."""

HEARTBEAT_AGE_MAX_MS: Final = 1_000
"""Age of a heartbeat, due every 100 ms, above which a worker counts as stopped or overloaded."""

LOCKED: Final = -1
FULL: Final = -2
TAKEN: Final = -3
"""Results instead of a row. LOCKED: another process changes rows. FULL: no row is free. TAKEN: another object of this worker has it."""

_MAGIC, _VERSION, _WORKERS, _ROWS_MAX, _SLOTS, _SLOT_MS, _IDENTITY, QUOTAS_AT, _HAS_FLEET = range(9)
"""QUOTAS_AT: index of the generation of the newest quotas that the supervisor has sent to all workers."""
FLEET_SEQUENCE_AT: Final = 9
"""Index of the sequence number of the last message to the fleet."""
FLEET_READ_AT: Final = 10
"""Index of two words: the time and the position of the last message of the fleet's bus that is contained in the rows."""
FLEET_HUB_AT: Final = 12
"""Index of the number of the hub that is to write the fleet's cells."""
FLEET_LAG_AT: Final = 13
"""Index of two words: the age in ms of usage of other members when it becomes known here, and the number of other members."""
ROWS_CHANGED_AT: Final = 15
"""Index of a number that increases whenever a row is assigned to a group."""
FACTOR_ONE: Final = 1 << 20
FLEET_NOTES: Final = 3
"""Number of words of a row in which the hub notes how the fleet's total differs from what the other members reported
(`metering_format.fleet_notes`). They only increase. A reader of the totals reads them afterwards, and the hub writes them before."""
FETCH_TIMES: Final = 8
"""Number of times by which the times of the waiting fetches of a worker are described: each is that of the fetch in the middle of one of as
many equal parts of the queue."""
_PER_WORKER: Final = 16
"""Index of the first worker's heartbeat in the header."""


class SegmentError(ProxyError):
    """The memory file is not a segment of this version."""


class Segment:
    """One mapping of the segment.

    Attributes:
        descriptor: the memory file; a child process that inherits it maps it too.
        words: the whole memory.
        workers, rows_max: maximum numbers of workers and rows; with a fleet `workers` includes the fleet's number.
        fleet: number of the fleet, the last one; None: there is no fleet.
        notes: number of words for notes in each row: `FLEET_NOTES`, or 0 without a fleet.
        fetch_times: number of times of waiting fetches for each worker in a row: `FETCH_TIMES`, or 0 without a fleet.
        departed: the throttles that departed connections left, by row.
        slots, slot_ms: number and length of the time slots. There is one slot more than a group has samples, since a writer may begin
            one during a read.
    """

    __slots__ = (
        "_digests",
        "_generations",
        "_in_use",
        "_memory",
        "_row_words",
        "_rows",
        "departed",
        "descriptor",
        "fetch_times",
        "fleet",
        "notes",
        "rows_max",
        "slot_ms",
        "slots",
        "words",
        "workers",
    )

    def __init__(self, descriptor: int) -> None:
        """Map the segment of a descriptor.

        Raises:
            SegmentError: it has another version, or is not a segment.
        """
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, 0)
        self.words = words = memoryview(self._memory).cast("q")
        if words[_MAGIC] != MAGIC:
            raise SegmentError("this memory file is no segment of shared usage")
        if words[_VERSION] != VERSION:
            raise SegmentError(f"the segment of shared usage has version {words[_VERSION]}, and this program has version {VERSION}")
        self.workers, self.rows_max, self.slots, self.slot_ms = words[_WORKERS : _SLOT_MS + 1].tolist()
        self.fleet = self.workers - 1 if words[_HAS_FLEET] else None
        self._generations, self._digests, self._in_use, self._rows = _places(self.workers, self.rows_max)
        has_fleet = bool(words[_HAS_FLEET])
        self.notes, self.fetch_times = (FLEET_NOTES, FETCH_TIMES) if has_fleet else (0, 0)
        self._row_words = _row_words(self.workers, self.slots, has_fleet=has_fleet)
        self.departed = DepartedRows(descriptor, words[_departed_at(self.workers, self.rows_max, self._row_words) :])

    @classmethod
    def create(cls, workers: int, rows_max: int, num_samples: int, slot_ms: int, *, has_fleet: bool = False) -> Segment:
        """Return a new segment for groups with `num_samples` samples of `slot_ms`; it is freed with its last mapping and descriptor."""
        slots = num_samples + 1
        workers += has_fleet
        descriptor = os.memfd_create("sluice-usage", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.fchmod(descriptor, 0o600)
        row_words = _row_words(workers, slots, has_fleet=has_fleet)
        os.truncate(descriptor, (_departed_at(workers, rows_max, row_words) + FIRST_ROW_AT + rows_max * DEPARTED_WORDS) * WORD_BYTES)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        header = struct.pack("9q", MAGIC, VERSION, workers, rows_max, slots, slot_ms, secrets.randbits(63), 0, has_fleet)
        os.pwrite(descriptor, header, 0)
        return cls(descriptor)

    # Header

    @property
    def identity(self) -> str:
        """A text that is unique to this segment."""
        return f"{self.words[_IDENTITY]:016x}"

    @property
    def incarnation(self) -> int:
        """The number of `identity`."""
        return self.words[_IDENTITY]

    @property
    def generations(self) -> memoryview:
        """The generation of each row; an odd one: the row belongs to a group."""
        return self.words[self._generations : self._generations + self.rows_max]

    @property
    def digests(self) -> memoryview:
        """Two words of a digest for each row."""
        return self.words[self._digests : self._digests + 2 * self.rows_max]

    @property
    def rows(self) -> memoryview:
        """The words of all rows, `row_words` for each."""
        return self.words[self._rows : self._rows + self.rows_max * self._row_words]

    @property
    def row_words(self) -> int:
        """Number of words of a row."""
        return self._row_words

    def store_heartbeat(self, worker: int, now_ms: int) -> None:
        """Store the heartbeat of a worker."""
        self.words[_PER_WORKER + worker] = now_ms

    def heartbeat_ms(self, worker: int) -> int:
        """Return the last heartbeat of a worker; 0: there was none, or it has ended."""
        return self.words[_PER_WORKER + worker]

    def is_unresponsive(self, worker: int, now_ms: int) -> bool:
        """Whether a worker exists and has had no heartbeat for a second; no other worker waits for it."""
        heartbeat_ms = self.words[_PER_WORKER + worker]
        return heartbeat_ms != 0 and now_ms - heartbeat_ms >= HEARTBEAT_AGE_MAX_MS

    def announce_quotas(self, generation: int) -> None:
        """Store the generation of quotas that were sent to all workers."""
        self.words[QUOTAS_AT] = generation

    def enter(self, worker: int, now_ms: int) -> None:
        """Register a worker. The recorded usage of its predecessor stays; rows, usage in flight and waiting fetches are released.

        If the predecessor died, the throttles of its connections apply to all new connections of their groups: its clients come back.
        """
        words = self.words
        for row in self._rows_of(worker):
            for at in (self.under_way_at(row), self.waiting_at(row)):
                words[at + worker] = 0
            if words[self.oldest_fetches_at(row) + worker] < SCHEDULE:
                words[self.oldest_fetches_at(row) + worker] = 0
            if words[self.answers_at(row) + worker] > ANSWER_MAX:
                words[self.answers_at(row) + worker] = 0
            until_ms = words[self.throttled_at(row) + worker]
            if until_ms > now_ms:
                with self.departed.locked(row) as throttles:
                    if throttles is not None:
                        throttles.leave_to_all(until_ms, now_ms)
            words[self.throttled_at(row) + worker] = 0
        marks = self._in_use + worker * self.rows_max
        words[marks : marks + self.rows_max] = _zeros(self.rows_max)

    def exit(self, worker: int, now_ms: int) -> None:
        """Remove a worker that has ended, so that other groups can get its rows."""
        self.enter(worker, now_ms)
        self.words[_PER_WORKER + worker] = 0

    def clear_throttled(self, worker: int) -> None:
        """Remove the throttles of a worker's open connections: it has closed them, and they have left their throttles to the groups."""
        for row in self._rows_of(worker):
            self.words[self.throttled_at(row) + worker] = 0

    def _rows_of(self, worker: int) -> list[int]:
        """Return the rows that a worker uses."""
        marks = self._in_use + worker * self.rows_max
        return [row for row, mark in enumerate(self.words[marks : marks + self.rows_max].tolist()) if mark]

    # Rows

    def claim(self, digest: bytes, worker: int, now_ms: int) -> int:
        """Return the row of a group, created if necessary, and mark it as used by `worker`; or `LOCKED`, `FULL` or `TAKEN`."""
        high, low = struct.unpack("2q", digest)
        with try_lock(self.descriptor, ROWS_AT) as is_locked:
            if not is_locked:
                return LOCKED
            row, is_found = self._find(high, low, now_ms)
            if row == FULL:
                return FULL
            if not is_found:
                self._begin(row, high, low)
            mark = self._in_use + worker * self.rows_max + row
            if self.words[mark]:
                return TAKEN
            self.words[mark] = 1
            return row

    def find(self, digest: bytes) -> int:
        """Return the row of a group; `LOCKED`, or `FULL` if it has none."""
        high, low = struct.unpack("2q", digest)
        with try_lock(self.descriptor, ROWS_AT) as is_locked:
            if not is_locked:
                return LOCKED
            row, is_found = self._find(high, low, 0)
            return row if is_found else FULL

    def generation_at(self, row: int) -> int:
        """Return the index of the row's generation, which changes when another group gets the row."""
        return self._generations + row

    def release(self, row: int, worker: int) -> None:
        """Remove a worker's mark. The group keeps the row while other workers use it, and until its usage is older than all slots."""
        self.words[self._in_use + worker * self.rows_max + row] = 0

    def totals_at(self, row: int) -> int:
        """Return the index of the first worker's total; those of the other workers follow."""
        return self._rows + row * self._row_words

    def under_way_at(self, row: int) -> int:
        """Return the index of the first worker's usage in flight; those of the other workers follow."""
        return self.totals_at(row) + self.workers

    def waiting_at(self, row: int) -> int:
        """Return the index of the first worker's number of waiting fetches; those of the other workers follow."""
        return self.totals_at(row) + 2 * self.workers

    def oldest_fetches_at(self, row: int) -> int:
        """Return the index of the time of the first worker's oldest waiting fetch (0: none); those of the other workers follow."""
        return self.totals_at(row) + 3 * self.workers

    def answers_at(self, row: int) -> int:
        """Return the index of the size of the first worker's last response to a fetch, plus one; those of the others follow."""
        return self.totals_at(row) + 4 * self.workers

    def throttle_rounds_at(self, row: int) -> int:
        """Return the index of the time of the first worker's last throttle round; those of the other workers follow."""
        return self.totals_at(row) + 5 * self.workers + self.notes  # the sizes of the last responses precede them

    def throttled_at(self, row: int) -> int:
        """Return the index of the end of the longest throttle of the first worker's open connections; those of the others follow."""
        return self.throttle_rounds_at(row) + self.workers

    def ring_at(self, row: int, worker: int) -> int:
        """Return the index of a worker's ring; each slot is two words, a number and a sum."""
        return self.fetch_times_at(row, self.workers) + 2 * self.slots * worker

    def fetch_times_at(self, row: int, worker: int) -> int:
        """Return the index of the first time of a worker's waiting fetches, as in `oldest_fetches_at`; there are `fetch_times`."""
        return self.throttled_at(row) + self.workers + self.fetch_times * worker

    def notes_at(self, row: int) -> int:
        """Return the index of the first note of the fleet's hub."""
        return self.totals_at(row) + 5 * self.workers

    def fleet_factor_at(self, row: int) -> int:
        """Return the index of the fleet's factor; the published total follows."""
        return self.ring_at(row, self.workers)

    def window_max_at(self, row: int) -> int:
        """Return the index of the most that the bound allows in a window."""
        return self.fleet_factor_at(row) + 2

    def claim_broker(self, digest: bytes) -> memoryview | None:
        """Return the cells of all workers for a broker, with a new row if it has none; None: rows are being changed, or none is free."""
        with try_lock(self.descriptor, ROWS_AT) as is_locked:
            if not is_locked:
                return None
            first = _brokers_at(self.workers, self.rows_max, self._row_words)
            return claim_broker(self.words[first : first + broker_words(self.workers)], self.workers, digest)

    def _find(self, high: int, low: int, now_ms: int) -> tuple[int, bool]:
        """Return a group's row and True, or a free row and False. Called with the lock held."""
        words, vacant = self.words, FULL
        for step in range(min(PROBES_MAX, self.rows_max)):
            row = (high + step) % self.rows_max
            generation = words[self._generations + row]
            if generation & 1:
                if words[self._digests + 2 * row] == high and words[self._digests + 2 * row + 1] == low:
                    return row, True
                if vacant == FULL and self._is_left(row, now_ms):
                    vacant = row
                continue
            if vacant == FULL:
                vacant = row
            if generation == 0:  # never used: a group with a search through this row has no later row
                break
        return vacant, False

    def _is_left(self, row: int, now_ms: int) -> bool:
        """Whether no worker uses a row, all its usage is older than the slots, and no throttle is left."""
        words, rows_max = self.words, self.rows_max
        if self.departed.until_ms(row) > now_ms:
            return False
        if any(words[self._in_use + row : self._in_use + self.workers * rows_max : rows_max].tolist()):
            return False
        first = self.ring_at(row, 0)
        newest = max(words[first : first + 2 * self.slots * self.workers : 2].tolist())
        return newest + self.slots < now_ms // self.slot_ms

    def _begin(self, row: int, high: int, low: int) -> None:
        """Assign a row to a group. Called with the lock held."""
        words = self.words
        generation = words[self._generations + row]
        generation += generation & 1
        words[self._generations + row] = generation
        start = self.totals_at(row)
        words[start : start + self._row_words] = _zeros(self._row_words)
        self.departed.clear(row)
        for at in range(self.throttle_rounds_at(row), self.throttled_at(row)):
            words[at] = NEVER_MS
        words[self._digests + 2 * row] = high
        words[self._digests + 2 * row + 1] = low
        words[self._generations + row] = generation + 1
        words[ROWS_CHANGED_AT] += 1


def _zeros(count: int) -> memoryview:
    return memoryview(bytes(count * WORD_BYTES)).cast("q")


def _places(workers: int, rows_max: int) -> tuple[int, int, int, int]:
    """Return the offsets of generations, digests, marks and rows."""
    generations = _whole_lines(_PER_WORKER + workers)
    digests = generations + rows_max
    in_use = digests + 2 * rows_max
    return generations, digests, in_use, _whole_lines(in_use + workers * rows_max)


def _row_words(workers: int, slots: int, *, has_fleet: bool) -> int:
    of_fleet = workers * FETCH_TIMES + FLEET_NOTES if has_fleet else 0
    return _whole_lines(workers * (7 + 2 * slots) + of_fleet + 3)


def _brokers_at(workers: int, rows_max: int, row_words: int) -> int:
    """Return the offset of the brokers' rows, which is at a cache line."""
    return _places(workers, rows_max)[3] + rows_max * row_words


def _departed_at(workers: int, rows_max: int, row_words: int) -> int:
    """Return the offset of the throttles of departed connections."""
    return _brokers_at(workers, rows_max, row_words) + _whole_lines(broker_words(workers))


def _whole_lines(words: int) -> int:
    """Round up to whole cache lines, so that no two rows share one."""
    return -(-words // CACHE_LINE_WORDS) * CACHE_LINE_WORDS
