"""RATE over a fleet: the long-run rate of a group, summed over its members, against the ceiling of one process.

Source of the ceiling: `pipeline.validation.rules.long_run`. What the members use within the lag counts as in flight, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metering_format.event_kinds import EXCUSED_MS
from metering_format.places import PACED
from pipeline.file_set import FileSet
from pipeline.replay.findings import Finding, Kind
from pipeline.replay.rows import LEAD, Floats, Ints
from pipeline.validation.rules.long_run import (
    IN_FLIGHT_MAX,
    MUTE_S_MAX,
    PACED_CEILING,
    SETTLED_MS,
    SPAN_MS_MIN,
    GroupConditions,
    ceiling,
)
from pipeline.validation.rules.whole_run.rates import LongRun
from pipeline.validation.rules.workers.group_histories import REQUEST, GroupHistory
from quota.entity import UNLIMITED
from quota.request_time import PERCENT_PER_NANOSECOND

IDLE_MS: Final = 60_000
"""Time without usage that does not count."""


@dataclass(frozen=True, slots=True)
class UnionUsage:
    """What all members used of a group, from 30 s after its first activity on, without times in which nobody used it.

    Attributes:
        from_ms, to_ms: the time; `seconds` of it count, in `parts` parts.
        units: in the unit of the bound.
        checked: number of decisions on them.
        bound: the highest bound in units per second.
    """

    from_ms: int
    to_ms: int
    seconds: float
    parts: int
    units: float
    checked: int
    bound: float

    @property
    def ratio(self) -> float:
        """The rate, as a multiple of the bound."""
        return self.units / (self.bound * self.seconds)


@dataclass(frozen=True, slots=True)
class Conditions:
    """Settings of a group at all members.

    Attributes:
        connections: sum of the highest numbers of open connections; 0 if one is unknown.
        cap_s: longest wait.
        window_s: time covered by the samples.
        is_paced: whether it had a schedule at any member.
    """

    connections: int
    cap_s: float
    window_s: float
    is_paced: bool = False


def union_usage(histories: Sequence[GroupHistory], offsets_ms: Sequence[int]) -> UnionUsage | None:
    """Return what the members used of one group; None if it has no bound, or the time is shorter than a minute.

    Args:
        histories: the group's records at all workers of all members.
        offsets_ms: what to add to the times of each history.
    """
    bound = max(history.bound for history in histories)
    if not 0.0 < bound < UNLIMITED:
        return None
    at_ms, value, checked = _own(histories, offsets_ms)
    if not len(at_ms):
        return None
    first = int(np.searchsorted(at_ms, at_ms[0] + SETTLED_MS))
    at_ms, value, checked = at_ms[first:], value[first:], checked[first:]
    gaps_ms = np.diff(at_ms)
    idle = gaps_ms >= IDLE_MS
    busy_ms = int(gaps_ms[~idle].sum())
    if busy_ms < SPAN_MS_MIN:
        return None
    identity = histories[0].identity
    unit = PERCENT_PER_NANOSECOND if identity is not None and identity[0] == REQUEST else 1.0
    units = float(value.sum()) * unit
    return UnionUsage(int(at_ms[0]), int(at_ms[-1]), busy_ms / 1_000, 1 + int(idle.sum()), units, int(checked.sum()), bound)


def _own(histories: Sequence[GroupHistory], offsets_ms: Sequence[int]) -> tuple[Ints, Floats, Ints]:
    own = [history.is_own for history in histories]
    at_ms = np.concatenate([history.ts_ms[its] + offset for history, its, offset in zip(histories, own, offsets_ms, strict=True)])
    value = np.concatenate([history.value[its].astype(np.float64) for history, its in zip(histories, own, strict=True)])
    checked = np.concatenate([history.checked[its].astype(np.int64) for history, its in zip(histories, own, strict=True)])
    order = np.argsort(at_ms, kind="stable")
    return at_ms[order], value[order], checked[order]


def conditions_of(groups: Sequence[tuple[int, FileSet]]) -> Conditions | None:
    """Return the conditions of a group; None if a member did not enforce it throughout, or its connections are unknown and matter.

    Args:
        groups: number of the group in each file set of each member.
    """
    connections: dict[tuple[str, str], int] = {}
    cap_s = window_s = 0.0
    is_paced = any(_is_paced(file_set, ref) for ref, file_set in groups)
    for ref, file_set in groups:
        conditions = GroupConditions(file_set, paced=is_paced)
        described = file_set.read("dim_group", columns=["group_ref", "num_samples", "window_ms", "cap_ms"])
        its = described.filter(pc.equal(described.column("group_ref"), ref)).to_pylist()
        if not its:
            continue
        if not conditions.may_judge or _is_excused(file_set, ref):
            return None
        cap_s = max(cap_s, MUTE_S_MAX if its[0]["cap_ms"] is None else its[0]["cap_ms"] / 1_000)
        window_s = max(window_s, its[0]["num_samples"] * its[0]["window_ms"] / 1_000)
        key = (file_set.manifest.proxy_id, file_set.manifest.run_id)
        connections[key] = max(connections.get(key, 0), int(conditions.of(np.array([ref])).connections[0]))
    if not connections or not (all(connections.values()) or is_paced):
        return None
    return Conditions(sum(connections.values()), cap_s, window_s, is_paced=is_paced)


def _is_paced(file_set: FileSet, ref: int) -> bool:
    """Whether the group had a schedule in this file set."""
    if PACED not in file_set.manifest.settings:
        return False
    rows = file_set.read("samples", columns=["group_ref", LEAD])
    return bool(pc.any(pc.and_(pc.equal(rows.column("group_ref"), ref), pc.is_valid(rows.column(LEAD)))).as_py())


def _is_excused(file_set: FileSet, ref: int) -> bool:
    samples = file_set.read("samples", columns=["group_ref", "applied_ms"])
    applied = pc.list_flatten(samples.filter(pc.equal(samples.column("group_ref"), ref)).column("applied_ms"))
    return bool(pc.any(pc.equal(applied, pa.scalar(EXCUSED_MS, pa.int32()))).as_py())


def judged(usage: UnionUsage, conditions: Conditions, lag_ms: int) -> LongRun:
    """Return the rate and its ceiling.

    Args:
        lag_ms: the highest lag between the members in this group.
    """
    mean = usage.units / max(1, usage.checked)
    k = conditions.connections * IN_FLIGHT_MAX * mean / usage.bound + usage.ratio * lag_ms / 1_000
    limit = PACED_CEILING if conditions.is_paced else ceiling(k, conditions.cap_s)
    return LongRun(usage.seconds, usage.ratio, k, limit + usage.parts * conditions.window_s / usage.seconds)


def finding_of(history: GroupHistory, usage: UnionUsage, run: LongRun, names: str) -> Finding:
    """Return the divergence of a group whose members together exceed the ceiling; `history` is the one that it is reported for."""
    at = int(np.flatnonzero(history.is_own)[0])
    what = f"rate of {names} together over the bound in {run.seconds:.0f} s, with {run.k:.3g} s of quota in flight"
    evidence = (f"{usage.from_ms} to {usage.to_ms} ms by the clock of the bus: {usage.units:.0f} units, bound {usage.bound!r}",)
    place = (history.group_ref, int(history.seq[at]), int(history.ts_ms[at]) + history.run.offset_ms)
    return Finding(Kind.RATE, *place, f"at most {run.allowed:.3f}", f"{run.ratio:.3f}", what, evidence)
