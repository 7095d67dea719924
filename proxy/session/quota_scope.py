"""Where bytes, request time and mutations are counted: the managers of one scope, and the groups that a known head keeps at hand."""

from __future__ import annotations

from proxy.counters import Counters, Usage
from proxy.rule import rule_of
from quota.controller_mutation import ControllerMutationQuotaManager
from quota.entity import KafkaPrincipal
from quota.group import QuotaGroup
from quota.manager import ClientQuotaManager
from quota.mutation_group import MutationGroup
from quota.request_time import ClientRequestQuotaManager


class QuotaScope:
    """The managers of one scope: a broker (as Kafka) or all brokers behind this process.

    Attributes:
        label: node id, address while the id is not known, or "cluster".
        mutation: the one of the whole cluster, shared by all scopes, since in Kafka one controller holds the buckets.
        produce_on, fetch_on, request_on, mutation_on: False: usage is counted and no quota applies (KIP-13's switch).
    """

    __slots__ = ("fetch", "fetch_on", "label", "mutation", "mutation_on", "produce", "produce_on", "request", "request_on")

    def __init__(
        self,
        label: str,
        produce: ClientQuotaManager,
        fetch: ClientQuotaManager,
        request: ClientRequestQuotaManager,
        mutation: ControllerMutationQuotaManager,
    ) -> None:
        self.label = label
        self.produce = produce
        self.fetch = fetch
        self.request = request
        self.mutation = mutation
        self.produce_on = self.fetch_on = self.request_on = self.mutation_on = True

    @property
    def own_managers(self) -> tuple[ClientQuotaManager, ...]:
        """Those that belong to this scope alone."""
        return (self.produce, self.fetch, self.request)


class ClientQuota:
    """One (principal, client-id) in one scope: its groups, resolved once per quota table.

    `produce`, `fetch`, `request` and `mutation` return None while no quota of that type was ever set (Kafka's "not enabled").
    """

    __slots__ = (
        "_counters",
        "_fetch",
        "_fetch_generation",
        "_mutation",
        "_mutation_generation",
        "_produce",
        "_produce_generation",
        "_request",
        "_request_generation",
        "_scope",
        "client_id",
        "principal",
        "usage",
    )

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
        self._request: QuotaGroup | None = None
        self._request_generation = -1
        self._mutation: MutationGroup | None = None
        self._mutation_generation = -1

    def latencies(self, api_key: int, *, known: bool) -> list[int]:
        """Where answers of an API are counted by how long they took; shared by all clients."""
        return self._counters.latencies.of(api_key, known=known)

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

    def request(self, now_ms: int) -> QuotaGroup | None:
        """The group that the time of this client's requests counts for, in percent of one thread."""
        manager = self._scope.request
        if self._request_generation != manager.generation or manager.custom_callback:
            on = manager.enabled and self._scope.request_on
            self._request = manager.group(self.principal, self.client_id, now_ms) if on else None
            self._request_generation = manager.generation
        return self._request

    def mutation(self, now_ms: int) -> MutationGroup | None:
        """The group that partitions which this client makes or deletes count for."""
        manager = self._scope.mutation
        if self._mutation_generation != manager.generation or manager.custom_callback:
            on = manager.enabled and self._scope.mutation_on
            self._mutation = manager.group(self.principal, self.client_id, now_ms) if on else None
            self._mutation_generation = manager.generation
        return self._mutation

    def exempt(self, elapsed_ns: int, now_ms: int) -> None:
        """Count time that no quota applies to."""
        self._scope.request.record_exempt(elapsed_ns, now_ms)

    def produce_throttled(self, group: QuotaGroup, throttle_ms: int, now_ms: int) -> None:
        """Keep the books of a produce verdict above zero."""
        self._throttled(self._scope.produce, "Produce", group, throttle_ms, now_ms)

    def fetch_throttled(self, group: QuotaGroup, throttle_ms: int, now_ms: int) -> None:
        """Keep the books of a fetch verdict above zero."""
        self._throttled(self._scope.fetch, "Fetch", group, throttle_ms, now_ms)

    def request_throttled(self, group: QuotaGroup, throttle_ms: int, now_ms: int) -> None:
        """Keep the books of a request-time verdict above zero."""
        self._throttled(self._scope.request, "Request", group, throttle_ms, now_ms)

    def mutation_throttled(self, group: MutationGroup, throttle_ms: int, now_ms: int) -> None:
        """Keep the books of a controller-mutation verdict above zero."""
        self._throttled(self._scope.mutation, "ControllerMutation", group, throttle_ms, now_ms)

    def _throttled(
        self,
        manager: ClientQuotaManager | ControllerMutationQuotaManager,
        quota_type: str,
        group: QuotaGroup | MutationGroup,
        throttle_ms: int,
        now_ms: int,
    ) -> None:
        group.record_throttle(throttle_ms, now_ms)
        self._counters.throttled(quota_type, throttle_ms)
        self.usage.throttled(quota_type, rule_of(group.tags, manager.limits, custom_callback=manager.custom_callback), throttle_ms)
