"""Groups as rows of the live page, made once a second while somebody looks at it.

Most groups do not change from one second to the next, so each process keeps the texts of a row, and makes only its numbers again. The
thread that makes rows gives way to the event loop after a few of them.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from proxy.observe.rows.client_groups import CONNECTIONS_EXAMINED_MAX, SLICE
from proxy.observe.rows.group_rows import TYPES, Cursor, Number, merged_figures, order_of, shown_tags
from proxy.observe.snapshot import GroupView, ManagerView, take_managers
from proxy.observe.state import DataState
from proxy.shared_usage.shared_groups import Shared
from quota.entity import UNLIMITED, ClientQuotaType, KafkaPrincipal
from quota.groups.group import GroupKey, group_key
from quota.names import KeptName, kept_name

if TYPE_CHECKING:
    from proxy.observe.state import QuotaManager

ROWS_AT_ONCE: Final = 25
"""Rows that are made before the thread gives way."""
COUNTED_MS: Final = 5_000
"""Age at which the connections of groups are counted again."""
_TYPE_AT: Final = {quota_type: at for at, quota_type in enumerate(TYPES)}


class LiveQuery(msgspec.Struct, frozen=True, tag=True):
    """Query for `LiveGroups`.

    Attributes:
        groups_max: the largest number of groups; those that waited last come first.
        waited_only: whether groups that never waited are left out; their number of connections is then not counted.
    """

    groups_max: int
    waited_only: bool


class LiveRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A group at one time.

    Attributes:
        type_at: the quota type, as an index in `TYPES`.
        order: the sort key of the group, unique within its type.
        bound, observed: units per second.
        measures_all: whether `observed` is the usage of all processes, or only of this one.
        recorded_total: units that the process recorded since its start.
        connections: connections that count for the group.
    """

    broker: str
    type_at: int
    order: GroupKey
    tags: dict[str, str]
    name: str
    rule: str
    bound: Number
    observed: Number
    measures_all: bool
    recorded_total: Number
    throttled_until_ms: int
    throttle_count: int
    throttle_ms_total: int
    connections: int

    @property
    def place(self) -> Cursor:
        """Its position among all groups; equal for the same group in several processes."""
        return Cursor(self.broker, self.type_at, self.order)

    @property
    def is_limited(self) -> bool:
        """Whether it has a bound."""
        return self.bound < UNLIMITED


class _Made:
    """A row with what it was made from; while that does not change, only its numbers are made again.

    It is changed instead of replaced: ten thousand new objects a second would start long runs of the garbage collector.
    """

    __slots__ = ("group", "last_record_ms", "row", "rules", "turn")

    def __init__(self, group: object, rules: Mapping[Any, Any], row: LiveRow) -> None:
        self.group = group
        self.rules = rules
        self.row = row
        self.last_record_ms = 0
        self.turn = 0


class LiveGroups(NamedTuple):
    """The groups that waited last, and the number of those that are left out."""

    rows: Sequence[LiveRow]
    left_out: int


def give_way(at: int) -> None:
    """Let the event loop's thread run, after every few of the rows that a thread works on."""
    if at % ROWS_AT_ONCE == 0:
        time.sleep(0)


