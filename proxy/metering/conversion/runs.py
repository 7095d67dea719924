"""Decisions in the meter's encoding: equal consecutive ones are one entry, until a file lists each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from metering_format.event_kinds import REMOTE as REMOTE_KIND
from metering_format.event_kinds import SKIPPED
from proxy.meter.record import (
    GROUPS_MAX,
    PASSED,
    RECORDED,
    REMOTE,
    REMOTE_SKIPPED,
    RUN_VALUE_BITS,
    RUN_VALUE_END,
    SOURCE_AT,
    TIME,
    VALUE_BITS,
    VALUE_END,
    WORD_BYTES,
)
from proxy.metering.conversion.remotes import Remotes, apart
from proxy.metering.raw import DTYPE, SegmentBatch

Ints = NDArray[np.int64]
SmallInts = NDArray[np.int32]
Flags = NDArray[np.bool_]
_OF_RECORDS: Final = ("throttle_ms", "applied_ms", "kind")
_BY_COUNTING: Final = 2**16
NO_API: Final = -1 << 16


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of consecutive decisions with equal group, time and value.

    Attributes:
        seq: number of the first one.
        count: number of decisions; more than one only without a delay.
        ts_ms, value, throttle_ms, applied_ms, kind: common to all.
    """

    group_ref: SmallInts
    seq: Ints
    count: Ints
    ts_ms: Ints
    value: Ints
    throttle_ms: SmallInts
    applied_ms: SmallInts
    kind: SmallInts

    def __len__(self) -> int:
        return len(self.seq)

    def take(self, at: Any) -> Runs:
        """Return the runs at some positions, or the flagged ones."""
        return Runs(*(getattr(self, name)[at] for name in self.__slots__))

    def only(self, flags: Flags) -> Runs:
        """Return the flagged runs."""
        return self if flags.all() else self.take(flags)

    def by_group(self) -> Runs:
        """Return the runs by group, each group in order."""
        group_ref = self.group_ref
        if not (group_ref[1:] < group_ref[:-1]).any():
            return self
        low = np.argsort(group_ref.astype(np.uint16), kind="stable")  # two bytes at a time are sorted by counting
        if int(group_ref.max()) < _BY_COUNTING:
            return self.take(low)
        high = (group_ref >> 16).astype(np.uint16)
        return self.take(low[np.argsort(high[low], kind="stable")])

    def divided_at(self, seqs: Ints) -> Runs:
        """Return the runs split at these numbers, in decision order."""
        if not len(self):
            return self
        at = np.maximum(np.searchsorted(self.seq, seqs, side="right") - 1, 0)
        inside = (seqs > self.seq[at]) & (seqs < self.seq[at] + self.count[at])
        if not inside.any():
            return self
        firsts = np.unique(seqs[inside])
        seq = np.sort(np.concatenate((self.seq, firsts)))
        at = np.searchsorted(self.seq, seq, side="right") - 1
        ends = np.minimum(np.append(seq[1:], np.iinfo(np.int64).max), self.seq[at] + self.count[at])
        return self._renumbered(at, seq, ends - seq)

    def apart(self, flags: Flags) -> Runs:
        """Return the flagged runs with one entry for each decision."""
        parts = np.where(flags, self.count, 1)
        at = np.repeat(np.arange(len(self)), parts)
        position = np.arange(len(at)) - np.repeat(np.cumsum(parts) - parts, parts)
        return self._renumbered(at, self.seq[at] + position, np.where(flags[at], 1, self.count[at]))

    def _renumbered(self, at: Ints, seq: Ints, count: Ints) -> Runs:
        columns = {name: getattr(self, name)[at] for name in self.__slots__ if name not in ("seq", "count")}
        return Runs(seq=seq, count=count, **columns)


def joined(parts: Sequence[Runs]) -> Runs:
    """Return all of these, one part after the other."""
    return Runs(*(np.concatenate([getattr(part, name) for part in parts]) for name in Runs.__slots__))


