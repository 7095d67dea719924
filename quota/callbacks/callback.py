"""The callback that decides which group a request belongs to and what its limit is: the interface, and Kafka's default with nine levels.

Source: KIP-257; Kafka 3.8 `ClientQuotaCallback`, `ClientQuotaManager.DefaultQuotaCallback`.
"""

from collections.abc import Mapping
from typing import Any, Final

from quota.callbacks.cluster import Cluster
from quota.entity import ClientQuotaEntity, ClientQuotaType, KafkaPrincipal, user_tag
from quota.limits import (
    CLIENT_ID_LEVEL,
    DEFAULT_PART,
    USER_CLIENT_ID_LEVEL,
    USER_LEVEL,
    QuotaLimits,
    Rule,
    RuleKey,
    level_of,
    rule_key,
)
from quota.names import kept_name

USER_TAG: Final = "user"
CLIENT_ID_TAG: Final = "client-id"

CUSTOM_LEVEL: Final = 8
DECLARED_LEVEL: Final = 16


class ClientQuotaCallback:
    """Base class of custom callbacks; override the methods you need. One object serves all quota types and is called by one thread.

    `quota_metric_tags` and `quota_reset_required` run once per request: keep them fast. The others run when something changes.
    """

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Receive the settings of the configuration, once, before any other call. `broker.id` is the node id, -1 for all brokers."""

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> Mapping[str, str]:
        """Return the tags of the group that this client belongs to; equal tags share one budget.

        Names are not shortened. A tag above 256 bytes is stored as its beginning and a digest, and `quota_limit` receives
        that form; only the first call for a group, and calls after a change, receive the tags as returned here.
        """
        raise NotImplementedError

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """Return the limit of a group in units per second; None: unlimited.

        Called when a group is created, for every group after a change, and for the cap of a fetch; not per request.
        """
        raise NotImplementedError

    def update_quota(self, quota_type: ClientQuotaType, entity: ClientQuotaEntity, new_value: float) -> None:
        """Receive a stored quota: each one at startup, then every change. Keep a copy; limits are requested again right after."""

    def remove_quota(self, quota_type: ClientQuotaType, entity: ClientQuotaEntity) -> None:
        """Forget a stored quota."""

    def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:
        """Return True once when limits have changed without an update; all limits of this type are then requested again. Per request."""
        return False

    def update_cluster_metadata(self, cluster: Cluster) -> bool:
        """Receive topics, partitions and leaders; return True when they change a limit."""
        return False

    def close(self) -> None:
        """Release resources; called once, at the end."""


class DefaultQuotaCallback(ClientQuotaCallback):
    """Kafka's default rule: the most specific entity applies. One object per quota type, because the levels in use are per type.

    1 user+client, 2 user+default client, 3 user, 4 default user+client, 5 default user+default client, 6 default user, 7 client,
    8 default client; 9 is `static_default`, which applies to any client-id without another quota, as in brokers before 3.0.
    """

    def __init__(self, static_default: float | None = None) -> None:
        self._rules: dict[RuleKey, Rule] = {}
        self._shared = False  # the rules are shared, and copied before a change
        self._static_default = static_default
        self.levels = CLIENT_ID_LEVEL if static_default is not None else 0

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> dict[str, str]:
        """Return the user and the client-id, either of them empty when the matching level ignores it."""
        user, client_id = user_tag(principal.name), kept_name(client_id)
        by_user, by_client = self._used_levels(user, client_id)
        return {USER_TAG: user if by_user else "", CLIENT_ID_TAG: client_id if by_client else ""}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """Return the limit of the first level that has one for these tags."""
        rule = self.rule(metric_tags)
        if rule is not None:
            return rule[1]
        by_client_only = not metric_tags.get(USER_TAG) and bool(metric_tags.get(CLIENT_ID_TAG))
        return self._static_default if by_client_only else None

    def rule(self, metric_tags: Mapping[str, str]) -> Rule | None:
        """Return the entity whose quota applies to these tags, with its value; None: no entity's (perhaps the static default)."""
        for key in rule_keys(metric_tags):
            found = self._rules.get(key)
            if found is not None:
                return found
        return None

    def update_quota(self, quota_type: ClientQuotaType, entity: ClientQuotaEntity, new_value: float) -> None:
        """Set an entity's quota."""
        self.levels |= level_of(entity)
        self._own_rules()[rule_key(entity)] = (entity, new_value)

    def remove_quota(self, quota_type: ClientQuotaType, entity: ClientQuotaEntity) -> None:
        """Remove an entity's quota. Its level stays marked as used, as in Kafka."""
        self.levels |= level_of(entity)
        self._own_rules().pop(rule_key(entity), None)

    def replace_quotas(self, limits: QuotaLimits) -> None:
        """Set the quotas of all entities at once. The levels of removed entities stay marked as used, too."""
        self.levels |= limits.levels
        self._rules, self._shared = limits.rules, True

    def _own_rules(self) -> dict[RuleKey, Rule]:
        if self._shared:
            self._rules, self._shared = self._rules.copy(), False
        return self._rules

    def update_static_default(self, value: float | None) -> None:
        """Set the ninth level; None removes it."""
        self._static_default = value
        if value is not None:
            self.levels |= CLIENT_ID_LEVEL

    def _used_levels(self, user: str, client_id: str) -> tuple[bool, bool]:
        """Return whether the user, and whether the client-id, is part of the group's key."""
        if self.levels in (0, CLIENT_ID_LEVEL):
            return False, True
        if self.levels == USER_LEVEL:
            return True, False
        if self.levels == USER_CLIENT_ID_LEVEL:
            return True, True
        return self._first_match(user, client_id)

    def _first_match(self, user: str, client_id: str) -> tuple[bool, bool]:
        rules = self._rules
        for user_part in (user, DEFAULT_PART):
            if (user_part, client_id) in rules or (user_part, DEFAULT_PART) in rules:
                return True, True
            if (user_part, None) in rules:
                return True, False
        return False, True


def tags_of(entity: ClientQuotaEntity) -> dict[str, str]:
    """Return the tags of a group with exactly the parts of `entity`."""
    return {USER_TAG: user_tag(entity.user or ""), CLIENT_ID_TAG: kept_name(entity.client_id or "")}


def rule_keys(metric_tags: Mapping[str, str]) -> tuple[RuleKey, ...]:
    """Return the keys under which a quota for these tags can be stored, the most specific first."""
    return _keys(metric_tags.get(USER_TAG, ""), metric_tags.get(CLIENT_ID_TAG, ""))


def _keys(user: str, client_id: str) -> tuple[RuleKey, ...]:
    if user and client_id:
        return (user, client_id), (user, DEFAULT_PART), (DEFAULT_PART, client_id), (DEFAULT_PART, DEFAULT_PART)
    if user:
        return (user, None), (DEFAULT_PART, None)
    if client_id:
        return (None, client_id), (None, DEFAULT_PART)
    return ()
