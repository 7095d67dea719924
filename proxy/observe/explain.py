"""The page /explain: the quota that applies to a client, its current usage, and the clients that share it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.observe.page_source import PageSource
from proxy.observe.rows.client_groups import ClientQuestion, SharedGroup, merged_groups
from proxy.observe.rows.quotas_json import shown_fleet, shown_levels, shown_number, shown_verdict
from proxy.quota_admin.precedence import Level, ip_levels, levels
from quota.admin.keys import CLIENT_KEYS, IP_KEYS
from quota.admin.messages import EntityKey
from quota.entity import ClientQuotaType
from quota.names import kept_name
from sluice.client_quota_entity import ClientQuotaEntity

SHARERS_MAX: Final = 20
"""Maximum number of clients that are named; the others are counted."""

_TYPES: Final = dict(zip(CLIENT_KEYS, ClientQuotaType, strict=True))
Quotas = Mapping[EntityKey, Mapping[str, float]]


class NoWorkerError(Exception):
    """No worker answers, so nothing is known about the client."""


async def explain(
    source: PageSource, quotas: Quotas, user: str | None, client_id: str | None, ip: str | None, listener: str = "", address: str = ""
) -> dict[str, Any]:
    """Return the page; on the event loop's thread, without changing a sensor.

    Args:
        source: the running proxy.
        quotas: the stored quotas.
        user: None: a client without a login.
        client_id: None: none.
        ip: an IP address, without user and client-id.
        listener, address: of the client, for switches and declared groups that depend on them.

    Raises:
        NoWorkerError: no worker answers.
    """
    control = source.control
    kept = {ClientQuotaEntity(entity): values for entity, values in quotas.items()}
    head = {
        "user": None if user is None else kept_name(user),
        "client_id": None if client_id is None else kept_name(client_id),
        "ip": None if ip is None else kept_name(ip),
        "now_ms": control.now_ms(),
        "mode": control.mode(),
        "scope": control.scope(),
    }
    if ip is not None:
        precedences = [(key, ip_levels(kept, key, ip)) for key in IP_KEYS]
        return {
            **head,
            "quotas": [{**_precedence(*precedence), "rates": [rate.row() for rate in control.rates_of(ip)]} for precedence in precedences],
        }
    question = ClientQuestion(user, client_id, listener, address)
    answers = await source.client_answers(question)
    if not answers:
        raise NoWorkerError
    first, now_ms = answers[0], control.now_ms()
    head |= {"switch": first.switch, "exempt": first.is_exempt, "declared_group": first.declared_group}
    groups = merged_groups(answers)
    found = []
    for key, quota_type in _TYPES.items():
        precedence = levels(kept, key, question.principal.name, client_id)
        chain = [link._asdict() for link in first.chains.get(quota_type.value, ())]
        live = [_shown(group, now_ms) for group in groups if group.row.quota_type == quota_type.value]
        found.append({**_precedence(key, precedence), "declared": chain, "groups": live})
    return {**head, "callback": first.callback, "quotas": found}


def _precedence(key: str, precedence: list[Level]) -> dict[str, Any]:
    winner = next((level.value for level in precedence if level.wins), None)
    return {
        "key": key,
        "value": winner,
        "precedence": shown_levels(precedence),
    }


def _shown(group: SharedGroup, now_ms: int) -> dict[str, Any]:
    row = group.row
    named = [{"principal": who, "client_id": client_id, "connections": count} for who, client_id, count in group.named[:SHARERS_MAX]]
    return {
        "broker": row.broker,
        "tags": row.tags,
        "rule": row.rule,
        "bound": shown_number(row.bound) if row.is_limited else None,
        "observed": shown_number(row.observed),
        **({} if row.fleet is None else {"fleet": shown_fleet(row.fleet)}),
        **({} if row.schedule is None else {"paced": row.schedule._asdict()}),
        "throttled_for_ms": max(0, row.throttled_until_ms - now_ms),
        "throttle_count": row.throttle_count,
        "last_verdict": shown_verdict(row.verdicts[-1]) if row.verdicts else None,
        "shared_by": {"connections": group.connections, "clients": group.clients, "named": named},
    }