@dataclass(frozen=True, slots=True)
class RecordedDecisions:
    """Decisions with all of their attributes.

    Attributes:
        seq: number of each.
        records: one entry of DTYPE for each.
    """

    seq: Ints
    records: Any

    def only(self, flags: Flags) -> RecordedDecisions:
        """Return the flagged ones."""
        return RecordedDecisions(self.seq[flags], self.records[flags])

    def with_runs(self, runs: Runs) -> RecordedDecisions:
        """Return these merged with runs, each of which counts as one, by their numbers."""
        if not len(runs):
            return self
        records = np.zeros(len(runs), DTYPE)
        for name in ("ts_ms", "value", "group_ref", "kind"):
            records[name] = getattr(runs, name)
        records["api_index"] = NO_API
        seq = np.concatenate((self.seq, runs.seq))
        order = np.argsort(seq, kind="stable")
        return RecordedDecisions(seq[order], np.concatenate((self.records, records))[order])


def runs_of(batches: Sequence[SegmentBatch], offset_ms: int = 0) -> tuple[Runs, RecordedDecisions, Remotes]:
    """Return all decisions of some batches in order, and separately those with more attributes.

    Args:
        offset_ms: added to all times.
    """
    batches, amounts, totals = apart(batches)
    words = np.frombuffer(b"".join(batch.words for batch in batches), "<i8")
    records = np.frombuffer(b"".join(batch.records for batch in batches), DTYPE).copy()
    records["ts_ms"] += offset_ms
    at = np.flatnonzero(words >= RECORDED)
    columns = _of_words(words, at, offset_ms)
    recorded = np.flatnonzero(words[at] == RECORDED)
    for name in ("ts_ms", "value", "group_ref"):
        columns[name][recorded] = records[name]
    for name in _OF_RECORDS:
        columns[name] = np.zeros(len(at), np.int32)
        columns[name][recorded] = records[name]
    remote = np.flatnonzero((words[at] >= REMOTE) & (words[at] < PASSED))
    named = words[at[remote]]
    columns["value"][remote], columns["group_ref"][remote] = amounts, named & ((1 << SOURCE_AT) - 1)
    columns["kind"][remote] = np.where(named & REMOTE_SKIPPED, SKIPPED, REMOTE_KIND)
    runs = Runs(seq=_numbers(batches, at, columns["count"]), **columns)
    sources = (named & (REMOTE_SKIPPED - 1)) >> SOURCE_AT
    return runs, RecordedDecisions(runs.seq[recorded], records), Remotes(runs.seq[remote], sources, totals)


def _of_words(words: Ints, at: Ints, offset_ms: int) -> dict[str, Any]:
    """Return the values of decision words at some positions; a word with a time applies to those after it."""
    time_at = np.flatnonzero(words < RECORDED)
    times = words[time_at] - TIME + offset_ms
    words = words[at]
    named_at = np.flatnonzero(words >= PASSED)
    named = (words[named_at] >> VALUE_BITS & (GROUPS_MAX - 1)).astype(np.int32)
    count, value = np.ones(len(at), np.int64), words & (VALUE_END - 1)
    run_at = np.flatnonzero((words > RECORDED) & (words < 0))
    runs = -words[run_at]
    count[run_at] += runs >> RUN_VALUE_BITS
    value[run_at] = runs & (RUN_VALUE_END - 1)
    return {
        "count": count,
        "ts_ms": _lasting(times, time_at - np.arange(len(time_at)), len(at)),
        "value": value,
        "group_ref": _lasting(named, named_at, len(at)),
    }


def _lasting(values: Any, begins: Ints, length: int) -> Any:
    """Return values each of which applies from its position to the next one's."""
    return np.repeat(np.concatenate((np.zeros(1, values.dtype), values)), np.diff(begins, prepend=0, append=length))


def _numbers(batches: Sequence[SegmentBatch], at: Ints, count: Ints) -> Ints:
    """Return the number of the first decision of each run, from the first number of its batch."""
    ends = np.cumsum(np.array([len(batch.words) // WORD_BYTES for batch in batches], np.int64))
    run_ends = np.searchsorted(at, ends)
    before = np.concatenate(([0], np.cumsum(count)))
    run_begins = np.concatenate((np.zeros(1, np.int64), run_ends))[:-1]
    first_seq = np.array([batch.first_seq for batch in batches], np.int64)
    return before[:-1] + np.repeat(first_seq - before[run_begins], run_ends - run_begins)
