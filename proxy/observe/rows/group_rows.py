"""Groups as plain rows in the order of broker, quota type and tags, for pages and for exchange between processes.

A row has texts in the form in which they are shown, long ones cut. It is a struct because there are many rows.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, Self

import msgspec

from proxy.observe.shown import PacedState, Urgency
from proxy.observe.snapshot import GroupView, ManagerView
from proxy.shared_usage.assumption import FleetUsage
from quota.entity import UNLIMITED, ClientQuotaType
from quota.groups.group import VERDICTS_MAX, GroupKey, QuotaGroup
from quota.groups.mutation_group import MutationGroup
from quota.names import kept_name

TAGS_SORTED_BY_MAX: Final = 3
"""A cursor with more tags would not fit the first line of a request."""
TYPES: Final = tuple(quota_type.value for quota_type in ClientQuotaType)
_PLACES: Final = {quota_type: at for at, quota_type in enumerate(TYPES)}

Number = int | float
VerdictRow = tuple[int, Number, Number, Number, int, int]
"""The fields of a `Verdict`; an integer amount stays an integer."""


class CursorError(Exception):
    """The cursor of a request is invalid."""


class Cursor(NamedTuple):
    """The group after which a page begins."""

    broker: str
    type_at: int
    group: GroupKey

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the cursor that a page returned as `next`.

        Raises:
            CursorError: it is not the cursor of a page.
        """
        try:
            decoded = json.loads(base64.urlsafe_b64decode(text.encode("ascii")))
            return msgspec.convert(decoded, cls, strict=True)
        except (ValueError, RecursionError):
            raise CursorError from None

    @property
    def quota_type(self) -> str:
        """Kafka's name of the quota type."""
        return TYPES[self.type_at]

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(json.dumps(self).encode()).decode()


class GroupRow(msgspec.Struct, frozen=True, array_like=True):
    """The state of a group at one time: a `ShownGroup`.

    Attributes:
        type_at: the quota type, as an index in `TYPES`.
        order: the sort key of the group, unique within its type.
        observed: units per second.
        measures_all: whether `observed` is the usage of all processes, or only of this one.
        recorded_total: units that this process recorded since its start.
        balance: of a token bucket; None: the group has none.
        parent: the tags of its parent group.
        verdicts: the newest ones, oldest first.
        fleet: what is known and assumed about other members of the fleet; None: there is no fleet, or the group is not shared.
        schedule: of a paced group; None: it is not one.
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
    balance: Number | None
    parent: dict[str, str] | None
    verdicts: tuple[VerdictRow, ...]
    fleet: FleetUsage | None = None
    schedule: PacedState | None = None

    @property
    def place(self) -> Cursor:
        """Its position among all groups; equal for the same group in several processes."""
        return Cursor(self.broker, self.type_at, self.order)

    @property
    def quota_type(self) -> str:
        """Kafka's name of the quota type."""
        return TYPES[self.type_at]

    @property
    def is_limited(self) -> bool:
        """Whether it has a bound."""
        return self.bound < UNLIMITED

    def urgency(self, now_ms: int) -> Urgency:
        """Return the sort key for the selection of groups."""
        return self.throttled_until_ms > now_ms, self.is_limited, self.recorded_total

    def rate(self, _now_ms: int) -> float:
        """Return units per second at the time of the row."""
        return self.observed

    def tokens(self, _now_ms: int) -> float | None:
        """Return the balance at the time of the row."""
        return self.balance

    def paced(self, _now_ms: int) -> PacedState | None:
        """Return the schedule of a paced group at the time of the row."""
        return self.schedule


class RowsPage(msgspec.Struct, frozen=True, array_like=True):
    """Rows in order, and the number of groups after them."""

    rows: list[GroupRow]
    left_out: int

    @property
    def following(self) -> Cursor | None:
        """The cursor of the next page; None: there is none."""
        return self.rows[-1].place if self.left_out and self.rows else None


