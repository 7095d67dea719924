"""The pages of /quotas: live groups with their rule, bound and last verdicts, without loss of precision.

Groups are in the order of broker, quota type and tags, so a page continues where the last one ended, also when groups were added or
removed in between. Pages are made in a thread.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from proxy.observe.rows.group_rows import GroupRow, RowsPage, VerdictRow
from proxy.observe.state import ControlState
from proxy.quota_admin.precedence import Level
from proxy.shared_usage.assumption import FleetUsage
from quota.groups.group import Verdict
from quota.names import kept_name


def quotas_head(control: ControlState) -> dict[str, Any]:
    """Return the values above the groups; on the event loop's thread."""
    return {
        "mode": control.mode(),
        "scope": control.scope(),
        "now_ms": control.now_ms(),
        "switches": {kept_name(target): mode.value for target, mode in control.switches().items()},
        "pacing": {kept_name(target): pacing.value for target, pacing in control.pacing().items()},
        "exempt": [kept_name(principal) for principal in sorted(control.exempt())],
        "source": control.quota_source()._asdict(),
    }


def quotas_json(head: Mapping[str, Any], page: RowsPage, unanswered: Sequence[int] | None = None) -> bytes:
    """Return a page. Reading a float back gives the same bits; unlimited is null.

    Args:
        unanswered: workers whose groups are missing; None: there are no workers.
    """
    following = page.following
    links = {"groups_left_out": page.left_out, "next": None if following is None else str(following)}
    above = _encoded({**head, **links, **({} if unanswered is None else {"workers_unanswered": unanswered})})
    # Group by group: encoding thousands in one call would hold the interpreter lock.
    groups = ",".join([_encoded(_group(row)) for row in page.rows])
    return f'{above[:-1]},"groups":[{groups}]}}'.encode()


_encoded: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _group(row: GroupRow) -> dict[str, Any]:
    return {
        "broker": row.broker,
        "quota_type": row.quota_type,
        "tags": row.tags,
        "rule": row.rule,
        **({} if row.parent is None else {"parent": row.parent}),
        "bound": shown_number(row.bound) if row.is_limited else None,
        "observed": shown_number(row.observed),
        "utilization": shown_number(row.observed / row.bound) if row.is_limited and row.bound > 0 else None,
        "throttled_until_ms": row.throttled_until_ms,
        "throttle_count": row.throttle_count,
        "throttle_ms_total": row.throttle_ms_total,
        "recorded_total": shown_number(row.recorded_total),
        **({} if row.balance is None else {"tokens": shown_number(row.balance)}),
        **({} if row.fleet is None else {"fleet": shown_fleet(row.fleet)}),
        **({} if row.schedule is None else {"paced": row.schedule._asdict()}),
        "verdicts": [shown_verdict(verdict) for verdict in row.verdicts],
    }


def shown_fleet(fleet: FleetUsage) -> dict[str, Any]:
    """Return what is known about other members of the fleet as a dictionary of its fields."""
    return {name: shown_number(value) for name, value in fleet._asdict().items()}


def shown_verdict(verdict: VerdictRow) -> dict[str, Any]:
    """Return a verdict as a dictionary of its fields."""
    return {name: shown_number(value) for name, value in zip(Verdict._fields, verdict, strict=True)}


def shown_number(value: float) -> float | str:
    """Return `value`, or its name when JSON has no number for it."""
    return value if math.isfinite(value) else str(value)


def shown_levels(precedence: Iterable[Level]) -> list[Mapping[str, Any]]:
    """Return the levels of precedence of one quota, with names cut."""
    return [{"entity": _cut(level.entity.entries), "value": level.value, "wins": level.wins} for level in precedence]


def _cut(entity: Mapping[str, str | None]) -> dict[str, str | None]:
    return {kind: None if name is None else kept_name(name) for kind, name in entity.items()}
