"""A Sluice that keeps quotas in memory and answers requests about them."""

from proxy.quota_admin.authorizer import Rules
from proxy.quota_admin.broker_authority import BrokerAuthority
from proxy.quota_admin.client_quota_api import ClientQuotaApi
from quota.admin.messages import EntityKey
from tests.support.scripted.gateway_fixture import RunningGateway

ANYBODY = Rules("list", frozenset({"User:ANONYMOUS"}))
BROKER = Rules("broker")


class Keeper:
    """The quotas of a running gateway, and the rules of who may change them."""

    def __init__(self, sluice: RunningGateway, rules: Rules = ANYBODY, *, wait_s: float = 10.0) -> None:
        self.store = sluice.app.quotas
        self.administration = sluice.app.administration
        self.administration.authorizer.rules = rules
        self.authority = BrokerAuthority(sluice.counters.administration, wait_s)
        sluice.gateway.client_quota_api = ClientQuotaApi(self.administration, self.authority)

    @property
    def quotas(self) -> dict[EntityKey, dict[str, float]]:
        """The present quotas."""
        return {entity: dict(values) for entity, values in self.store.content.quotas.items()}
