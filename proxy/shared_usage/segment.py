"""The memory that workers share: a row of 64-bit words for each quota group, in which each worker writes its own cells.

Layout, in words of 8 bytes: the header; a generation, two halves of a digest and, by worker, a mark "in use" for each row; the rows; the
rows of brokers (`broker_rows`); the throttles that departed connections left, for each row, which any worker writes under a lock of the
row. A row holds the total of each worker, what each has under way, how many fetches wait in each and since when the first one, the size of
its last answer to a fetch, when each gave out its last throttle round, and for each worker a ring of (number of a slot of time, sum). Reads
take no lock: a store of 8 aligned bytes is whole on x86-64 and aarch64, and each word has one writer. A row changes hands under a lock of
the file that nobody waits for, and that the kernel frees when its holder dies.

An odd generation: the row belongs to a group. An even one: it is free, or its writer died while changing it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import struct
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from proxy.base.errors import ProxyError
from proxy.enforcement.groups.departed_throttles import DepartedThrottles
from proxy.shared_usage.broker_rows import broker_words, claim_broker

MAGIC: Final = int.from_bytes(b"SLUICEUS", "little")
VERSION: Final = 3
WORD_BYTES: Final = 8
DIGEST_BYTES: Final = 16
PROBES_MAX: Final = 64
"""A group's row is one of this many consecutive ones; when all of them are used by others, the segment counts as full for it."""
CACHE_LINE_WORDS: Final = 8
DEPARTED_WORDS: Final = 128
DEPARTED_MAX: Final = DEPARTED_WORDS - 3
"""So many throttles of departed connections are kept for a row: all but when the longest is over, when one for all is, and how many."""
LOCK_TRIES: Final = 50
"""What is done under the lock of a row takes microseconds, unless its holder is interrupted."""
NEVER_MS: Final = -(2**62)
"""Throttle round of a worker that has given out none."""

ASLEEP_MS: Final = 1_000
"""A worker whose heartbeat, due every 100 ms, is older than this is stopped or overloaded."""

LOCKED: Final = -1
FULL: Final = -2
TAKEN: Final = -3
"""Results in place of a row: LOCKED: another process is changing rows; FULL: none is free; TAKEN: another object of this worker has it."""

_MAGIC, _VERSION, _WORKERS, _ROWS_MAX, _SLOTS, _SLOT_MS, _IDENTITY, QUOTAS_AT = range(8)
"""At `QUOTAS_AT`: the generation of the quotas that the supervisor sent to all workers last."""
_PER_WORKER: Final = 8
"""Offset of the workers' words in the header: their heartbeats."""


class SegmentError(ProxyError):
    """The memory file is not a segment of this version."""


