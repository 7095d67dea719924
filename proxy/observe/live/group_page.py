"""One group: its quota with the levels of precedence, its last verdicts, who shares it, who set it, and its history."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote_plus

from proxy.observe.live.history import POINT_MS, Point
from proxy.observe.live.table import rounded
from proxy.observe.rows.client_groups import SharedGroup
from proxy.observe.rows.quotas_json import shown_fleet, shown_levels, shown_number, shown_verdict
from proxy.quota_admin.precedence import levels
from quota.admin.keys import CLIENT_KEYS
from quota.admin.messages import EntityKey
from quota.callbacks.callback import CLIENT_ID_TAG, USER_TAG
from quota.entity import ClientQuotaType
from sluice.client_quota_entity import ClientQuotaEntity

MEMBERS_SHOWN_MAX: Final = 50
_KEYS: Final = {quota_type.value: key for key, quota_type in zip(CLIENT_KEYS, ClientQuotaType, strict=True)}

Quotas = Mapping[EntityKey, Mapping[str, float]]
Level = Mapping[str, Any]


def group_page(group: SharedGroup, points: Sequence[Point], last_point_ms: int | None, now_ms: int) -> dict[str, Any]:
    """Return the page without what comes from stored quotas.

    Args:
        group: the group of all processes.
        points: its history.
        last_point_ms: time of the newest point.
        now_ms: the time of sensors.
    """
    row = group.row
    named = [{"principal": who, "client_id": client_id, "connections": count} for who, client_id, count in group.named[:MEMBERS_SHOWN_MAX]]
    return {
        "broker": row.broker,
        "quota_type": row.quota_type,
        "key": _KEYS[row.quota_type],
        "name": row.name,
        "tags": row.tags,
        "rule": row.rule,
        "parent": row.parent,
        "bound": shown_number(row.bound) if row.is_limited else None,
        "observed": shown_number(row.observed),
        "tokens": None if row.balance is None else shown_number(row.balance),
        "window_ms": group.window_ms,
        "now_ms": now_ms,
        "throttled_until_ms": row.throttled_until_ms,
        "throttle_count": row.throttle_count,
        "throttle_ms_total": row.throttle_ms_total,
        "verdicts": [shown_verdict(verdict) for verdict in row.verdicts],
        "members": {"connections": group.connections, "clients": group.clients, "named": named},
        "paced": None if row.schedule is None else row.schedule._asdict(),
        "fleet": None if row.fleet is None else shown_fleet(row.fleet),
        "points": shown_points(points),
        "point_ms": POINT_MS,
        "last_point_ms": last_point_ms,
    }


def shown_points(points: Iterable[Point]) -> list[list[float | None]]:
    """Return points as [rate, bound, throttle time in ms], null where there is no number."""
    return [[None if math.isnan(value) else rounded(value) for value in point] for point in points]


def levels_of(group: SharedGroup, quotas: Quotas) -> list[Level]:
    """Return the levels of precedence for the first member of a group, or for the client in its tags; none for a declared group."""
    row = group.row
    if not row.tags.keys() <= {USER_TAG, CLIENT_ID_TAG}:
        return []
    kept = {ClientQuotaEntity(entity): values for entity, values in quotas.items()}
    return shown_levels(levels(kept, _KEYS[row.quota_type], *_client_of(group)))


def line_that_set(lines: Iterable[bytes], entity: Mapping[str, str | None], key: str) -> Any:
    """Return the newest line of the audit log that changed a quota; None: there is none. In a thread.

    Args:
        lines: the lines, the newest first.
        entity: the entity of the quota.
        key: its key.
    """
    wanted = key.encode()
    for line in lines:
        if wanted not in line:
            continue
        fields = json.loads(line)
        if fields.get("event") == "changed" and fields.get("key") == key and fields.get("entity") == dict(entity):
            return fields
    return None


def _client_of(group: SharedGroup) -> tuple[str | None, str | None]:
    """Return user and client-id whose levels are shown."""
    if group.named:
        principal, client_id, _ = group.named[0]
        return principal.partition(":")[2], client_id
    user, tagged_id = group.row.tags.get(USER_TAG) or None, group.row.tags.get(CLIENT_ID_TAG) or None
    return None if user is None else unquote_plus(user), tagged_id
