"""Checks that a group's rate over minutes conforms to its bound. This check of enforcement does not depend on the sensor's arithmetic.

Kafka's algorithm exceeds the bound, since every connection sends one more request before it waits. Let k be the seconds of quota in flight:
connections x requests in flight x mean size / bound. The steady state is `(1 + sqrt(1 + 4 k / 10.5)) / 2` times the bound, and at least
k / C when no wait is longer than C seconds. The ceiling adds one percent, which simulations need, and one window of credit, which may be
open at the first event. Single seconds are not checked: a full window's credit returns when a large sample expires.

A token bucket keeps its debt, so its long-run rate is its bound, whatever the number of connections. The ceiling adds a full bucket at the
start and the requests in flight at the end, or k / C when waits are limited to C seconds.

A paced group has one schedule, instead of a mute for each connection. Its ceiling is 1.02 times the bound, and once the burst and one
request, whatever is in flight. A group that was not paced throughout a file set is not judged there.

The number of a group's connections comes from the usage rows. Without usage rows, or when their names do not match, the group is not judged
unless it is paced: traffic during a wait would make any rate look correct.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from metering_format.event_kinds import EXCUSED_MS
from pipeline.file_set import FileSet
from pipeline.replay.buckets import Steps
from pipeline.replay.decisions import NO_CAP, Sensor
from pipeline.replay.rows import Flags, Ints, Rows
from pipeline.validation.rules.switched import ENFORCE, Switched
from pipeline.whatif.groups import plain_user
from quota.entity import UNLIMITED
from quota.request_time import PERCENT_PER_NANOSECOND

SETTLED_MS: Final = 30_000
"""Time from the first activity of a group until its rate is checked."""
SPAN_MS_MIN: Final = 60_000
STEADY_S: Final = 10.5
MARGIN: Final = 1.01
PACED_CEILING: Final = 1.02
IN_FLIGHT_MAX: Final = 5
"""Requests of one connection before its first wait: the default maximum in flight of Kafka's producers."""
MUTE_S_MAX: Final = 25.0
"""The longest single wait; after it, one request passes."""
EVERY: Final = "*"
NEVER_MS: Final = 2**62
CLIENT_COLUMNS: Final = ["client_ref", "principal", "client_id"]
"""Columns of `dim_client` that tell whose connections are open."""
_CELL: Final = ["client_ref", "node", "listener", "api_class"]
PACED_WINDOW: Final = np.dtype(
    [
        *((name, "<i8") for name in ("group_ref", "from_ms", "to_ms", "first_seq")),
        *((name, "<f8") for name in ("units", "bound", "credit")),
    ]
)
"""The activity of one paced group in one file set, with the fields of `ThrottleWindow` that its rate needs. A paced run has one of each
group in each file set, so they stay in an array."""
PacedWindows = NDArray[np.void]
"""An array of `PACED_WINDOW`."""


class ThrottleWindow(msgspec.Struct, frozen=True, gc=False):
    """The activity of one throttled group in one file set.

    Attributes:
        from_ms, to_ms: time of the first and the last event that counts.
        units: units of all events between them; percent-seconds for request time.
        checked: number of these events that were checked against the bound.
        connections: highest number of open connections; 0 when it is unknown, or when it does not matter.
        credit: units that one window, or a full bucket, may contain.
        is_bucket: the group has a token bucket.
        is_paced: the group has a schedule; all of its activity counts.
    """

    from_ms: int
    to_ms: int
    first_seq: int
    units: float
    checked: int
    bound: float
    cap_s: float
    connections: int
    credit: float
    is_bucket: bool = False
    is_paced: bool = False

    @property
    def k(self) -> float:
        """Seconds of quota in flight."""
        return self.connections * IN_FLIGHT_MAX * (self.units / self.checked) / self.bound

    @property
    def ceiling(self) -> float:
        """The highest allowed rate, as a multiple of the bound."""
        if self.is_paced:
            return PACED_CEILING
        return max(1.0, self.k / self.cap_s) * MARGIN if self.is_bucket else ceiling(self.k, self.cap_s)

    @property
    def once(self) -> float:
        """Units that may be added once, whatever the length of the time."""
        return self.credit + (self.k * self.bound if self.is_bucket else 0.0)


def ceiling(k: float, cap_s: float) -> float:
    """Return the highest long-run rate over the bound with `k` seconds of quota in flight and waits of at most `cap_s`."""
    return max((1.0 + math.sqrt(1.0 + 4.0 * k / STEADY_S)) / 2.0, k / cap_s) * MARGIN


class JudgedGroups(NamedTuple):
    """Groups whose rate is judged.

    Attributes:
        refs: their numbers, ascending.
        settled_ms: from when on the rate of each is checked.
        connections: highest number of open connections of each.
    """

    refs: Ints
    settled_ms: Ints
    connections: Ints


