"""Tenants by client-id prefix, each with one budget for all its clients.

The tenant is what stands before the first `-` of the client-id: `acme-etl` and `acme-web` share the budget of `acme`. Client-ids without
a `-`, or of a tenant that is not in the settings, share the budget `shared`.

    [callback]
    class = "callbacks.tenants:TenantQuotas"

    [callback.settings]
    shared = 1_048_576                # bytes per second, for clients without a tenant

    [callback.settings.tenants]
    acme = 10_485_760
    globex = 5_242_880

    [callback.settings.request_percentage]
    acme = 200                        # percent of one thread; the same with controller_mutation_rate. Without an entry: unlimited

A quota stored for the client-id `acme` (quotas.toml, later the admin API) takes precedence over the settings.
"""

from collections.abc import Mapping
from typing import Any

from sluice.callback import ClientQuotaCallback, ClientQuotaEntity, ClientQuotaType, KafkaPrincipal

TENANT = "tenant"
NO_TENANT = ""
BYTES = (ClientQuotaType.PRODUCE, ClientQuotaType.FETCH)
TABLES = {
    "tenants": BYTES,
    "request_percentage": (ClientQuotaType.REQUEST,),
    "controller_mutation_rate": (ClientQuotaType.CONTROLLER_MUTATION,),
}
"""Which settings are budgets of which types."""


class TenantQuotas(ClientQuotaCallback):
    """One budget per tenant and quota type."""

    def __init__(self) -> None:
        self._tenants: set[str] = set()
        self._configured: dict[tuple[ClientQuotaType, str], float] = {}
        self._stored: dict[tuple[ClientQuotaType, str], float] = {}

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Take the budgets; a limit that is no number fails here, at the start, and not on a request."""
        self._configured = {(quota_type, NO_TENANT): float(configs["shared"]) for quota_type in BYTES}
        for table, quota_types in TABLES.items():
            for name, limit in configs.get(table, {}).items():
                self._configured.update(((quota_type, name), float(limit)) for quota_type in quota_types)
        self._tenants = {name for _, name in self._configured if name != NO_TENANT}

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> Mapping[str, str]:
        """Per request: two lookups."""
        prefix, dash, _ = client_id.partition("-")
        is_tenant = bool(dash) and (prefix in self._tenants or (quota_type, prefix) in self._stored)
        return {TENANT: prefix if is_tenant else NO_TENANT}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """The stored quota of the tenant, else the configured one."""
        budget = (quota_type, metric_tags[TENANT])
        stored = self._stored.get(budget)
        return self._configured.get(budget) if stored is None else stored

    def update_quota(self, quota_type: ClientQuotaType, entity: ClientQuotaEntity, new_value: float) -> None:
        """Keep what is stored for a client-id that names a tenant."""
        if entity.user is None and entity.client_id is not None and not entity.client_id_is_default:
            self._stored[quota_type, entity.client_id] = new_value

    def remove_quota(self, quota_type: ClientQuotaType, entity: ClientQuotaEntity) -> None:
        """Back to the configured budget."""
        if entity.client_id is not None:
            self._stored.pop((quota_type, entity.client_id), None)
