"""What a group is, and whose quota holds it: asked once per group and bound."""

from __future__ import annotations

from collections.abc import Callable

from proxy.metering.batch import Fact
from proxy.quota_scopes import CLUSTER, QuotaScopes
from proxy.rule import CLIENT_ID_TAG, USER_TAG, rule_of
from proxy.session.quota_scope import QuotaScope
from quota.entity import UNLIMITED
from quota.group import QuotaGroup
from quota.manager import ClientQuotaManager


class GroupDescription:
    """Finds the scope and the manager that a group belongs to."""

    def __init__(self, scopes: QuotaScopes, wall_ms: Callable[[], int]) -> None:
        self._scopes = scopes
        self._wall_ms = wall_ms

    def __call__(self, group: QuotaGroup) -> tuple[Fact, Fact]:
        """Return the columns of dim_group and of dim_bound that say what `group` is."""
        for scope in self._scopes.all():
            for manager in scope.own_managers:
                if manager.holds(group):
                    return self._about(scope, manager, group), _bound(manager, group)
        return self._orphan(group), {"rule": "none", "source": "none", "generation": 0}

    def _about(self, scope: QuotaScope, manager: ClientQuotaManager, group: QuotaGroup) -> Fact:
        in_cluster = scope.label == CLUSTER
        node_id = int(scope.label) if scope.label.isdigit() else None
        place = {"scope": "cluster" if in_cluster else "broker", "node_id": node_id, "node": scope.label}
        return {"quota_type": manager.quota_type.value, **place, **_tags(group), **self._sensor(group)}

    def _orphan(self, group: QuotaGroup) -> Fact:
        """A group that its manager has just let go: a connection still records in it once."""
        quota_type = "Request" if group.cap_ms == group.window_ms else "Produce"
        return {"quota_type": quota_type, "scope": "broker", "node": "?", **_tags(group), **self._sensor(group)}

    def _sensor(self, group: QuotaGroup) -> Fact:
        sensor = {"num_samples": group.num_samples, "window_ms": group.window_ms, "cap_ms": group.cap_ms}
        return {**sensor, "first_seen_ms": self._wall_ms()}


def _tags(group: QuotaGroup) -> Fact:
    others = {key: value for key, value in group.tags.items() if key not in (USER_TAG, CLIENT_ID_TAG)}
    return {
        "tag_user": group.tags.get(USER_TAG),
        "tag_client_id": group.tags.get(CLIENT_ID_TAG),
        "tags": ",".join(f"{key}={value}" for key, value in others.items()) or None,
    }


def _bound(manager: ClientQuotaManager, group: QuotaGroup) -> Fact:
    limited = group.bound < UNLIMITED
    rule = rule_of(group.tags, manager.limits, custom_callback=manager.custom_callback, limited=limited)
    return {"rule": rule, "source": "callback" if manager.custom_callback else "table", "generation": manager.generation}
