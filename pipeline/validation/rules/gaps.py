"""Finds decisions that cannot be judged, because an earlier loss can affect the samples that are live.

After a loss, the proxy records the state of its sensors, so the boundaries of samples are known. Their sums are known again when every
sample that lost something has expired: N + 1 windows later. The same is true of a run that continues the sensors of another run: the
decisions before it are in the files of that run, under other numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metering_format.places import CONTINUED
from pipeline.file_set import FileSet
from pipeline.replay.decisions import Sensor
from pipeline.replay.rows import Flags, Ints, Rows


@dataclass(frozen=True, slots=True)
class Resumptions:
    """The first decision after each loss, or of a run that continues another one: its sequence number, and its approximate time in ms."""

    seqs: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    times_ms: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def unknown(self, rows: Rows, sensor: Sensor) -> Flags:
        """Return, for each row, whether it is too close after a loss to be judged."""
        unknown: Flags = np.zeros(len(rows.n), np.bool_)
        for seq, time_ms in zip(self.seqs.tolist(), self.times_ms.tolist(), strict=True):
            until_ms = time_ms + (sensor.num_samples + 1) * sensor.window_ms
            unknown |= (rows.first_seq >= seq) & (rows.sample_start_ms < until_ms)
        return unknown


@dataclass(slots=True)
class Losses:
    """What is missing in a run, by its manifests.

    Attributes:
        reported: file sets with decisions that could not be written.
        begins: number and time in ms of the first decision of each file set whose numbers do not follow those of the file set before it.
        next_seq: number of the decision that comes next.
    """

    reported: list[FileSet] = field(default_factory=list)
    begins: list[tuple[int, int]] = field(default_factory=list)
    next_seq: int = 0

    @classmethod
    def of(cls, file_sets: Iterable[FileSet]) -> Losses:
        """Return the losses of the first file sets of a run, in order."""
        losses = cls()
        for file_set in file_sets:
            losses.add(file_set)
        return losses

    def add(self, file_set: FileSet) -> None:
        """Add the next file set of the run."""
        manifest = file_set.manifest
        if manifest.dropped_decisions:
            self.reported.append(file_set)
        if manifest.first_seq > self.next_seq:
            self.begins.append((manifest.first_seq, manifest.first_ts_ms))
        self.next_seq = manifest.last_seq + 1


def resumptions(file_set: FileSet, losses: Losses, samples: pa.Table) -> Resumptions:
    """Find the losses that can affect `file_set`: reported ones, and sequence numbers that no manifest contains.

    Args:
        file_set: the file set that is judged.
        losses: the losses of its run, up to and with the file set.
        samples: rows of the file set and of its warm-up.
    """
    ends = {int(gap["from_seq"]) + int(gap["n"]) for one in losses.reported for gap in _gaps(one)}
    if losses.begins:
        earliest_ms = pc.min(samples.column("sample_start_ms")).as_py()
        ends |= {seq for seq, ts_ms in losses.begins if ts_ms >= earliest_ms}  # else before the warm-up, or not read
    begin = beginning(file_set)
    if not ends:
        return begin
    first_seq = samples.column("first_seq").to_numpy().astype(np.int64)
    order = np.argsort(first_seq, kind="stable")
    last_ms = samples.column("last_event_ms").to_numpy().astype(np.int64)[order]
    seqs = np.array(sorted(ends), np.int64)
    at = np.searchsorted(first_seq[order], seqs)
    behind = at < len(order)
    return Resumptions(np.append(begin.seqs, seqs[behind]), np.append(begin.times_ms, last_ms[at[behind]]))


def beginning(file_set: FileSet) -> Resumptions:
    """Return the first decision of a run that continues the sensors of another run."""
    continued_ms = file_set.manifest.settings.get(CONTINUED)
    return Resumptions() if continued_ms is None else Resumptions(np.array([0], np.int64), np.array([continued_ms], np.int64))


def _gaps(file_set: FileSet) -> list[dict[str, int]]:
    rows: list[dict[str, int]] = file_set.read("gaps", columns=["from_seq", "n"]).to_pylist()
    return rows
