"""Figures of one broker that worker processes learn together: each sees a part of the requests under way, and all measure one load.

Each worker adds the time of its answers to a cell of its own in shared memory. Who finds the measurement due sums the cells of all and
writes down what it measured; the others use the newest measurement. So the load is that of one process with all connections, to the last
bit. The cost of a small request is that of the worker that learnt it last. What a kind of requests costs each worker learns for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Final, Protocol

from proxy.handler_time.broker import LOAD_WINDOW_NS, Address, BrokerHandlerTime, MakeBrokerHandlerTime
from proxy.handler_time.work import Work
from proxy.shared_usage.broker_rows import COLUMN_WORDS

CLAIM_AGAIN_NS: Final = 1_000_000_000
_BUSY, _DUE_AGAIN, _SUM, _LOAD, _UNIT, _LEARNT, _UNUSED, _DUE = range(COLUMN_WORDS)
"""Time of answers that count for the load, only ever more; then what was measured, between two copies of when it is due again, of which
a writer writes the last word first: where they differ, a writer is at work or died there. The sum is that of all `_BUSY` as measured."""
_FLOATS: Final = Struct("2d")
_BITS: Final = Struct("2q")

Cells = memoryview  # of 64-bit words


class BrokerRows(Protocol):
    """Where the workers have the cells of each broker."""

    worker: int

    def claim_broker(self, address: Address) -> Cells | None:
        """Return a broker's cells, `COLUMN_WORDS` for each worker; None: there are none now."""


class SharedBrokerHandlerTime(BrokerHandlerTime):
    """What one worker knows of one broker. Without cells it knows what a process alone does, and asks for them again."""

    __slots__ = ("_busy", "_cells", "_claim", "_claim_ns", "_sum_ns", "_worker")

    def __init__(self, claim: Callable[[], Cells | None], worker: int) -> None:
        super().__init__()
        self._claim = claim
        self._worker = worker
        self._claim_ns = 0
        self._sum_ns = 0
        self._cells: Cells | None = None
        self._busy = memoryview(bytearray(8)).cast("q")
        self._join(0)

    def charge(self, work: Work, size: int, elapsed_ns: int, passed_ns: float, now_ns: int) -> float:
        """Learn from an answer, as `BrokerHandlerTime.charge` does; the other workers learn of its time, too."""
        if work.loads:
            self._busy[0] += elapsed_ns
        return BrokerHandlerTime.charge(self, work, size, elapsed_ns, passed_ns, now_ns)

    def saw(self, work: Work, elapsed_ns: int, now_ns: int) -> None:
        """An answer took so long; nothing is learnt from it but how busy the broker is, here and elsewhere."""
        if work.loads:
            self._busy[0] += elapsed_ns
        BrokerHandlerTime.saw(self, work, elapsed_ns, now_ns)

    def _join(self, now_ns: int) -> None:
        """Count with the other workers from now on, if there are cells."""
        self._claim_ns = now_ns + CLAIM_AGAIN_NS
        self._cells = cells = self._claim()
        if cells is not None:
            first = self._worker * COLUMN_WORDS
            self._busy = cells[first : first + 1]
            self._busy[0] += self._busy_ns

    def _measure_load(self, now_ns: int) -> None:
        """Use the newest measurement of all workers, or make it."""
        if self._cells is None and now_ns >= self._claim_ns:
            self._join(now_ns)
        if self._cells is None:
            super()._measure_load(now_ns)
            return
        words = self._cells.tolist()
        self._adopt(words)
        self._measured_ns += self._busy_ns + self._waited_ns
        self._busy_ns = self._waited_ns = 0
        if now_ns >= self._load_due_ns:
            total_ns = sum(words[_BUSY::COLUMN_WORDS])
            self._use_load(self._load_of(total_ns - self._sum_ns, now_ns))
            self._sum_ns = total_ns
            self._load_due_ns = now_ns + LOAD_WINDOW_NS
        self._write(self._cells)

    def _adopt(self, words: list[int]) -> None:
        """Take over the newest measurement, and the cost of a small request from who learnt it last."""
        due_ns, learnt_ns = self._load_due_ns, self._forget_ns
        load_at = unit_at = -1
        for first in range(0, len(words), COLUMN_WORDS):
            if words[first + _DUE] != words[first + _DUE_AGAIN]:
                continue
            if words[first + _DUE] > due_ns:
                due_ns, load_at = words[first + _DUE], first
            if words[first + _LEARNT] > learnt_ns:
                learnt_ns, unit_at = words[first + _LEARNT], first
        if load_at >= 0:
            self._load_due_ns, self._sum_ns = due_ns, words[load_at + _SUM]
            self._use_load(_floats(words, load_at)[0])
        if unit_at >= 0:
            self._forget_ns, self.unit_ns = learnt_ns, _floats(words, unit_at)[1]

    def _write(self, cells: Cells) -> None:
        first = self._worker * COLUMN_WORDS
        load, unit = _BITS.unpack(_FLOATS.pack(self.load, self.unit_ns))
        cells[first + _DUE] = self._load_due_ns
        cells[first + _SUM], cells[first + _LOAD] = self._sum_ns, load
        cells[first + _UNIT], cells[first + _LEARNT] = unit, self._forget_ns
        cells[first + _DUE_AGAIN] = self._load_due_ns


def shared_by(rows: BrokerRows) -> MakeBrokerHandlerTime:
    """Return what makes the figures of a broker that workers share."""
    return lambda address: SharedBrokerHandlerTime(partial(rows.claim_broker, address), rows.worker)


def _floats(words: list[int], first: int) -> tuple[float, float]:
    """Return the load and the cost of a small request."""
    load, unit = _FLOATS.unpack(_BITS.pack(words[first + _LOAD], words[first + _UNIT]))
    return load, unit