def rows_page(managers: Iterable[ManagerView], after: Cursor | None, groups_max: int, now_ms: int) -> RowsPage:
    """Return the first `groups_max` groups after `after`; changes no state."""
    views: list[GroupView] = []
    left_out = 0
    for manager in sorted(managers, key=_place_of):
        place = _place_of(manager)
        if after is not None and place < after[:2]:
            continue
        if len(views) == groups_max:
            left_out += len(manager.groups)
            continue
        rest = manager.groups
        if after is not None and place == after[:2]:
            begin = after.group
            rest = [group for group in rest if order_of(group) > begin]
        chosen = heapq.nsmallest(groups_max - len(views), rest, key=order_of)
        left_out += len(rest) - len(chosen)
        views += map(manager.view, chosen)
    return RowsPage([row_of(view, now_ms) for view in views], left_out)


def row_of(view: GroupView, now_ms: int) -> GroupRow:
    """Return the row of a group; changes no state."""
    group = view.group
    return GroupRow(
        view.broker,
        _PLACES[view.quota_type],
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
        view.tokens(now_ms),
        None if group.parent is None else shown_tags(group.parent.tags),
        tuple(group.verdicts),
        view.fleet_usage,
        view.paced(now_ms),
    )


class Figures(Protocol):
    """The figures that the rows of a group have in common, whatever else a page shows."""

    @property
    def observed(self) -> Number:
        """Units per second."""

    @property
    def measures_all(self) -> bool:
        """Whether `observed` is the usage of all processes."""

    @property
    def recorded_total(self) -> Number:
        """Units recorded since the start of the process."""

    @property
    def throttled_until_ms(self) -> int:
        """End of the last throttle, in monotonic ms."""

    @property
    def throttle_count(self) -> int:
        """Number of throttles."""

    @property
    def throttle_ms_total(self) -> int:
        """Sum of throttle times in ms."""


def merged_figures(rows: Sequence[Figures]) -> dict[str, Number]:
    """Return the figures of one group over several processes, by name.

    A process that shares its usage measures that of all, so the greatest of these rates applies. Rates of those that count alone are added,
    like totals.
    """
    return {
        "observed": max((row.observed for row in rows if row.measures_all), default=0.0)
        + sum(row.observed for row in rows if not row.measures_all),
        "recorded_total": sum(row.recorded_total for row in rows),
        "throttled_until_ms": max(row.throttled_until_ms for row in rows),
        "throttle_count": sum(row.throttle_count for row in rows),
        "throttle_ms_total": sum(row.throttle_ms_total for row in rows),
    }


def merged_row(rows: list[GroupRow]) -> GroupRow:
    """Return one row for the same group in several processes."""
    first = rows[0]
    if len(rows) == 1:
        return first
    verdicts = heapq.merge(*(row.verdicts for row in rows), key=_verdict_time)
    balances = [row.balance for row in rows if row.balance is not None]
    return msgspec.structs.replace(
        first,
        **merged_figures(rows),
        balance=min(balances, default=None),
        verdicts=tuple(verdicts)[-VERDICTS_MAX:],
        fleet=max((row.fleet for row in rows if row.fleet is not None), default=None),  # the process that knows most
        schedule=merged_schedule([row.schedule for row in rows if row.schedule is not None]),
    )


def merged_schedule(schedules: Sequence[PacedState]) -> PacedState | None:
    """Return the schedule of one group over several processes: each knows what the others have passed, and has requests of its own."""
    if not schedules:
        return None
    return PacedState(schedules[0].burst_ms, max(one.lead_ms for one in schedules), sum(one.waiting for one in schedules))


def shown_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags with long texts cut."""
    return {kept_name(key): kept_name(value) for key, value in tags.items()}


def _place_of(manager: ManagerView) -> tuple[str, int]:
    return manager.broker, _PLACES[manager.quota_type]


def order_of(group: QuotaGroup | MutationGroup) -> GroupKey:
    """Return the sort key of a group: its tags, which are limited in length, or a digest of more than a few."""
    key = group.key
    return key if len(key) <= TAGS_SORTED_BY_MAX else ((hashlib.sha256(repr(key).encode("utf-8", "surrogatepass")).hexdigest(), ""),)


def _verdict_time(verdict: VerdictRow) -> int:
    return verdict[0]
