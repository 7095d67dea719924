"""Declared groups as a callback, over the one for all other clients: Kafka's own rule, or the operator's class."""

from collections.abc import Mapping
from typing import Any

from quota.callbacks.callback import ClientQuotaCallback
from quota.callbacks.cluster import Cluster
from quota.entity import ClientQuotaEntity, ClientQuotaType, KafkaPrincipal
from quota.groups.declared_groups import GROUP_TAG, DeclaredGroups, Member


class GroupCallback(ClientQuotaCallback):
    """Answers for members of declared groups, and passes all else on.

    A client is a member when it comes as a `Member`; of a plain principal only conditions on users and client-ids are known to hold, so one
    is in no group that wants to know more.
    """

    def __init__(self, groups: DeclaredGroups, inner: ClientQuotaCallback) -> None:
        self._groups = groups
        self._nowhere = groups.origin("", "")
        self.inner = inner

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Pass settings on."""
        self.inner.configure(configs)

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> Mapping[str, str]:
        """Return the tag of the group whose budget a client shares, or what the callback below says."""
        if isinstance(principal, Member):
            name, principal = principal.group, principal.principal
        else:
            name = self._nowhere.group_of(principal.name, client_id)
        chain = self._groups.chain(quota_type, name)
        if chain:
            return {GROUP_TAG: chain[0].group}
        return self.inner.quota_metric_tags(quota_type, principal, client_id)

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """Return the bound of a declared group, or what the callback below says."""
        name = metric_tags.get(GROUP_TAG)
        if name is None:
            return self.inner.quota_limit(quota_type, metric_tags)
        return self._groups.chain(quota_type, name)[0].bound if self._groups.has_bound(quota_type, name) else None

    def parent_tags(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> Mapping[str, str] | None:
        """Return the tag of the group that a declared group is a part of; None: of no other."""
        chain = self._groups.chain(quota_type, metric_tags.get(GROUP_TAG))
        return {GROUP_TAG: chain[1].group} if len(chain) > 1 else None

    def update_quota(self, quota_type: ClientQuotaType, entity: ClientQuotaEntity, new_value: float) -> None:
        """Pass a stored quota on."""
        self.inner.update_quota(quota_type, entity, new_value)

    def remove_quota(self, quota_type: ClientQuotaType, entity: ClientQuotaEntity) -> None:
        """Pass a removal on."""
        self.inner.remove_quota(quota_type, entity)

    def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:
        """Ask below."""
        return self.inner.quota_reset_required(quota_type)

    def update_cluster_metadata(self, cluster: Cluster) -> bool:
        """Pass the cluster on."""
        return self.inner.update_cluster_metadata(cluster)

    def close(self) -> None:
        """Pass the end on."""
        self.inner.close()
