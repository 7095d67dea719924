"""The members of a fleet, from the manifests and states of all their runs.

Members have different clocks. All of them know the time of the bus, and their states have its difference to monotonic time.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow.compute as pc

from metering_format.event_kinds import SKIPPED
from metering_format.fleet_notes import ASSUMED
from pipeline.file_set import FileSet
from pipeline.manifest import RunKey
from pipeline.replay.rows import Ints
from pipeline.validation.rules.workers.group_histories import MemberOf, WorkerRun, member_of

NOTICED_MS: Final = 3_000
"""Time after which a member has noticed that it is cut off."""


@dataclass(slots=True)
class Incarnation:
    """One incarnation of a member: the runs that share a segment.

    Attributes:
        member_of: the member.
        runs: runs of its workers.
        heard: name of each other incarnation that it has heard, by number; None: its files do not say.
        clock_ms: time of the bus minus monotonic time, in ms; None: its files do not say.
        begin_ms: monotonic time at which its first run begins.
        unheard_ms: monotonic times at which it was cut off, or recorded assumed usage because a member was not heard.
    """

    member_of: MemberOf
    runs: list[WorkerRun] = field(default_factory=list)
    heard: dict[str, str] | None = None
    clock_ms: int | None = None
    begin_ms: int = 2**62
    unheard_ms: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def until_ms(self) -> float:
        """Monotonic time up to which its files are complete; infinite if all its runs ended in order."""
        return min((float(run.until_ms) for run in self.runs if not run.is_over), default=math.inf)

    @property
    def is_whole(self) -> bool:
        """Whether no file of a worker has a gap."""
        return not any(run.losses for run in self.runs)


@dataclass(slots=True)
class FleetFiles:
    """The files of one fleet.

    Attributes:
        name: name of the fleet.
        incarnations: by number; each has a run of a worker.
        has_bus_time: whether all times can be converted to those of the bus; else wall-clock times are compared.
    """

    name: str
    incarnations: dict[str, Incarnation]
    has_bus_time: bool

    def offset_ms(self, run: WorkerRun) -> int:
        """Return what to add to a monotonic time of a run, in ms, so that it can be compared with times of other members."""
        if not self.has_bus_time:
            return run.offset_ms
        clock_ms = self.incarnations[run.segment].clock_ms
        assert clock_ms is not None
        return clock_ms

    def without_files(self) -> dict[str, str]:
        """Return the names of incarnations that were heard and have no file of a worker, by number."""
        heard: dict[str, str] = {}
        for one in self.incarnations.values():
            heard |= one.heard or {}
        return {number: name for number, name in heard.items() if number not in self.incarnations}


def fleets_of(runs: Mapping[RunKey, Sequence[FileSet]], workers: Sequence[WorkerRun]) -> dict[str, FleetFiles]:
    """Return the fleets of some runs, by id.

    Args:
        runs: the file sets of each run.
        workers: the runs of workers among them.
    """
    found: dict[str, dict[str, Incarnation]] = {}
    names: dict[str, str] = {}
    by_key = {run.key: run for run in workers}
    for key, file_sets in runs.items():
        member = member_of(file_sets[0].manifest)
        if member is None:
            continue
        names[member.fleet] = member.name
        one = found.setdefault(member.fleet, {}).setdefault(member.incarnation, Incarnation(member))
        _read(one, file_sets, by_key.get(key))
    fleets = {}
    for number, incarnations in found.items():
        its = {incarnation: one for incarnation, one in incarnations.items() if one.runs}
        fleets[number] = FleetFiles(names[number], its, all(one.clock_ms is not None for one in its.values()))
    return fleets


def _read(one: Incarnation, file_sets: Sequence[FileSet], run: WorkerRun | None) -> None:
    first = file_sets[0].manifest
    one.begin_ms = min(one.begin_ms, first.first_ts_ms - first.wall_offset_ms)
    states = [state for file_set in file_sets for state in _states(file_set)]
    for _, state in states:
        one.clock_ms = int(state["clock_ms"])
        one.heard = (one.heard or {}) | state["members"]
    parts = [one.unheard_ms, _cut_off_ms(states, max(file_set.manifest.last_ts_ms - first.wall_offset_ms for file_set in file_sets))]
    if run is not None:
        one.runs.append(run)
        parts += [_unheard_ms(file_set, run) for file_set in file_sets]
    one.unheard_ms = np.sort(np.concatenate(parts))


def _states(file_set: FileSet) -> list[tuple[int, Mapping[str, Any]]]:
    """Return what a run knew of its fleet, and since when in monotonic ms."""
    rows = file_set.read("states", columns=["ts_ms", "fleet"]).to_pylist()
    offset_ms = file_set.manifest.wall_offset_ms
    return [(row["ts_ms"] - offset_ms, msgspec.json.decode(row["fleet"])) for row in rows if row["fleet"] is not None]


def _cut_off_ms(states: Sequence[tuple[int, Mapping[str, Any]]], until_ms: int) -> Ints:
    """Return monotonic times, one in each second, at which a member heard nobody."""
    found = [np.zeros(0, np.int64)]
    ends_ms = [*(at_ms for at_ms, _ in states[1:]), until_ms]
    for (at_ms, state), end_ms in zip(states, ends_ms, strict=False):
        if state["is_cut_off"]:
            found.append(np.arange(at_ms - NOTICED_MS, end_ms + 1, 1_000, dtype=np.int64))
    return np.concatenate(found)


def _unheard_ms(file_set: FileSet, run: WorkerRun) -> Ints:
    assert run.member_of is not None
    events = file_set.read("events", columns=["ts_ms", "kind", "source"])
    is_note = pc.and_(pc.equal(events.column("kind"), SKIPPED), pc.equal(events.column("source"), run.member_of.source(ASSUMED)))
    found: Ints = events.filter(is_note).column("ts_ms").to_numpy().astype(np.int64)
    return found - run.offset_ms