class GroupConditions:
    """Connections and settings of the groups of a file set, which are read on first use.

    Args:
        file_set: the file set.
        paced: also include groups without a known number of connections.
    """

    def __init__(self, file_set: FileSet, *, paced: bool = False) -> None:
        self._file_set = file_set
        self._paced = paced

    @functools.cached_property
    def _connections(self) -> dict[tuple[str, str, str], int]:
        return _connections(self._file_set)

    @functools.cached_property
    def _is_enforced_throughout(self) -> bool:
        states = self._file_set.read("states", columns=["mode", "switches"]).to_pylist()
        return all(Switched(state["mode"], state["switches"]).modes == {ENFORCE} for state in states)

    @functools.cached_property
    def _groups(self) -> pa.Table:
        columns = ["group_ref", "node", "tag_user", "tag_client_id", "tags", "first_seen_ms", "scope"]
        return self._file_set.read("dim_group", columns=columns)

    @functools.cached_property
    def _first_seen(self) -> tuple[Ints, Ints]:
        """The number of each group, ascending, and when its first request came, in ms."""
        refs, first_seen_ms = (self._groups.column(name).to_numpy().astype(np.int64) for name in ("group_ref", "first_seen_ms"))
        order = np.argsort(refs, kind="stable")
        return refs[order], first_seen_ms[order]

    @property
    def may_judge(self) -> bool:
        """Whether groups can be judged: connections were counted or do not matter, and every client was enforced at all times."""
        return (self._paced or bool(self._connections)) and self._is_enforced_throughout

    def of(self, refs: Ints, *, counted: bool = True) -> JudgedGroups:
        """Return those of some groups that are judged: all of them, or none.

        Args:
            refs: the groups, ascending.
            counted: whether their connections matter; if not they are 0, and the rows of usage are not read.
        """
        if not len(refs) or not self.may_judge:
            return JudgedGroups(*np.zeros((3, 0), np.int64))
        known, first_seen_ms = self._first_seen
        settled_ms = first_seen_ms[np.searchsorted(known, refs)] + SETTLED_MS
        if not counted or not self._connections:
            return JudgedGroups(refs, settled_ms, np.zeros(len(refs), np.int64))
        described = self._groups.filter(pc.is_in(self._groups.column("group_ref"), value_set=pa.array(refs, pa.int32())))
        groups = {row["group_ref"]: row for row in described.to_pylist()}
        connections = [_of(self._connections, groups[ref]) for ref in refs.tolist()]
        return JudgedGroups(refs, settled_ms, np.array(connections, np.int64))


class Throttled(NamedTuple):
    """Throttle windows of some groups: by group number, and those of groups that were paced throughout."""

    windows: dict[int, ThrottleWindow]
    paced: PacedWindows

    @classmethod
    def none(cls) -> "Throttled":
        """Return no windows."""
        return cls({}, np.empty(0, PACED_WINDOW))


def throttle_windows(rows: Rows, sensor: Sensor, judged: Flags, conditions: GroupConditions, *, burst_ms: int = 0) -> Throttled:
    """Return the throttle window of each group that was throttled in the rows, or is paced.

    Args:
        burst_ms: burst of paced groups.
    """
    if not conditions.may_judge:
        return Throttled.none()
    active = judged & (rows.bound < UNLIMITED)
    if not rows.paced.all():
        active &= (rows.declared["throttled_n"] > 0) | rows.paced
    begins = np.flatnonzero(rows.is_new_group)  # there are far fewer groups than rows
    throttled = rows.group_ref.take(begins[np.logical_or.reduceat(active, begins)])
    if not len(throttled):
        return Throttled.none()
    excused = np.flatnonzero(rows.waits.applied_ms == EXCUSED_MS)
    of_excused = rows.group_ref[rows.row_of[rows.waits.at[excused]]] if len(excused) else excused
    found = conditions.of(_without(throttled, of_excused), counted=not rows.paced.all())
    return _windows_of(rows, sensor, judged, found, burst_ms) if len(found.refs) else Throttled.none()


