"""A Sluice that keeps quotas itself, in memory, and answers for them."""

from proxy.administration.audit_log import AuditLog
from proxy.administration.authorizer import Authorizer, Rules
from proxy.administration.service import Administration
from proxy.net.broker_authority import BrokerAuthority
from proxy.net.quota_desk import QuotaDesk
from proxy.quota_store.memory import MemoryStore
from quota.admin.messages import EntityKey
from tests.support.gateway_fixture import RunningGateway

ANYBODY = Rules("list", frozenset({"User:ANONYMOUS"}))
BROKER = Rules("broker")


class Keeper:
    """What a running gateway keeps now."""

    def __init__(self, sluice: RunningGateway, rules: Rules = ANYBODY, *, wait_s: float = 10.0) -> None:
        self.store = MemoryStore(lambda _content, _origin: None, now_ms=lambda: 0, wall_time_s=lambda: 0.0)
        self.audit = AuditLog(None, wall_time_s=lambda: 0.0)
        self.administration = Administration(self.store, Authorizer(rules), self.audit)
        self.authority = BrokerAuthority(wait_s)
        sluice.app._session_settings.answers_quotas = True
        sluice.gateway.quota_desk = QuotaDesk(self.administration, self.authority)
        sluice.gateway.settings_changed()

    @property
    def quotas(self) -> dict[EntityKey, dict[str, float]]:
        """What is kept."""
        return {entity: dict(values) for entity, values in self.store.content.quotas.items()}
