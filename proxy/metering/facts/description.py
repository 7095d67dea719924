"""Describes a group and its quota; called once per group and bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from metering_format.event_kinds import MUTATION
from proxy.enforcement.address_tables import table_name
from proxy.enforcement.paced.group import PacedGroup
from proxy.enforcement.quota_scopes import CLUSTER, QuotaScopes
from proxy.enforcement.rule import CLIENT_ID_TAG, UNLIMITED_RULE, USER_TAG, rule_of
from proxy.meter.batch import Fact
from proxy.meter.meter import Metered
from proxy.metering.facts.names import Names
from quota.connections.connection_quotas import ConnectionQuotas
from quota.connections.connection_rate import UNLIMITED_CONNECTIONS, ConnectionRate
from quota.entity import ANONYMOUS, DEFAULT, UNLIMITED
from quota.groups.declared_groups import GROUP_TAG
from quota.groups.group import QuotaGroup
from quota.groups.mutation_group import MutationGroup
from quota.manager import QuotaGroups

CONNECTION: Final = "Connection"
CALLBACK: Final = "callback"
CONFIGURATION: Final = "sluice.toml"


class GroupDescription:
    """Finds the scope and the manager that a group belongs to.

    Args:
        source: the source of the quota table, such as a file's hash.
        who: the principal that last changed it, if known.
    """

    def __init__(
        self,
        scopes: QuotaScopes,
        connections: ConnectionQuotas,
        names: Names,
        wall_ms: Callable[[], int],
        source: Callable[[], str],
        who: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._who = who
        self._scopes = scopes
        self._connections = connections
        self._names = names
        self._wall_ms = wall_ms
        self._source = source

    def __call__(self, group: Metered) -> tuple[Fact, Fact]:
        """Return the columns of dim_group and of dim_bound for `group`; `is_paced` is for the conversion, and no column."""
        about, bound = self._described(group)
        return about, {**bound, "is_paced": True} if isinstance(group, PacedGroup) else bound

    def _described(self, group: Metered) -> tuple[Fact, Fact]:
        if isinstance(group, ConnectionRate):
            return self._about_connections(group)
        assert isinstance(group, QuotaGroup | MutationGroup)
        if self._scopes.mutation.holds(group):
            manager = self._scopes.mutation
            return self._about(CLUSTER, manager, group), self._bound(manager, group)
        for scope in self._scopes.all():
            for own in scope.own_managers:
                if own.holds(group):
                    return self._about(scope.label, own, group), self._bound(own, group)
        return self._orphan(group), {"rule": UNLIMITED_RULE, "source": "none", "generation": 0}

    def described_groups(self) -> Iterator[Metered]:
        """Yield every group."""
        for scope in self._scopes.all():
            for manager in scope.own_managers:
                yield from manager.groups()
        yield from self._scopes.mutation.groups()
        quotas = self._connections
        yield quotas.broker_rate
        for listener in quotas.listeners.values():
            yield listener.rate
        for _, rate in quotas.ips.rates():
            yield rate

    # Groups of clients

    def _about(self, label: str, manager: QuotaGroups[Any], group: QuotaGroup | MutationGroup) -> Fact:
        in_cluster = label == CLUSTER
        node_id = int(label) if label.isdigit() else None
        place = {"scope": "cluster" if in_cluster else "broker", "node_id": node_id, "node": label}
        sensor = {"num_samples": manager.num_samples, "window_ms": manager.window_ms, "cap_ms": getattr(group, "cap_ms", None)}
        return {"quota_type": _type_of(manager), **place, **self._tags(group), **sensor, "first_seen_ms": self._wall_ms()}

    def _orphan(self, group: QuotaGroup | MutationGroup) -> Fact:
        """Describe a group that its manager has just removed; a connection may still record in it once."""
        about: Fact = {"scope": "broker", "node": "?", **self._tags(group), "first_seen_ms": self._wall_ms()}
        if isinstance(group, MutationGroup):
            return {**about, "quota_type": MUTATION, **_burst_of(group)}
        quota_type = "Request" if group.cap_ms == group.window_ms else "Produce"
        return {**about, "quota_type": quota_type, "num_samples": group.num_samples, "window_ms": group.window_ms, "cap_ms": group.cap_ms}

    def _tags(self, group: QuotaGroup | MutationGroup) -> Fact:
        others = {str(key): self._names(value) for key, value in group.tags.items() if key not in (USER_TAG, CLIENT_ID_TAG)}
        return {
            "tag_user": self._names(group.tags.get(USER_TAG)),
            "tag_client_id": self._names(group.tags.get(CLIENT_ID_TAG)),
            "tags": msgspec.json.encode(others).decode() if others else None,
        }

    def _bound(self, manager: QuotaGroups[Any], group: QuotaGroup | MutationGroup) -> Fact:
        limited = group.bound < UNLIMITED
        declared = group.tags.get(GROUP_TAG)
        if declared is not None:
            rule, source = "=".join(filter(None, (GROUP_TAG, self._names(declared)))), CONFIGURATION
        elif manager.custom_callback:
            rule, source = CALLBACK, CALLBACK
        else:
            rule, source = self._rule(manager, group, limited=limited), self._source()
            return {"rule": rule, "source": source, "who": self._by(), "generation": manager.generation}
        return {"rule": rule, "source": source, "generation": manager.generation}

    def _by(self) -> str | None:
        """Return the principal of the last change of the table; for a user only the name, as in all files."""
        kind, _, name = (self._who() or "").partition(":")
        return self._names(name if kind == ANONYMOUS.type else f"{kind}:{name}") if name else None

    def _rule(self, manager: QuotaGroups[Any], group: QuotaGroup | MutationGroup, *, limited: bool) -> str:
        entity = manager.rule(group)
        if self._names.form == "plain" or entity is None:
            return rule_of(group.tags, manager.rules, limited=limited)
        parts = {"user": entity.user, "client-id": entity.client_id}
        return ",".join(f"{key}={name if name == DEFAULT else self._names(name) or ''}" for key, name in parts.items() if name is not None)

    # Connections

    def _about_connections(self, rate: ConnectionRate) -> tuple[Fact, Fact]:
        sensor = {"num_samples": rate.num_samples, "window_ms": rate.window_ms, "cap_ms": rate.window_ms}
        about = {"quota_type": CONNECTION, **self._place_of(rate), **sensor, "first_seen_ms": self._wall_ms()}
        is_of_address = about["scope"] == "ip"
        rule = UNLIMITED_RULE if rate.bound >= UNLIMITED_CONNECTIONS else f"{about['scope']} rate"
        return about, {"rule": rule, "source": self._source() if is_of_address else CONFIGURATION, "generation": 0}

    def _place_of(self, rate: ConnectionRate) -> Fact:
        quotas = self._connections
        if rate is quotas.broker_rate:
            return {"scope": "process"}
        for listener in quotas.listeners.values():
            if rate is listener.rate:
                return {"scope": "listener", "listener": listener.name}
        for key, known in quotas.ips.latest_rates():  # the most recently recorded one
            if known is rate:
                node = table_name(key[0])
                return {"scope": "ip", "tag_ip": self._names(key[1]), "node": node, "node_id": int(node) if node.isdigit() else None}
        return {"scope": "ip"}


def _burst_of(group: MutationGroup) -> Fact:
    return {"num_samples": group.num_samples, "window_ms": group.window_ms, "cap_ms": None}


def _type_of(manager: QuotaGroups[Any]) -> str:
    return manager.quota_type.value
