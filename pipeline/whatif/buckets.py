"""Controller mutations under another quota file. A token bucket keeps its balance, so all steps of a run are recomputed in order."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metering_format.event_kinds import ASKED, CHARGED, OWED, REFUSED, SETTLED
from pipeline.file_set import FileSet
from pipeline.replay.rows import Floats, Ints
from pipeline.whatif.closed import Answer, Replayed, play
from pipeline.whatif.groups import Group, GroupAssignment, Sensor
from pipeline.whatif.outcome import Outcome, Waits
from quota.groups.mutation_group import MutationGroup

_INTEGERS = ("group_ref", "ts_ms", "kind", "value", "throttle_ms", "applied_ms", "conn_id", "since_ms")


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of some buckets of a run, in decision order.

    Attributes:
        value: mutations requested; negative when they are returned.
        before, since_ms: balance before the step, NaN when it was not recorded, and the time in ms that it refers to.
    """

    group_ref: Ints
    ts_ms: Ints
    kind: Ints
    value: Ints
    throttle_ms: Ints
    applied_ms: Ints
    conn_id: Ints
    since_ms: Ints
    before: Floats
    bound: Floats

    def of(self, refs: Sequence[int]) -> "Steps":
        """Return the steps of some of the buckets."""
        at = np.flatnonzero(np.isin(self.group_ref, refs))
        return Steps(*(getattr(self, name)[at] for name in self.__slots__))

    @property
    def taken(self) -> Ints:
        """The mutations that each step took, or returned when negative, as recorded."""
        taken: Ints = np.where((self.kind == REFUSED) | (self.kind == ASKED), 0, self.value)
        return taken


def read_steps(file_sets: Sequence[FileSet], refs: Sequence[int]) -> Steps:
    """Return the steps of some buckets of one run."""
    wanted = pa.array(sorted(refs), pa.int32())
    parts = []
    for file_set in file_sets:
        table = file_set.read("events", columns=[*_INTEGERS, "before", "bound", "seq"])
        parts.append(table.filter(pc.is_in(table.column("group_ref"), value_set=wanted)).sort_by("seq"))
    table = pa.concat_tables(parts)
    whole = {name: table.column(name).fill_null(0).to_numpy().astype(np.int64) for name in _INTEGERS}
    exact = {name: table.column(name).to_numpy().astype(np.float64) for name in ("before", "bound")}  # null becomes NaN
    return Steps(**whole, **exact)


def bucket_outcome(group: Group, placed: Sequence[GroupAssignment], steps: Steps, sensor: Sensor, *, is_closed: bool) -> Outcome | None:
    """Return the decisions of one bucket under another quota file; None when it has no steps.

    Args:
        group: the new group.
        placed: the recorded buckets that it replaces. When there are several, the new bucket begins full.
        steps: steps of these and of other buckets.
        sensor: parameters of the bucket.
        is_closed: play the closed loop.
    """
    own = steps.of([item.ref for item in placed])
    if not len(own.ts_ms):
        return None
    bound = placed[0].bound
    today = dict(zip(own.group_ref.tolist(), own.bound.tolist(), strict=True))
    bucket = _Bucket(own, bound, sensor, is_alone=len(placed) == 1)
    played = _play_closed(own, bucket) if is_closed else _play_open(own, bucket)
    return Outcome(
        group,
        bound,
        sum(today.values()),
        len(own.ts_ms),
        played.units_offered,
        Waits.of(own.throttle_ms),
        Waits.of(played.throttle_ms),
        played.units_sent if is_closed else 0,
        played.units_offered if is_closed else 0,
        groups=len(placed),
        is_certain=all(item.is_certain for item in placed),
        moves=any(item.moves for item in placed),
        knows_requests=not bucket.let_more_through,
    )


class _Bucket:
    """A bucket that replays recorded steps at new times.

    Attributes:
        let_more_through: a request passed that was refused in the record, which has only the size of its first topic.
    """

    def __init__(self, steps: Steps, bound: float | None, sensor: Sensor, *, is_alone: bool) -> None:
        self._kind, self._value = steps.kind.tolist(), steps.value.tolist()
        self._bounds = steps.bound.tolist() if bound is None else None
        self._group = self._begun(steps, float(steps.bound[0]) if bound is None else bound, sensor, is_alone=is_alone)
        self.let_more_through = False

    @staticmethod
    def _begun(steps: Steps, bound: float, sensor: Sensor, *, is_alone: bool) -> MutationGroup:
        """Return the bucket at the beginning of the record, with its recorded balance, or full when it replaces several buckets."""
        is_known = is_alone and not np.isnan(steps.before[0])
        since_ms = int(steps.since_ms[0]) if is_known else int(steps.ts_ms[0]) - 2 * sensor.num_samples * sensor.window_ms
        group = MutationGroup({}, bound, num_samples=sensor.num_samples, window_ms=sensor.window_ms, last_update_ms=since_ms)
        if is_known:
            group.record_unchecked(-float(steps.before[0]), since_ms)
        return group

    def take(self, at: int, now_ms: int, *, back: int = 0) -> Answer:
        """Take one step at `now_ms`; the second value is False when it is refused and the recorded step was not.

        Args:
            at: position of the step.
            now_ms: time of the step.
            back: number of returned mutations that were never taken.
        """
        if self._bounds is not None:
            self._group.update_bound(self._bounds[at])
        kind, permits = self._kind[at], self._value[at]
        if kind == ASKED:
            return 0, True
        if kind == OWED:
            return max(self._group.record_permissive(permits, now_ms), 0), True
        if kind == SETTLED:
            self._group.record_unchecked(permits + back, now_ms)
            return 0, True
        is_refused = self._group.is_exhausted(now_ms)
        wait_ms = max(self._group.record(permits, now_ms), 0)
        self.let_more_through |= kind == REFUSED and not is_refused
        return wait_ms, kind == REFUSED or not is_refused


def _play_open(steps: Steps, bucket: _Bucket) -> Replayed:
    """Play the steps at their recorded times.

    When a request is refused now, its remaining steps are refused too, and mutations that it did not take are not returned.
    """
    waits = np.zeros(len(steps.ts_ms), np.int64)
    refused: dict[int, tuple[int, int]] = {}  # by connection: time of a request that is refused only now, and its mutations
    decisions = zip(steps.ts_ms.tolist(), steps.kind.tolist(), steps.value.tolist(), steps.conn_id.tolist(), strict=True)
    for at, (ts_ms, kind, permits, connection) in enumerate(decisions):
        refused_ms, left = refused.get(connection, (None, 0))
        if kind == SETTLED:
            back = min(left, max(-permits, 0))
            if back:
                refused[connection] = ts_ms if refused_ms is None else refused_ms, left - back
            bucket.take(at, ts_ms, back=back)
        elif kind in (CHARGED, REFUSED) and refused_ms == ts_ms:
            refused[connection] = ts_ms, left + (permits if kind == CHARGED else 0)
        else:
            waits[at], is_taken = bucket.take(at, ts_ms)
            if not is_taken:
                refused[connection] = ts_ms, permits
            elif kind == CHARGED:
                refused.pop(connection, None)
    return Replayed(waits, 0, int(steps.taken.sum()))


def _play_closed(steps: Steps, bucket: _Bucket) -> Replayed:
    """Play each connection after its waits; a refused request is retried."""
    return play(steps.ts_ms, steps.taken, np.maximum(steps.applied_ms, 0), steps.conn_id, bucket.take)
