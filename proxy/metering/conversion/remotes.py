"""Usage of other processes in the meter's encoding: one decision word, and two more words with its attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from proxy.meter.record import PASSED, REMOTE_AMOUNT, REMOTE_DATA, REMOTE_TOTAL
from proxy.metering.raw import SegmentBatch

Ints = NDArray[np.int64]
_NONE: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Remotes:
    """Decisions that record usage of other processes, in order.

    Attributes:
        seq: number of each.
        source: number of the other process.
        total: its total for the group at that time.
    """

    seq: Ints
    source: Ints
    total: Ints

    def of(self, seq: Ints) -> tuple[pa.Array, Ints]:
        """Return source and total of decisions; each has to be in this object."""
        at = np.searchsorted(self.seq, seq)
        return pa.array(self.source[at].astype("U"), pa.string()), self.total[at]

    def beside(self, seq: Ints) -> dict[str, pa.Array]:
        """Return the columns `source`, `source_total` and `assumed` of decisions; null for decisions that are not in this object."""
        at = np.minimum(np.searchsorted(self.seq, seq), max(len(self.seq) - 1, 0))
        if not len(self.seq):
            return {name: pa.nulls(len(seq)) for name in ("source", "source_total", "assumed")}
        is_other = self.seq[at] != seq
        source = pa.array(self.source[at].astype("U"), pa.string(), mask=is_other)
        return {
            "source": source,
            "source_total": pa.array(self.total[at], mask=is_other),
            "assumed": pa.array(np.zeros(len(seq)), mask=is_other),
        }


def apart(batches: Sequence[SegmentBatch]) -> tuple[Sequence[SegmentBatch], Ints, Ints]:
    """Return the batches without the words that are not decisions, and these words: amounts, and totals of their sources."""
    kept, data = [], []
    for batch in batches:
        words = np.frombuffer(batch.words, "<i8")
        is_data = (words >= REMOTE_DATA) & (words < PASSED)
        if is_data.any():
            data.append(words[is_data])
            batch = batch._replace(words=words[~is_data].tobytes())
        kept.append(batch)
    every: Any = np.concatenate(data) if data else _NONE
    return kept, every[::2] - REMOTE_AMOUNT, every[1::2] - REMOTE_TOTAL