def _windows_of(rows: Rows, sensor: Sensor, judged: Flags, found: JudgedGroups, burst_ms: int) -> Throttled:
    """Return the windows of some groups, all at once: a paced run may have thousands in each file set."""
    refs, settled_ms, connections = found
    begins = np.flatnonzero(rows.is_new_group)
    numbers, of_rows = np.diff(begins, append=len(rows.n)), rows.group_ref.take(begins)
    places = np.minimum(np.searchsorted(refs, of_rows), len(refs) - 1)
    from_ms = np.where(refs.take(places) == of_rows, settled_ms.take(places), NEVER_MS)
    counts = judged & (rows.sample_start_ms >= np.repeat(from_ms, numbers))
    of_groups = np.add.reduceat(counts, begins, dtype=np.int64)
    kept = np.flatnonzero(of_groups)
    if not len(kept):
        return Throttled.none()
    places, of_groups = places[kept], of_groups[kept]
    mine = _Ranges.of(counts, begins[kept] + numbers[kept], of_groups)
    paced = of_groups if rows.paced.all() else mine.reduced(np.add, rows.paced.astype(np.int64))
    is_paced = paced == of_groups
    window_s = np.where(is_paced, burst_ms, sensor.num_samples * sensor.window_ms) / 1_000
    bound = mine.reduced(np.maximum, rows.bound)
    unit = PERCENT_PER_NANOSECOND if sensor.is_request_time else 1.0
    one_request = np.where(is_paced, _largest(rows, mine) * unit if paced.any() else 0, 0)
    first_rows, last_rows = mine.rows(mine.firsts), mine.rows(mine.ends - 1)
    of_all = (refs[places], rows.sample_start_ms[first_rows], rows.last_event_ms[last_rows], rows.first_seq[first_rows])
    units, credit = mine.reduced(np.add, rows.total) * unit, bound * window_s + one_request
    made, plain = _paced_windows(is_paced, (*of_all, units, bound, credit)), paced == 0  # in others, the pacing changed
    if not plain.any():
        return Throttled({}, made)
    columns = (
        *of_all[1:],
        units,
        mine.reduced(np.add, rows.count),
        bound,
        np.full(len(kept), MUTE_S_MAX if sensor.cap_ms == NO_CAP else sensor.cap_ms / 1_000),
        connections[places],
        credit,
    )  # in the order of the fields
    its = slice(None) if plain.all() else np.flatnonzero(plain)
    windows = [ThrottleWindow(*one) for one in zip(*(column[its].tolist() for column in columns), strict=True)]
    return Throttled(dict(zip(of_all[0][its].tolist(), windows, strict=True)), made)


def _paced_windows(is_paced: Flags, columns: Sequence[NDArray[Any]]) -> PacedWindows:
    """Return the windows of some groups; `columns` has those of all groups, in the order of the fields."""
    its = np.flatnonzero(is_paced)
    made = np.empty(len(its), PACED_WINDOW)
    if len(its):
        for name, column in zip(PACED_WINDOW.names or (), columns, strict=True):
            made[name] = column[its]
    return made


class _Ranges(NamedTuple):
    """The rows of some groups that count, a range for each group.

    Attributes:
        firsts, ends: of each range, as positions in `its`.
        its: the rows; None: all rows, since those that do not count are before the others of their group, as those of a warm-up are.
    """

    firsts: Ints
    ends: Ints
    its: Ints | None

    @classmethod
    def of(cls, counts: Flags, ends: Ints, numbers: Ints) -> "_Ranges":
        """Return the ranges of groups.

        Args:
            counts: whether each row counts.
            ends, numbers: the end of each group, and its number of rows that count, which is not 0.
        """
        ranges = cls(ends - numbers, ends, None)
        if ranges.reduced(np.logical_and, counts).all():
            return ranges
        ends = np.cumsum(numbers)
        return cls(ends - numbers, ends, np.flatnonzero(counts))

    def rows(self, at: Ints) -> Ints:
        """Return the rows at some positions."""
        return at if self.its is None else self.its[at]

    def reduced(self, ufunc: np.ufunc, column: NDArray[Any]) -> NDArray[Any]:
        """Reduce a column of rows to one value for each range."""
        return _reduced(ufunc, column if self.its is None else column.take(self.its), self.firsts, self.ends)


def _reduced(ufunc: np.ufunc, column: NDArray[Any], firsts: Ints, ends: Ints) -> NDArray[Any]:
    """Reduce ranges that ascend and are not empty. Every other result is of what is between two of them."""
    edges = np.stack((firsts, ends), axis=1).ravel()
    edges = edges[:-1] if edges[-1] == len(column) else edges
    reduced: NDArray[Any] = ufunc.reduceat(column, edges)[::2]
    return reduced


def _largest(rows: Rows, mine: _Ranges) -> Ints:
    """Return the largest value of each group in its rows of `mine`."""
    if mine.its is not None:
        return mine.reduced(np.maximum, np.maximum.reduceat(rows.value, rows.event_at))
    last_rows = mine.ends - 1
    return _reduced(np.maximum, rows.value, rows.event_at[mine.firsts], rows.event_at[last_rows] + rows.count[last_rows])


