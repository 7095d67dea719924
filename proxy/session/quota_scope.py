"""Where bytes are counted: the managers of one scope, and the groups that a connection keeps at hand."""

from __future__ import annotations

from proxy.counters import Counters, Usage
from proxy.rule import rule_of
from quota.entity import KafkaPrincipal
from quota.group import QuotaGroup
from quota.manager import ClientQuotaManager


class QuotaScope:
    """Produce and fetch managers of one scope: a broker (as Kafka) or all brokers behind this process.

    Attributes:
        label: node id, address while the id is not known, or "cluster".
        produce_on, fetch_on: False: bytes are counted in the usage and no quota applies (KIP-13's switch).
    """

    __slots__ = ("fetch", "fetch_on", "label", "produce", "produce_on")

    def __init__(self, label: str, produce: ClientQuotaManager, fetch: ClientQuotaManager) -> None:
        self.label = label
        self.produce = produce
        self.fetch = fetch
        self.produce_on = True
        self.fetch_on = True


class ClientQuota:
    """One (principal, client-id) on one connection: its groups, resolved once per quota table.

    `produce` and `fetch` return None while no quota of that type was ever set (Kafka's "not enabled").
    """

    __slots__ = ("_counters", "_fetch", "_fetch_generation", "_produce", "_produce_generation", "_scope", "client_id", "principal", "usage")

    def __init__(self, scope: QuotaScope, principal: KafkaPrincipal, client_id: str, usage: Usage, counters: Counters) -> None:
        self._scope = scope
        self._counters = counters
        self.principal = principal
        self.client_id = client_id
        self.usage = usage
        self._produce: QuotaGroup | None = None
        self._produce_generation = -1
        self._fetch: QuotaGroup | None = None
        self._fetch_generation = -1

    def produce(self, now_ms: int) -> QuotaGroup | None:
        """The group that this client's produced bytes count for."""
        manager = self._scope.produce
        if self._produce_generation != manager.generation or manager.custom_callback:
            on = manager.enabled and self._scope.produce_on
            self._produce = manager.group(self.principal, self.client_id, now_ms) if on else None
            self._produce_generation = manager.generation
        return self._produce

    def fetch(self, now_ms: int) -> QuotaGroup | None:
        """The group that this client's fetched bytes count for."""
        manager = self._scope.fetch
        if self._fetch_generation != manager.generation or manager.custom_callback:
            on = manager.enabled and self._scope.fetch_on
            self._fetch = manager.group(self.principal, self.client_id, now_ms) if on else None
            self._fetch_generation = manager.generation
        return self._fetch

    def produce_throttled(self, group: QuotaGroup, throttle_ms: int, now_ms: int) -> None:
        """Keep the books of a produce verdict above zero."""
        self._throttled(self._scope.produce, "Produce", group, throttle_ms, now_ms)

    def fetch_throttled(self, group: QuotaGroup, throttle_ms: int, now_ms: int) -> None:
        """Keep the books of a fetch verdict above zero."""
        self._throttled(self._scope.fetch, "Fetch", group, throttle_ms, now_ms)

    def move(self, scope: QuotaScope) -> None:
        """Count in another scope from now on: the setting changed, or the broker's node id was learnt."""
        self._scope = scope
        self._produce_generation = self._fetch_generation = -1

    def _throttled(self, manager: ClientQuotaManager, quota_type: str, group: QuotaGroup, throttle_ms: int, now_ms: int) -> None:
        group.record_throttle(throttle_ms, now_ms)
        self._counters.throttled(quota_type, throttle_ms)
        self.usage.throttled(quota_type, rule_of(group.tags, manager.limits, custom_callback=manager.custom_callback), throttle_ms)
