"""The model of one broker that worker processes share: each worker sees a part of the requests, and all use one load.

Each worker adds the durations of its responses to its own cell in shared memory. The worker that finds the measurement due sums the cells
of all workers and writes the result; the others use the newest result. So the load equals that of one process with all connections, bit
for bit. The cost of a small request is that of the worker with the newest sample. Each worker estimates the cost of each class alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Final, Protocol

from proxy.handler_time.broker import LOAD_WINDOW_NS, Address, BrokerHandlerTime, MakeBrokerHandlerTime
from proxy.handler_time.work import Work
from proxy.shared_usage.broker_rows import COLUMN_WORDS

CLAIM_INTERVAL_NS: Final = 1_000_000_000
_BUSY, _DUE_AGAIN, _SUM, _LOAD, _UNIT, _LEARNT, _UNUSED, _DUE = range(COLUMN_WORDS)
"""Words of one worker. `_BUSY` is the sum of durations that count for the load; it only grows. The others are its newest measurement:
`_DUE` and `_DUE_AGAIN` are two copies of the time of the next one. The writer writes `_DUE` first and `_DUE_AGAIN` last, so a reader skips
words while the copies differ. `_SUM` is the sum of `_BUSY` of all workers at the measurement."""
_FLOATS: Final = Struct("2d")
_BITS: Final = Struct("2q")

Cells = memoryview  # signed 64-bit words


class BrokerRows(Protocol):
    """The shared memory with the cells of each broker."""

    worker: int

    def claim_broker(self, address: Address) -> Cells | None:
        """Return a broker's cells, `COLUMN_WORDS` for each worker; None: none are free now."""


class SharedBrokerHandlerTime(BrokerHandlerTime):
    """One worker's model of one broker. Without cells it is the model of one process, and requests cells again every second."""

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
        """Update the model, as `BrokerHandlerTime.charge`, and publish the duration to the other workers."""
        if work.loads:
            self._busy[0] += elapsed_ns
        return BrokerHandlerTime.charge(self, work, size, elapsed_ns, passed_ns, now_ns)

    def saw(self, work: Work, elapsed_ns: int, now_ns: int) -> None:
        """Count the duration of a response for the load of all workers only, since its handler time is not known."""
        if work.loads:
            self._busy[0] += elapsed_ns
        BrokerHandlerTime.saw(self, work, elapsed_ns, now_ns)

    def _join(self, now_ns: int) -> None:
        """Share the load with the other workers from now on, if cells are free."""
        self._claim_ns = now_ns + CLAIM_INTERVAL_NS
        self._cells = cells = self._claim()
        if cells is not None:
            first = self._worker * COLUMN_WORDS
            self._busy = cells[first : first + 1]
            self._busy[0] += self._busy_ns

    def _measure_load(self, now_ns: int) -> None:
        """Use the newest measurement of all workers; if the next one is due, make it."""
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
        """Use the newest measurement, and the cost of a small request from the worker with the newest sample."""
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
    """Return a function that creates the shared model of a broker."""
    return lambda address: SharedBrokerHandlerTime(partial(rows.claim_broker, address), rows.worker)


def _floats(words: list[int], first: int) -> tuple[float, float]:
    """Return the load and the cost of a small request in nanoseconds."""
    load, unit = _FLOATS.unpack(_BITS.pack(words[first + _LOAD], words[first + _UNIT]))
    return load, unit
