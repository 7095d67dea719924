"""Where decisions are missing, what follows cannot be judged until no sample that could be live then is left.

The proxy notes what its sensors held when it went on, so that samples are divided as they were; their sums are known again when
every sample that lost something has expired: N + 1 windows later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.file_set import FileSet
from pipeline.replay.decisions import Sensor
from pipeline.replay.rows import Flags, Ints, Rows


@dataclass(frozen=True, slots=True)
class Resumptions:
    """The first decisions after each loss: their numbers, and about when they were taken."""

    seqs: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    times_ms: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def unknown(self, rows: Rows, sensor: Sensor) -> Flags:
        """Return which rows are too close behind a loss."""
        unknown: Flags = np.zeros(len(rows.n), np.bool_)
        for seq, time_ms in zip(self.seqs.tolist(), self.times_ms.tolist(), strict=True):
            until_ms = time_ms + (sensor.num_samples + 1) * sensor.window_ms
            unknown |= (rows.first_seq >= seq) & (rows.sample_start_ms < until_ms)
        return unknown


def resumptions(file_set: FileSet, before: Sequence[FileSet], samples: pa.Table) -> Resumptions:
    """Find the losses that can matter to `file_set`: reported ones, and numbers that are in no manifest.

    Args:
        before: earlier file sets of the run, the latest last.
        samples: rows of the file set and of its warm-up.
    """
    ends = {int(gap["from_seq"]) + int(gap["n"]) for one in (*before, file_set) if one.manifest.dropped_decisions for gap in _gaps(one)}
    expected = 0
    earliest_ms = pc.min(samples.column("sample_start_ms")).as_py()
    for one in (*before, file_set):
        if one.manifest.first_seq > expected and one.manifest.first_ts_ms >= earliest_ms:  # else older than the warm-up, or never asked for
            ends.add(one.manifest.first_seq)
        expected = one.manifest.last_seq + 1
    if not ends:
        return Resumptions()
    first_seq = samples.column("first_seq").to_numpy().astype(np.int64)
    order = np.argsort(first_seq, kind="stable")
    last_ms = samples.column("last_event_ms").to_numpy().astype(np.int64)[order]
    seqs = np.array(sorted(ends), np.int64)
    at = np.searchsorted(first_seq[order], seqs)
    behind = at < len(order)
    return Resumptions(seqs[behind], last_ms[at[behind]])


def _gaps(file_set: FileSet) -> list[dict[str, int]]:
    rows: list[dict[str, int]] = file_set.read("gaps", columns=["from_seq", "n"]).to_pylist()
    return rows