class LiveRows:
    """Makes the rows of one process."""

    def __init__(self, state: DataState) -> None:
        self._state = state
        self._made: dict[int, _Made] = {}
        self._turn = 0
        self._connections: Mapping[tuple[str, GroupKey], int] = {}
        self._counted_ms = -COUNTED_MS

    async def groups(self, query: LiveQuery) -> LiveGroups:
        """Return the groups; on the event loop's thread, which copies lists, and a thread makes the rows."""
        now_ms = self._state.now_ms()
        if not query.waited_only and now_ms - self._counted_ms >= COUNTED_MS:
            self._counted_ms = now_ms
            self._connections = await _connections_by_group(self._state)
        managers = take_managers(self._state)
        return await asyncio.to_thread(self._rows, managers, query, now_ms)

    def _rows(self, managers: Sequence[ManagerView], query: LiveQuery, now_ms: int) -> LiveGroups:
        views = list(_wanted(managers, waited_only=query.waited_only))
        chosen = views if len(views) <= query.groups_max else heapq.nlargest(query.groups_max, views, key=_last_waited)
        rows: list[LiveRow] = []
        self._turn += 1
        for view in chosen:
            rows.append(self._row(view, now_ms))
            give_way(len(rows))
        if len(self._made) > len(rows):
            self._made = {key: made for key, made in self._made.items() if made.turn == self._turn}
        return LiveGroups(rows, len(views) - len(chosen))

    def _row(self, view: GroupView, now_ms: int) -> LiveRow:
        """Return the row of a group; the row of before where nothing was recorded since its rate was 0."""
        group, rules, bound = view.group, view.manager.rules, view.group.bound
        connections = self._connections.get((view.quota_type, group.key), 0)
        made = self._made.get(id(group))
        if made is None or made.group is not group or made.rules is not rules or made.row.is_limited != view.is_limited:
            made = self._made[id(group)] = _Made(group, rules, self._new_row(view, connections, now_ms))
        elif (
            made.row.observed != 0.0
            or made.last_record_ms != group.last_record_ms
            or made.row.bound != bound
            or made.row.connections != connections
            or isinstance(group, Shared)
        ):
            made.row = msgspec.structs.replace(
                made.row,
                bound=bound,
                observed=group.rate(now_ms),
                recorded_total=view.own_total,
                throttled_until_ms=group.throttled_until_ms,
                throttle_count=group.throttle_count,
                throttle_ms_total=group.throttle_ms_total,
                connections=connections,
            )
        made.last_record_ms, made.turn = group.last_record_ms, self._turn
        return made.row

    @staticmethod
    def _new_row(view: GroupView, connections: int, now_ms: int) -> LiveRow:
        group = view.group
        return LiveRow(
            view.broker,
            _TYPE_AT[view.quota_type],
            order_of(group),
            shown_tags(group.tags),
            view.name,
            kept_name(view.rule),
            group.bound,
            group.rate(now_ms),
            view.measures_all,
            view.own_total,
            group.throttled_until_ms,
            group.throttle_count,
            group.throttle_ms_total,
            connections,
        )


def merged_groups(parts: Iterable[LiveGroups], groups_max: int) -> LiveGroups:
    """Return the groups of several processes, equal ones as one row, those that waited last first where some are left out."""
    found: dict[Cursor, list[LiveRow]] = {}
    left_out = 0
    for part in parts:
        left_out += part.left_out
        for row in part.rows:
            found.setdefault(row.place, []).append(row)
    rows = [_merged(equal) for equal in found.values()]
    if len(rows) > groups_max:
        left_out += len(rows) - groups_max
        rows = heapq.nlargest(groups_max, rows, key=lambda row: (row.throttled_until_ms, row.is_limited, row.recorded_total))
    return LiveGroups(rows, left_out)


def _merged(rows: list[LiveRow]) -> LiveRow:
    first = rows[0]
    if len(rows) == 1:
        return first
    return msgspec.structs.replace(
        first,
        **merged_figures(rows),
        connections=sum(row.connections for row in rows),
    )


def _wanted(managers: Iterable[ManagerView], *, waited_only: bool) -> Iterator[GroupView]:
    for manager in managers:
        for group in manager.groups:
            if not waited_only or group.throttled_until_ms:
                yield manager.view(group)


def _last_waited(view: GroupView) -> tuple[int, bool, float]:
    return view.group.throttled_until_ms, view.is_limited, view.group.recorded_total


async def _connections_by_group(state: DataState) -> Mapping[tuple[str, GroupKey], int]:
    """Return the number of connections of each group by quota type and key, from the first 10,000 connections.

    Callbacks are called on the event loop's thread, in slices; once for equal clients.
    """
    clients: Counter[tuple[KafkaPrincipal, str]] = Counter(islice(state.clients(), CONNECTIONS_EXAMINED_MAX))
    managers: dict[ClientQuotaType, QuotaManager] = {}
    for broker in state.brokers():
        managers.update({kind: one for kind, one in broker.managers.items() if one.enabled and kind not in managers})
    found: Counter[tuple[str, GroupKey]] = Counter()
    asked = 0
    for (principal, client_id), count in clients.items():
        for kind, manager in managers.items():
            if manager.custom_callback and isinstance(client_id, KeptName):
                continue  # an operator's callback needs whole names
            found[kind.value, group_key(manager.callback.quota_metric_tags(kind, principal, client_id))] += count
            asked += 1
            if asked % SLICE == 0:
                await asyncio.sleep(0)
    return found
