"""The records of each worker by group: its own usage, and the usage of other workers that it recorded.

All workers use the monotonic clock of one machine. Each run derives its own wall-clock time from it.
"""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from metering_format.event_kinds import EXCUSED_MS, SKIPPED
from metering_format.manifest import Manifest
from metering_format.places import FLEET, PACED, SHARED
from pipeline.file_set import FileSet
from pipeline.manifest import RunKey
from pipeline.replay.remote import columns_of, remote_events
from pipeline.replay.rows import LEAD, Flags, Floats, Ints, Rows
from pipeline.replay.unpacking import unpack
from pipeline.validation.rules.workers.group_shares import GroupShares, Identity, Share

OWN: Final = ""
"""Source of an event that the worker itself caused."""
NAMED_BY: Final = ("quota_type", "scope", "node_id", "node", "listener", "tag_user", "tag_client_id", "tag_ip", "tags")
_NODE_ID, _NODE = NAMED_BY.index("node_id"), NAMED_BY.index("node")
SKIPPED_COLUMNS: Final = ["group_ref", "seq", "ts_ms", "kind", "value", "source", "source_total"]
REQUEST: Final = "Request"

_Chosen = Callable[[pa.Table], pa.Table]
"""Returns the rows of a share of the groups."""


@dataclass(frozen=True, slots=True)
class MemberOf:
    """The member of a fleet that wrote a run.

    Attributes:
        fleet: id of the fleet; it differs between fleets of equal names with different secrets.
        name: name of the fleet.
        member: name of the member.
        incarnation: number of its segment, by which the other members know it.
        column: source of the usage of the other members.
    """

    fleet: str
    name: str
    member: str
    incarnation: str
    column: int

    def source(self, note: int = 0) -> str:
        """Return the source of the other members' usage, or of one of `metering_format.fleet_notes`."""
        return str(self.column + note)


@dataclass(frozen=True, slots=True)
class WorkerRun:
    """One run of a worker, from its start to its end.

    Attributes:
        key: proxy_id and run_id.
        segment: name of the shared memory segment. Only workers of the same segment are compared.
        worker: number of this worker in the segment.
        beside: numbers of all workers of the segment, including this one.
        offset_ms: wall-clock time minus monotonic time.
        until_ms: monotonic time up to which its files are complete.
        is_over: the run ended in order, so all its usage was published.
        losses: number of gaps in its files.
        is_of_connections: it is the supervisor of a member of a fleet, whose "other worker" stands for all other members.
        member_of: the member of a fleet to which a worker belongs.
        burst_ms: the burst of paced groups; 0: no group is paced.
    """

    key: RunKey
    segment: str
    worker: str
    beside: tuple[str, ...]
    offset_ms: int
    until_ms: int
    is_over: bool
    losses: int
    is_of_connections: bool = False
    member_of: MemberOf | None = None
    burst_ms: int = 0

    def name_of(self, source: str) -> str:
        """Return who caused the events of a source."""
        is_fleet = self.is_of_connections or (self.member_of is not None and source == self.member_of.source())
        return "the other members" if is_fleet else f"worker {source}"

    def is_other_process(self, source: str) -> bool:
        """Whether a source is a worker or the other members, and not what a member notes or assumes about them."""
        return self.member_of is None or int(source) <= self.member_of.column