class Segment:
    """One mapping of the segment.

    Attributes:
        descriptor: the memory file; a child process that inherits it maps it too.
        words: the whole memory.
        workers, rows_max: maximum numbers of workers and rows.
        slots, slot_ms: number and length of the slots of sums; one slot more than a group has samples, since a writer may begin one
            while a reader reads.
    """

    __slots__ = (
        "_departed",
        "_digests",
        "_generations",
        "_in_use",
        "_memory",
        "_row_words",
        "_rows",
        "descriptor",
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
        self._generations, self._digests, self._in_use, self._rows = _places(self.workers, self.rows_max)
        self._row_words = _row_words(self.workers, self.slots)
        self._departed = _departed_at(self.workers, self.rows_max, self.slots)

    @classmethod
    def create(cls, workers: int, rows_max: int, num_samples: int, slot_ms: int) -> Segment:
        """Return a new segment, for groups with `num_samples` samples of `slot_ms`; it is freed with its last mapping and descriptor."""
        slots = num_samples + 1
        descriptor = os.memfd_create("sluice-usage", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.fchmod(descriptor, 0o600)
        os.truncate(descriptor, (_departed_at(workers, rows_max, slots) + rows_max * DEPARTED_WORDS) * WORD_BYTES)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        os.pwrite(descriptor, struct.pack("7q", MAGIC, VERSION, workers, rows_max, slots, slot_ms, secrets.randbits(63)), 0)
        return cls(descriptor)

    # Header

    @property
    def identity(self) -> str:
        """A number that differs from that of all other segments."""
        return f"{self.words[_IDENTITY]:016x}"

    def beat(self, worker: int, now_ms: int) -> None:
        """Store the heartbeat of a worker."""
        self.words[_PER_WORKER + worker] = now_ms

    def heartbeat_ms(self, worker: int) -> int:
        """Return the last heartbeat of a worker; 0: there was none, or it has ended."""
        return self.words[_PER_WORKER + worker]

    def is_asleep(self, worker: int, now_ms: int) -> bool:
        """Whether a worker exists and has had no heartbeat for a second; no other worker waits for it."""
        heartbeat_ms = self.words[_PER_WORKER + worker]
        return heartbeat_ms != 0 and now_ms - heartbeat_ms >= ASLEEP_MS

    def announce_quotas(self, generation: int) -> None:
        """Quotas of this generation were sent to all workers."""
        self.words[QUOTAS_AT] = generation

    def enter(self, worker: int) -> None:
        """Begin as this worker: of its predecessor only the recorded usage is kept, not its rows, usage in flight or waiting fetches."""
        marks = self._in_use + worker * self.rows_max
        for row, mark in enumerate(self.words[marks : marks + self.rows_max].tolist()):
            if mark:
                for at in (self.under_way_at(row), self.waiting_at(row), self.fronts_at(row)):
                    self.words[at + worker] = 0
        self.words[marks : marks + self.rows_max] = _zeros(self.rows_max)

    def exit(self, worker: int) -> None:
        """Remove a worker that ends, or was found dead: its rows can be given to other groups."""
        self.enter(worker)
        self.words[_PER_WORKER + worker] = 0

    # Rows

    def claim(self, digest: bytes, worker: int, now_ms: int) -> int:
        """Return the row of a group, created if necessary, and mark it as used by `worker`; or `LOCKED`, `FULL` or `TAKEN`."""
        high, low = struct.unpack("2q", digest)
        with _lock(self.descriptor, 0) as is_locked:
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

    def generation_at(self, row: int) -> int:
        """Return the index of a number that changes when the row is given to another group."""
        return self._generations + row

    def release(self, row: int, worker: int) -> None:
        """Remove a worker's mark. The group keeps the row while other workers use it, and until its usage is older than all slots."""
        self.words[self._in_use + worker * self.rows_max + row] = 0

    def totals_at(self, row: int) -> int:
        """Return the index of the first worker's total; those of the others follow."""
        return self._rows + row * self._row_words

    def under_way_at(self, row: int) -> int:
        """Return the index of the first worker's usage in flight; those of the others follow."""
        return self.totals_at(row) + self.workers

    def waiting_at(self, row: int) -> int:
        """Return the index of the first worker's number of waiting fetches; those of the others follow."""
        return self.totals_at(row) + 2 * self.workers

    def fronts_at(self, row: int) -> int:
        """Return the index of the time of the first worker's oldest waiting fetch, 0: none; those of the others follow."""
        return self.totals_at(row) + 3 * self.workers

    def throttle_rounds_at(self, row: int) -> int:
        """Return the index of the first worker's last throttle round; those of the others follow."""
        return self.totals_at(row) + 5 * self.workers  # the sizes of the last responses precede them

    def ring_at(self, row: int, worker: int) -> int:
        """Return the index of a worker's slots: each is a number and a sum."""
        return self.totals_at(row) + 6 * self.workers + 2 * self.slots * worker

    def claim_broker(self, digest: bytes) -> memoryview | None:
        """Return the cells of all workers for a broker, whose row is made if need be; None: rows are being changed, or all are taken."""
        with _lock(self.descriptor, 0) as is_locked:
            if not is_locked:
                return None
            first = _brokers_at(self.workers, self.rows_max, self.slots)
            return claim_broker(self.words[first : first + broker_words(self.workers)], self.workers, digest)

    # Throttles that departed connections left, under the lock of a row

    def departed_until_ms(self, row: int) -> int:
        """Return when the longest of them is over, or was; 0: none is left. Without the lock."""
        return self.words[self._departed + row * DEPARTED_WORDS]

    @contextmanager
    def departed(self, row: int) -> Iterator[DepartedThrottles | None]:
        """Give out those of a row, to be changed; None: another process changes them and was interrupted, and they are as they were."""
        at = self._departed + row * DEPARTED_WORDS
        for _ in range(LOCK_TRIES):
            with _lock(self.descriptor, 1 + row) as is_locked:
                if is_locked:
                    throttles = self._read_departed(at)
                    yield throttles
                    self._write_departed(at, throttles)
                    return
        yield None

    def _read_departed(self, at: int) -> DepartedThrottles:
        _, for_all_until_ms, count = self.words[at : at + 3].tolist()
        return DepartedThrottles(self.words[at + 3 : at + 3 + count].tolist(), for_all_until_ms, DEPARTED_MAX)

    def _write_departed(self, at: int, throttles: DepartedThrottles) -> None:
        words, until_ms = self.words, throttles.until_ms
        words[at + 3 : at + 3 + len(until_ms)] = array("q", until_ms)
        words[at + 2] = len(until_ms)
        words[at + 1] = throttles.for_all_until_ms
        words[at] = throttles.longest_until_ms(0)

    def _find(self, high: int, low: int, now_ms: int) -> tuple[int, bool]:
        """Return a group's row and True, else a free one and False. Called with the lock held."""
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
            if generation == 0:  # rows after this one were never used by a group that began its search before it
                break
        return vacant, False

    def _is_left(self, row: int, now_ms: int) -> bool:
        """Whether no worker uses a row, and all that was used there is older than the slots, and no throttle is left."""
        words, rows_max = self.words, self.rows_max
        if self.departed_until_ms(row) > now_ms:
            return False
        if any(words[self._in_use + row : self._in_use + self.workers * rows_max : rows_max].tolist()):
            return False
        first = self.ring_at(row, 0)
        newest = max(words[first : first + 2 * self.slots * self.workers : 2].tolist())
        return newest + self.slots < now_ms // self.slot_ms

    def _begin(self, row: int, high: int, low: int) -> None:
        """Give a row to a group. Called with the lock held."""
        words = self.words
        generation = words[self._generations + row]
        generation += generation & 1
        words[self._generations + row] = generation
        start = self.totals_at(row)
        words[start : start + self._row_words] = _zeros(self._row_words)
        departed = self._departed + row * DEPARTED_WORDS
        words[departed : departed + 3] = _zeros(3)
        for at in range(self.throttle_rounds_at(row), self.ring_at(row, 0)):
            words[at] = NEVER_MS
        words[self._digests + 2 * row] = high
        words[self._digests + 2 * row + 1] = low
        words[self._generations + row] = generation + 1


def _zeros(count: int) -> memoryview:
    return memoryview(bytes(count * WORD_BYTES)).cast("q")


def _places(workers: int, rows_max: int) -> tuple[int, int, int, int]:
    """Return the offsets of generations, digests, marks and rows."""
    generations = _whole_lines(_PER_WORKER + workers)
    digests = generations + rows_max
    in_use = digests + 2 * rows_max
    return generations, digests, in_use, _whole_lines(in_use + workers * rows_max)


def _row_words(workers: int, slots: int) -> int:
    return _whole_lines(workers * (6 + 2 * slots))


def _brokers_at(workers: int, rows_max: int, slots: int) -> int:
    """Return where the rows of brokers begin: at a cache line."""
    return _places(workers, rows_max)[3] + rows_max * _row_words(workers, slots)


def _departed_at(workers: int, rows_max: int, slots: int) -> int:
    """Return where the throttles of departed connections begin."""
    return _brokers_at(workers, rows_max, slots) + _whole_lines(broker_words(workers))


def _whole_lines(words: int) -> int:
    """Round up to cache lines, so that two rows share none."""
    return -(-words // CACHE_LINE_WORDS) * CACHE_LINE_WORDS


@contextmanager
def _lock(descriptor: int, at: int) -> Iterator[bool]:
    """Hold the right to change what a byte of the file stands for, if no other process does; a process that dies gives it up.

    Byte 0 stands for whose the rows are, and those behind it for the departed throttles of each row.
    """
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
    except (BlockingIOError, PermissionError):
        yield False
        return
    try:
        yield True
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, at)
