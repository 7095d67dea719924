"""The page /explain: which quota holds for a client, what of it is used now, and who else shares it.

It is made on the loop's thread, since a callback is asked there only, and in slices: who is connected is looked at a few at a time.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from proxy.enforcement.rule import rule_of
from proxy.observe.quotas_json import shown_tags
from proxy.observe.state import ProxyState
from proxy.quota_admin.precedence import Level, ip_levels, levels
from quota.admin.keys import CLIENT_KEYS, IP_KEYS
from quota.admin.messages import EntityKey
from quota.entity import ANONYMOUS, UNLIMITED, ClientQuotaType, KafkaPrincipal
from quota.groups.declared_groups import Member
from quota.groups.group import GroupKey, QuotaGroup, group_key
from quota.groups.mutation_group import MutationGroup
from quota.names import KeptName, kept_name
from sluice.client_quota_entity import ClientQuotaEntity

if TYPE_CHECKING:
    from proxy.observe.state import QuotaManager

SHARERS_MAX: Final = 20
"""Clients that are named; the others are counted."""
CONNECTIONS_LOOKED_AT_MAX: Final = 10_000
SLICE: Final = 200
"""So many answers of callbacks are asked for before the loop goes on with others."""

_TYPES: Final = dict(zip(CLIENT_KEYS, ClientQuotaType, strict=True))
Quotas = Mapping[EntityKey, Mapping[str, float]]


async def explain(
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
    head = {
        "user": None if user is None else kept_name(user),
        "client_id": None if client_id is None else kept_name(client_id),
        "ip": None if ip is None else kept_name(ip),
        "now_ms": state.now_ms(),
        "mode": state.mode(),
        "scope": state.scope(),
    }
    if ip is not None:
        precedences = [(key, ip_levels(kept, key, ip)) for key in IP_KEYS]
        return {
            **head,
            "quotas": [
                {**_precedence(*precedence), "rates": [rate._asdict() for rate in state.rates_of(ip)]} for precedence in precedences
            ],
        }
    principal = ANONYMOUS if user is None else KafkaPrincipal("User", user)
    standing = state.standing(principal, client_id or "", listener, address)
    switch = None if standing.switch is None else standing.switch.value
    head |= {"switch": switch, "exempt": standing.is_exempt, "declared_group": standing.groups.group}
    principal = Member(principal, standing.groups.group)
    live = {key: list(_live(state, quota_type, principal, client_id or "")) for key, quota_type in _TYPES.items()}
    await _find_sharers(state, [group for groups in live.values() for group in groups])
    found = []
    for key, quota_type in _TYPES.items():
        precedence = levels(kept, key, principal.name, client_id)
        chain = [link._asdict() for link in standing.groups.chains.get(quota_type, ())]
        found.append({**_precedence(key, precedence), "declared": chain, "groups": [_shown(state, group) for group in live[key]]})
    return {**head, "callback": state.callback().class_name, "quotas": found}


def _precedence(key: str, precedence: list[Level]) -> dict[str, Any]:
    winner = next((level.value for level in precedence if level.wins), None)
    return {
        "key": key,
        "value": winner,
        "precedence": [{"entity": _cut(level.entity.entries), "value": level.value, "wins": level.wins} for level in precedence],
    }


def _cut(entity: Mapping[str, str | None]) -> dict[str, str | None]:
    return {kind: None if name is None else kept_name(name) for kind, name in entity.items()}


class _Live:
    """A live group of the client that is asked about, and who shares it."""

    def __init__(self, broker: str, quota_type: ClientQuotaType, manager: QuotaManager, group: QuotaGroup | MutationGroup) -> None:
        self.broker = broker
        self.quota_type = quota_type
        self.manager = manager
        self.group = group
        self.connections = 0
        self.clients: dict[tuple[str, str], int] = {}

    def sharers(self) -> dict[str, Any]:
        """Return them for the page: all counted, the first named."""
        named = [
            {"principal": kept_name(who), "client_id": client_id, "connections": count}
            for (who, client_id), count in islice(self.clients.items(), SHARERS_MAX)
        ]
        return {"connections": self.connections, "clients": len(self.clients), "named": named}


def _live(state: ProxyState, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> Iterator[_Live]:
    for broker in state.brokers():
        manager = broker.managers.get(quota_type)
        if manager is None or not manager.enabled:
            continue
        group = manager.find(_key(manager, quota_type, principal, client_id))
        if group is not None:
            yield _Live(broker.label, quota_type, manager, group)


async def _find_sharers(state: ProxyState, found: list[_Live]) -> None:
    asked = 0
    for principal, client_id in islice(state.clients(), CONNECTIONS_LOOKED_AT_MAX) if found else ():
        for live in found:
            if live.manager.custom_callback and isinstance(client_id, KeptName):
                continue  # a callback of the operator's is asked by whole names only
            if _key(live.manager, live.quota_type, principal, client_id) == live.group.key:
                live.connections += 1
                who = (str(principal), kept_name(client_id))
                live.clients[who] = live.clients.get(who, 0) + 1
            asked += 1
            if asked % SLICE == 0:
                await asyncio.sleep(0)


def _shown(state: ProxyState, live: _Live) -> dict[str, Any]:
    group, manager = live.group, live.manager
    now_ms, limited = state.now_ms(), group.bound < UNLIMITED
    return {
        "broker": live.broker,
        "tags": shown_tags(group.tags),
        "rule": kept_name(rule_of(group.tags, manager.rules, custom_callback=manager.custom_callback, limited=limited)),
        "bound": _number(group.bound) if limited else None,
        "observed": _number(group.rate(now_ms)),
        "throttled_for_ms": max(0, group.throttled_until_ms - now_ms),
        "throttle_count": group.throttle_count,
        "last_verdict": {name: _number(value) for name, value in group.verdicts[-1]._asdict().items()} if group.verdicts else None,
        "shared_by": live.sharers(),
    }


def _key(manager: QuotaManager, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> GroupKey:
    return group_key(manager.callback.quota_metric_tags(quota_type, principal, client_id))


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
