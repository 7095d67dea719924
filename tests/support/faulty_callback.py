"""A quota callback whose faults a test configures."""

from collections.abc import Callable, Mapping
from typing import Any

from quota.callbacks.callback import ClientQuotaCallback
from quota.callbacks.cluster import Cluster
from quota.entity import ClientQuotaEntity, ClientQuotaType, KafkaPrincipal

Act = Callable[[], Any]


class FaultyCallback(ClientQuotaCallback):
    """Groups by the first letter of the client-id, all with limit 100, until configured otherwise.

    Attributes:
        acts: replacements by method, which raise an exception or return any value.
        calls: methods in the order in which they were called.
        entities: quotas after the calls of `update_quota` and `remove_quota`.
    """

    def __init__(self) -> None:
        self.acts: dict[str, Act] = {}
        self.calls: list[str] = []
        self.entities: dict[ClientQuotaEntity, float] = {}
        self.limit = 100.0
        self.clusters: list[Cluster] = []

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Perform the configured act."""
        self._act("configure", lambda: None)

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> Mapping[str, str]:
        """Perform the configured act, or return the first letter."""
        return self._act("quota_metric_tags", lambda: {"letter": client_id[:1]})  # type: ignore[no-any-return]

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """Perform the configured act, or return the limit."""
        return self._act("quota_limit", lambda: self.limit)  # type: ignore[no-any-return]

    def update_quota(self, quota_type: ClientQuotaType, entity: ClientQuotaEntity, new_value: float) -> None:
        """Perform the configured act, or store the quota."""
        self._act("update_quota", lambda: self.entities.update({entity: new_value}))

    def remove_quota(self, quota_type: ClientQuotaType, entity: ClientQuotaEntity) -> None:
        """Perform the configured act, or remove the quota."""
        self._act("remove_quota", lambda: self.entities.pop(entity, None) and None)

    def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:
        """Perform the configured act, or return False."""
        return self._act("quota_reset_required", lambda: False)  # type: ignore[no-any-return]

    def update_cluster_metadata(self, cluster: Cluster) -> bool:
        """Perform the configured act, or store the cluster."""
        return self._act("update_cluster_metadata", lambda: not self.clusters.append(cluster))  # type: ignore[no-any-return,func-returns-value]

    def close(self) -> None:
        """Perform the configured act."""
        self._act("close", lambda: None)

    def _act(self, method: str, otherwise: Act) -> Any:
        self.calls.append(method)
        return self.acts.get(method, otherwise)()


def raising(error: BaseException) -> Act:
    """Return an act that raises."""

    def act() -> Any:
        raise error

    return act
