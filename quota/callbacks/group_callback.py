"""Declared groups as a callback, in front of the one for all other clients: Kafka's default rule, or the operator's class."""

from collections.abc import Mapping
from typing import Any

from quota.callbacks.callback import ClientQuotaCallback
from quota.callbacks.cluster import Cluster
from quota.entity import ClientQuotaEntity, ClientQuotaType, KafkaPrincipal
from quota.groups.declared_groups import GROUP_TAG, DeclaredGroups, Member


class GroupCallback(ClientQuotaCallback):
    """Answers for members of declared groups, and delegates everything else.

    A client is a member when its principal is a `Member`. For a plain principal only conditions on users and client-ids can be checked, so
    it is in no group that has other conditions.
    """

    def __init__(self, groups: DeclaredGroups, inner: ClientQuotaCallback) -> None:
        self._groups = groups
        self._nowhere = groups.origin("", "")
        self.inner = inner

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Delegate the settings."""
        self.inner.configure(configs)

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> Mapping[str, str]:
        """Return the tag of the group whose budget the client shares, else what the inner callback returns."""
        if isinstance(principal, Member):
            name, principal = principal.group, principal.principal
        else:
            name = self._nowhere.group_of(principal.name, client_id)
        chain = self._groups.chain(quota_type, name)
        if chain:
            return {GROUP_TAG: chain[0].group}
        return self.inner.quota_metric_tags(quota_type, principal, client_id)

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """Return the bound of a declared group, else what the inner callback returns."""
        name = metric_tags.get(GROUP_TAG)
        if name is None:
            return self.inner.quota_limit(quota_type, metric_tags)
        return self._groups.chain(quota_type, name)[0].bound if self._groups.has_bound(quota_type, name) else None

    def parent_tags(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> Mapping[str, str] | None:
        """Return the tag of the declared group's parent; None when it has no parent."""
        chain = self._groups.chain(quota_type, metric_tags.get(GROUP_TAG))
        return {GROUP_TAG: chain[1].group} if len(chain) > 1 else None

    def update_quota(self, quota_type: ClientQuotaType, entity: ClientQuotaEntity, new_value: float) -> None:
        """Delegate a stored quota."""
        self.inner.update_quota(quota_type, entity, new_value)

    def remove_quota(self, quota_type: ClientQuotaType, entity: ClientQuotaEntity) -> None:
        """Delegate a removal."""
        self.inner.remove_quota(quota_type, entity)

    def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:
        """Delegate."""
        return self.inner.quota_reset_required(quota_type)

    def update_cluster_metadata(self, cluster: Cluster) -> bool:
        """Delegate the cluster."""
        return self.inner.update_cluster_metadata(cluster)

    def close(self) -> None:
        """Close the inner callback."""
        self.inner.close()