def bucket_throttle_windows(steps: Steps, conditions: GroupConditions) -> dict[int, ThrottleWindow]:
    """Return the throttle window of each token bucket that made a client wait, by group number."""
    throttled = steps.group_ref[(steps.throttle_ms > 0) & (steps.bound < UNLIMITED)]
    excused = steps.group_ref[steps.applied_ms == EXCUSED_MS]
    made = {}
    found = conditions.of(_without(throttled, excused))
    for ref, settled_ms, connections in zip(*(column.tolist() for column in found), strict=True):
        first, end = np.searchsorted(steps.group_ref, (ref, ref + 1))
        mine = first + np.flatnonzero(steps.counts[first:end] & (steps.ts_ms[first:end] >= settled_ms))
        if len(mine) and steps.permits[mine].sum() > 0:
            made[ref] = _bucket_throttle_window(steps, mine, connections)
    return made


def _without(refs: Ints, excepted: Ints) -> Ints:
    """Return the distinct numbers of `refs` that are not in `excepted`, ascending; all numbers are 0 or more."""
    counted = np.bincount(refs)
    counted[excepted[excepted < len(counted)]] = 0
    return np.flatnonzero(counted)


def _bucket_throttle_window(steps: Steps, mine: Ints, connections: int) -> ThrottleWindow:
    bound = float(steps.bound[mine].max())
    return ThrottleWindow(
        from_ms=int(steps.ts_ms[mine[0]]),
        to_ms=int(steps.ts_ms[mine[-1]]),
        first_seq=int(steps.seq[mine[0]]),
        units=float(steps.permits[mine].sum()),
        checked=int((steps.permits[mine] > 0).sum()),
        bound=bound,
        cap_s=MUTE_S_MAX,
        connections=connections,
        credit=bound * int(steps.num_samples[mine[0]]) * int(steps.window_ms[mine[0]]) / 1_000,
        is_bucket=True,
    )


def _connections(file_set: FileSet) -> dict[tuple[str, str, str], int]:
    """Return the highest number of open connections by (node, user, client-id); each of these may be `EVERY`."""
    cells = open_connections(file_set)
    if not len(cells):
        return {}
    clients = {row["client_ref"]: row for row in file_set.read("dim_client", columns=CLIENT_COLUMNS).to_pylist()}
    found: dict[tuple[str, str, str], int] = {}
    for cell in cells.to_pylist():
        client = clients.get(cell["client_ref"])
        if client is None:
            continue
        for node in (cell["node"], EVERY):
            for user in (client["principal"], EVERY):
                for client_id in (client["client_id"], EVERY):
                    place = (node, user, client_id)
                    found[place] = found.get(place, 0) + cell["connections_open"]
    return found


def open_connections(file_set: FileSet) -> pa.Table:
    """Return the highest number of open connections by client, node, listener and class of APIs, as rows of `usage`; none is 0."""
    usage = file_set.read("usage", columns=[*_CELL, "connections_open"])
    if not len(usage):  # as in most small file sets, where a query of Arrow takes a tenth of the time
        return usage
    cells = usage.group_by(_CELL).aggregate([("connections_open", "max")]).rename_columns([*_CELL, "connections_open"])
    return cells.filter(pc.greater(cells.column("connections_open"), 0))


def _of(connections: Mapping[tuple[str, str, str], int], group: Mapping[str, Any]) -> int:
    clients = clients_of(group)
    if clients is None:
        return 0
    node = str(group["node"]) if group["scope"] == "broker" and group["node"] is not None else EVERY
    return connections.get((node, *clients), 0)


def clients_of(group: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the user and the client-id whose connections a group has, each may be `EVERY`.

    None for groups of a custom callback, addresses and listeners: usage rows do not name their members.
    """
    if group["tags"] or not (group["tag_user"] or group["tag_client_id"]):
        return None
    return plain_user(group["tag_user"]) if group["tag_user"] else EVERY, group["tag_client_id"] or EVERY


def paced_windows_in(content: bytes) -> PacedWindows:
    """Return the windows in the bytes of an array of them."""
    return np.frombuffer(content, PACED_WINDOW)


def fastest(throttle_windows: Mapping[int, ThrottleWindow], paced: PacedWindows) -> list[int]:
    """Return the groups that exceeded their bounds, fastest first. A group that is too fast over a run is so in some file set."""
    ratios = {}
    for ref, one in throttle_windows.items():
        due = one.bound * max(one.to_ms - one.from_ms, 1) / 1_000
        if one.units > due or not due:
            ratios[ref] = one.units / due if due else math.inf
    of_paced = paced["bound"] * np.maximum(paced["to_ms"] - paced["from_ms"], 1) / 1_000
    for at in np.flatnonzero((paced["units"] > of_paced) | (of_paced == 0)).tolist():
        ratios[int(paced["group_ref"][at])] = float(paced["units"][at] / of_paced[at]) if of_paced[at] else math.inf
    return sorted(ratios, key=lambda ref: -ratios[ref])
