"""The pages of /quotas: live groups with their rule, their bound and their last verdicts, exact to the bit.

Groups stand in the order of broker, quota type and tags, so that a page goes on where the one before it ended, however many groups came
and went in between. Whole pages are made in a thread.
"""

import base64
import hashlib
import heapq
import json
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

import msgspec

from proxy.observe.snapshot import GroupView, ManagerView, Snapshot
from quota.entity import ClientQuotaType
from quota.groups.group import GroupKey, QuotaGroup, Verdict
from quota.groups.mutation_group import MutationGroup
from quota.names import kept_name

TAGS_SORTED_BY_MAX: Final = 3
"""A cursor that names more would not fit the first line of a request."""
_TYPES: Final = {quota_type.value: at for at, quota_type in enumerate(ClientQuotaType)}


class CursorError(Exception):
    """What was given as the place to go on at is none."""


class Cursor(NamedTuple):
    """Behind which group a page begins."""

    broker: str
    type_at: int
    group: GroupKey

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the cursor that a page gave as `next`.

        Raises:
            CursorError: it gave no such one.
        """
        try:
            decoded = json.loads(base64.urlsafe_b64decode(text.encode("ascii")))
            return msgspec.convert(decoded, cls, strict=True)
        except (ValueError, RecursionError):
            raise CursorError from None

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(json.dumps(self).encode()).decode()


class _Page(NamedTuple):
    views: list[GroupView]
    following: Cursor | None
    left_out: int


def quotas_json(snapshot: Snapshot, after: Cursor | None, groups_max: int) -> bytes:
    """Return a page of at most `groups_max` groups. A float is written so that reading it gives the same bits; unlimited is null."""
    page = _page(snapshot.managers, after, groups_max)
    head = _encoded(
        {
            "mode": snapshot.mode,
            "scope": snapshot.scope,
            "now_ms": snapshot.now_ms,
            "switches": {kept_name(target): mode.value for target, mode in snapshot.switches.items()},
            "exempt": [kept_name(principal) for principal in snapshot.exempt],
            "source": snapshot.source._asdict(),
            "groups_left_out": page.left_out,
            "next": None if page.following is None else str(page.following),
        }
    )
    # Group by group: encoding thousands in one call would keep the interpreter from the event loop for all of it.
    groups = ",".join([_encoded(_group(view, snapshot.now_ms)) for view in page.views])
    return f'{head[:-1]},"groups":[{groups}]}}'.encode()


def _page(managers: list[ManagerView], after: Cursor | None, groups_max: int) -> _Page:
    views: list[GroupView] = []
    last: Cursor | None = None
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
            rest = [group for group in rest if _order_of(group) > begin]
        chosen = heapq.nsmallest(groups_max - len(views), rest, key=_order_of)
        left_out += len(rest) - len(chosen)
        views += map(manager.view, chosen)
        if chosen:
            last = Cursor(*place, _order_of(chosen[-1]))
    return _Page(views, last if left_out else None, left_out)


def _place_of(manager: ManagerView) -> tuple[str, int]:
    return manager.broker, _TYPES[manager.quota_type]


def _order_of(group: QuotaGroup | MutationGroup) -> GroupKey:
    """Return what groups are sorted and gone on by: their tags, which have a bound each, or a digest of more than a few."""
    key = group.key
    return key if len(key) <= TAGS_SORTED_BY_MAX else ((hashlib.sha256(repr(key).encode("utf-8", "surrogatepass")).hexdigest(), ""),)


_encoded = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _group(view: GroupView, now_ms: int) -> dict[str, Any]:
    group = view.group
    observed = group.rate(now_ms)
    tokens = {"tokens": _number(group.tokens(now_ms))} if isinstance(group, MutationGroup) else {}
    return {
        "broker": view.broker,
        "quota_type": view.quota_type,
        "tags": shown_tags(group.tags),
        "rule": kept_name(view.rule),
        **({} if group.parent is None else {"parent": shown_tags(group.parent.tags)}),
        "bound": _number(group.bound) if view.is_limited else None,
        "observed": _number(observed),
        "utilization": _number(observed / group.bound) if view.is_limited and group.bound > 0 else None,
        "throttled_until_ms": group.throttled_until_ms,
        "throttle_count": group.throttle_count,
        "throttle_ms_total": group.throttle_ms_total,
        "recorded_total": _number(group.recorded_total),
        **tokens,
        "verdicts": [_verdict(verdict) for verdict in tuple(group.verdicts)],
    }


def shown_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags with long texts cut."""
    return {kept_name(key): kept_name(value) for key, value in tags.items()}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "time_ms": verdict.time_ms,
        "amount": _number(verdict.amount),
        "observed": _number(verdict.observed),
        "bound": _number(verdict.bound),
        "window_ms": verdict.window_ms,
        "throttle_ms": verdict.throttle_ms,
    }


def _number(value: float) -> float | str:
    """Return `value`, or its name where JSON has no number for it."""
    return value if math.isfinite(value) else str(value)