@dataclass(frozen=True, slots=True)
class Skip:
    """A total that a worker recorded without an event.

    With another worker's number as source: usage that was too old to be recorded. With its own number and amount 0: the total from which on
    the worker counts in the group.
    """

    ts_ms: int
    source: str
    amount: int
    total: int
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The events of one group in one file set or more, in the order in which they were recorded.

    Attributes:
        ts_ms: monotonic time of each event.
        source: `OWN`, or the number of the worker that caused the event.
        total: total of the source after the event, when the source is another worker.
        seq: first sequence number of the event's row.
        paced: whether the group had a schedule.
        excused: whether a request passed before its time because it keeps a group membership.
        bound: the highest bound of the group.
    """

    ts_ms: Ints
    value: Ints
    checked: Flags
    source: NDArray[Any]
    total: Ints
    seq: Ints
    paced: Flags
    excused: Flags
    bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHistory(Events):
    """One group of one run: its events in all file sets.

    Attributes:
        identity: name of the group; None when names are not written, so that no other worker's group can be matched.
    """

    run: WorkerRun
    group_ref: int
    identity: Identity | None
    skips: tuple[Skip, ...]
    is_renamed: bool = False
    """Whether the node id of its broker was not known at first."""

    @property
    def is_own(self) -> Flags:
        """Whether this worker itself caused each event."""
        own: Flags = self.source == OWN
        return own

    @property
    def is_time(self) -> bool:
        """Whether values are nanoseconds of handler time."""
        return self.identity is not None and self.identity[0] == REQUEST

    @property
    def claims(self) -> list[Skip]:
        """When the group began to share usage, and at which own total. There are several when its broker was renamed."""
        return [skip for skip in self.skips if skip.source == self.run.worker and skip.amount == 0]

    @property
    def tolerance(self) -> float:
        """Allowed difference between a total and the sum of records. Request time is added up as doubles; other units are exact."""
        return 1_000.0 + 1e-9 * float(np.abs(self.total).max(initial=0)) if self.is_time else 0.0


def member_of(manifest: Manifest) -> MemberOf | None:
    """Return the member of a fleet that wrote a file set; None: there is no fleet."""
    fleet = manifest.settings.get(FLEET)
    if fleet is None:
        return None
    return MemberOf(str(fleet["id"]), str(fleet["name"]), str(fleet["member"]), str(fleet["incarnation"]), int(fleet["column"]))


def run_of(key: RunKey, file_sets: Sequence[FileSet]) -> WorkerRun | None:
    """Return the worker that wrote a run; None when the run does not share usage."""
    first, last = file_sets[0].manifest, file_sets[-1].manifest
    shared = first.settings.get(SHARED)
    if shared is None:
        return None
    numbers = [(one.manifest.first_seq, one.manifest.last_seq + 1) for one in file_sets]
    missing = sum(begin != end for (begin, _), end in zip(numbers, [0, *(end for _, end in numbers)], strict=False))
    losses = missing + sum(len(one.read("gaps", columns=["n"])) for one in file_sets)
    until_ms = max(one.manifest.last_ts_ms for one in file_sets) - first.wall_offset_ms
    beside = tuple(str(number) for number in shared.get("numbers") or range(int(shared["workers"])))
    worker = (str(shared["segment"]), str(shared["worker"]), beside)
    is_of_connections = shared.get("of") == "connections"
    member = None if is_of_connections else member_of(first)
    burst_ms = int(first.settings.get(PACED, 0))
    return WorkerRun(key, *worker, first.wall_offset_ms, until_ms, last.final, losses, is_of_connections, member, burst_ms)


def histories_of(run: WorkerRun, file_sets: Sequence[FileSet], share: Share) -> list[GroupHistory]:
    """Return the histories of a run, one for each group of the share."""
    parts: dict[int, list[Events]] = {}
    skips: dict[int, list[Skip]] = {}
    identities: dict[int, Identity | None] = {}
    renamed: set[int] = set()
    for file_set in file_sets:
        identities |= identities_of(file_set, renamed)
    chosen = functools.partial(GroupShares.of_groups(identities, share.of).rows_of, number=share.number)
    for file_set in file_sets:
        for skip_ref, skip in _skips(file_set, run, chosen):
            skips.setdefault(skip_ref, []).append(skip)
        for ref, part in _parts(file_set, run, chosen):
            parts.setdefault(ref, []).append(part)
    return [
        replace(_joined(run, ref, identities.get(ref), parts.get(ref, ()), tuple(skips.get(ref, ()))), is_renamed=ref in renamed)
        for ref in sorted({*parts, *skips})
    ]


def _joined(run: WorkerRun, ref: int, identity: Identity | None, parts: Sequence[Events], skips: tuple[Skip, ...]) -> GroupHistory:
    none = np.zeros(0, np.int64)
    empty: dict[str, Any] = dict.fromkeys(("ts_ms", "value", "total", "seq"), none) | {
        "checked": none.astype(np.bool_),
        "paced": none.astype(np.bool_),
        "excused": none.astype(np.bool_),
        "source": none.astype(object),
    }
    columns: dict[str, Any] = {name: np.concatenate([column, *(getattr(part, name) for part in parts)]) for name, column in empty.items()}
    bound = max((part.bound for part in parts), default=0.0)
    return GroupHistory(run=run, group_ref=ref, identity=identity, bound=bound, skips=skips, **columns)


def identities_of(file_set: FileSet, renamed: set[int]) -> dict[int, Identity | None]:
    """Return the identity of each group of a file set; groups of brokers whose node id is not known are added to `renamed`."""
    groups = file_set.read("dim_group", columns=["group_ref", *NAMED_BY]).to_pylist()
    if file_set.manifest.names == "none":
        return {row["group_ref"]: None for row in groups}
    renamed.update(row["group_ref"] for row in groups if row["scope"] == "broker" and row["node_id"] is None)
    return {row["group_ref"]: _identity([row[name] for name in NAMED_BY]) for row in groups}


def _identity(named: list[Any]) -> Identity:
    """Return the identity of a group. A broker is identified by its node id when that is known."""
    if named[_NODE_ID] is not None:
        named[_NODE] = None
    return tuple(None if it is None else str(it) for it in named)


def _skips(file_set: FileSet, run: WorkerRun, chosen: _Chosen) -> Iterable[tuple[int, Skip]]:
    events = chosen(file_set.read("events", columns=SKIPPED_COLUMNS))
    for row in events.filter(pc.equal(events.column("kind"), SKIPPED)).to_pylist():
        at_ms = row["ts_ms"] - run.offset_ms
        yield row["group_ref"], Skip(at_ms, str(row["source"]), row["value"], row["source_total"] or 0, row["seq"])


def _parts(file_set: FileSet, run: WorkerRun, chosen: _Chosen) -> Iterable[tuple[int, Events]]:
    lead = [LEAD] if PACED in file_set.manifest.settings else []
    table = chosen(file_set.read("samples", columns=list(dict.fromkeys([*columns_of(file_set), *lead]))))
    if not len(table):
        return
    rows = unpack(table)
    source, total = _sources(table, rows)
    paced = rows.paced[rows.row_of]
    seq = rows.first_seq[rows.row_of]
    begins = np.flatnonzero(rows.is_new_group)
    edges = np.append(rows.event_at[begins], rows.events)
    ends = np.append(begins[1:], len(rows.n))
    for begin, end, first, behind in zip(begins.tolist(), ends.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        its = slice(first, behind)
        yield (
            int(rows.group_ref[begin]),
            Events(
                ts_ms=rows.ts_ms[its] - run.offset_ms,
                value=rows.value[its],
                checked=rows.checked[its],
                source=source[its],
                total=total[its],
                seq=seq[its],
                paced=paced[its],
                excused=rows.applied_ms[its] == EXCUSED_MS,
                bound=float(rows.bound[begin:end].max()),
            ),
        )


def _sources(table: pa.Table, rows: Rows) -> tuple[NDArray[Any], Ints]:
    source, total = np.full(rows.events, OWN, object), np.zeros(rows.events, np.int64)
    remote = remote_events(table, rows)
    source[remote.at], total[remote.at] = remote.source, remote.total
    return source, total


def next_ms(history: GroupHistory, histories: Sequence[GroupHistory]) -> float:
    """Return the start of the worker's next history in the same group in ms. Both histories may begin in the same ms.

    Args:
        history: a history of the group.
        histories: all histories of the group in the same segment.
    """
    if not history.claims:
        return math.inf
    begin = history.claims[0]
    later = [
        other
        for other in histories
        if other.run.worker == history.run.worker
        and other.claims
        and other is not history
        and (other.claims[0].ts_ms, other.claims[0].seq) > (begin.ts_ms, begin.seq)
    ]
    return min(map(_begin_ms, later), default=math.inf)


def _begin_ms(history: GroupHistory) -> int:
    """Return when a history begins in ms: at its row, or at usage before it, which is published at its own time together with the row."""
    own_ms = history.ts_ms[history.is_own]
    claim_ms = history.claims[0].ts_ms
    return min(claim_ms, int(own_ms[0])) if len(own_ms) else claim_ms


@dataclass(frozen=True, slots=True)
class Timeline:
    """The total of a worker in a group during some time.

    Attributes:
        from_ms, until_ms: monotonic time in which the total is known.
        base: total at `from_ms`.
        ts_ms, total: the total from each time on.
        is_exact: whether records at `from_ms` itself are known to be included or not.
    """

    from_ms: int
    until_ms: float
    base: int
    ts_ms: Ints
    total: Floats
    is_exact: bool


def timelines_of(history: GroupHistory, next_ms: float, history_ms: int) -> list[Timeline]:
    """Return the totals that other workers can read, one timeline for each claim.

    Args:
        history: the worker's records in the group.
        next_ms: start of the worker's next history in the same group.
        history_ms: usage of this time before the first claim is published together with it.
    """
    own = history.is_own
    ts_ms, value = history.ts_ms[own], history.value[own]
    claims = history.claims
    found = []
    for at, claim in enumerate(claims):
        last_ms = np.inf if history.run.is_over else float(history.run.until_ms)
        until_ms = min(claims[at + 1].ts_ms if at + 1 < len(claims) else last_ms, next_ms)
        begin_ms = claim.ts_ms - history_ms if at == 0 else claim.ts_ms + 1
        its = (ts_ms >= begin_ms) & (ts_ms <= until_ms)
        total = claim.total + np.cumsum(value[its]).astype(np.float64)
        found.append(Timeline(claim.ts_ms, until_ms, claim.total, ts_ms[its], total, at == 0))
    return found
