"""The page /explain: which quota holds for a client, what of it is used now, and who else shares it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from proxy.observe.state import BrokerQuotas, ProxyState
from proxy.quotas_command.ladder import Rung, ip_rungs, rungs
from proxy.rule import rule_of
from quota.admin.keys import CLIENT_KEYS, IP_KEYS
from quota.admin.messages import EntityKey
from quota.declared_groups import Member
from quota.entity import ANONYMOUS, UNLIMITED, ClientQuotaType, KafkaPrincipal
from quota.group import QuotaGroup, group_key
from quota.mutation_group import MutationGroup
from sluice.admin import ClientQuotaEntity

if TYPE_CHECKING:
    from proxy.observe.state import QuotaManager

SHARERS_MAX: Final = 20
"""Clients that are named; the others are counted."""
CONNECTIONS_LOOKED_AT_MAX: Final = 10_000

_TYPES: Final = dict(zip(CLIENT_KEYS, ClientQuotaType, strict=True))
Quotas = Mapping[EntityKey, Mapping[str, float]]


def explain(
    state: ProxyState, quotas: Quotas, user: str | None, client_id: str | None, ip: str | None, listener: str = "", address: str = ""
) -> dict[str, Any]:
    """Return the page; on the loop's thread, and without a change to any sensor.

    Args:
        state: the running proxy.
        quotas: as they are kept.
        user: None: who did not log in.
        client_id: None: none.
        ip: an address, alone.
        listener, address: where the client comes in, for switches and declared groups that look at that.
    """
    kept = {ClientQuotaEntity(entity): values for entity, values in quotas.items()}
    head = {"user": user, "client_id": client_id, "ip": ip, "now_ms": state.now_ms(), "mode": state.mode(), "scope": state.scope()}
    if ip is not None:
        ladders = [(key, ip_rungs(kept, key, ip)) for key in IP_KEYS]
        return {**head, "quotas": [{**_ladder(*ladder), "rates": [rate._asdict() for rate in state.rates_of(ip)]} for ladder in ladders]}
    principal = ANONYMOUS if user is None else KafkaPrincipal("User", user)
    standing = state.standing(principal, client_id or "", listener, address)
    switch = None if standing.switch is None else standing.switch.value
    head |= {"switch": switch, "exempt": standing.is_exempt, "declared_group": standing.groups.group}
    principal = Member(principal, standing.groups.group)
    found = []
    for key, quota_type in _TYPES.items():
        ladder = rungs(kept, key, principal.name, client_id)
        groups = [group for broker in state.brokers() for group in _groups(state, broker, quota_type, principal, client_id or "")]
        chain = [link._asdict() for link in standing.groups.chains.get(quota_type, ())]
        found.append({**_ladder(key, ladder), "declared": chain, "groups": groups})
    return {**head, "callback": state.callback().class_name, "quotas": found}


def _ladder(key: str, ladder: list[Rung]) -> dict[str, Any]:
    winner = next((rung.value for rung in ladder if rung.wins), None)
    return {
        "key": key,
        "value": winner,
        "ladder": [{"entity": rung.entity.entries, "value": rung.value, "wins": rung.wins} for rung in ladder],
    }


def _groups(
    state: ProxyState, broker: BrokerQuotas, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str
) -> Iterator[dict[str, Any]]:
    manager = broker.managers.get(quota_type)
    if manager is None or not manager.enabled:
        return
    key = _key(manager, quota_type, principal, client_id)
    group: QuotaGroup | MutationGroup | None = next((group for group in manager.groups() if group.key == key), None)
    if group is None:
        return
    now_ms, limited = state.now_ms(), group.bound < UNLIMITED
    yield {
        "broker": broker.label,
        "tags": dict(group.tags),
        "rule": rule_of(group.tags, manager.limits, custom_callback=manager.custom_callback, limited=limited),
        "bound": _number(group.bound) if limited else None,
        "observed": _number(group.rate(now_ms)),
        "throttled_for_ms": max(0, group.throttled_until_ms - now_ms),
        "throttle_count": group.throttle_count,
        "last_verdict": {name: _number(value) for name, value in group.verdicts[-1]._asdict().items()} if group.verdicts else None,
        "shared_by": _sharers(state, manager, quota_type, key),
    }


def _sharers(state: ProxyState, manager: QuotaManager, quota_type: ClientQuotaType, key: object) -> dict[str, Any]:
    connections, clients = 0, dict[tuple[str, str], int]()
    for at, (principal, client_id) in enumerate(state.clients()):
        if at >= CONNECTIONS_LOOKED_AT_MAX:
            break
        if _key(manager, quota_type, principal, client_id) == key:
            connections += 1
            clients[str(principal), client_id] = clients.get((str(principal), client_id), 0) + 1
    named = [{"principal": who, "client_id": client_id, "connections": count} for (who, client_id), count in clients.items()]
    return {"connections": connections, "clients": len(clients), "named": named[:SHARERS_MAX]}


def _key(manager: QuotaManager, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> object:
    return group_key(manager.callback.quota_metric_tags(quota_type, principal, client_id))


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
