"""Where bytes, request time and mutations are counted: the managers of one scope, and the groups cached for a client."""

from __future__ import annotations

from proxy.enforcement.groups.enforced_groups import EnforcedGroup, EnforcedMutationGroup
from proxy.enforcement.groups.group_factory import GroupFactory
from proxy.enforcement.policy import Policy
from proxy.enforcement.rule import rule_of
from proxy.telemetry.client_usage import Usage
from proxy.telemetry.counters import Counters
from quota.controller_mutation import ControllerMutationQuotaManager
from quota.entity import KafkaPrincipal
from quota.groups.declared_groups import UNKNOWN_ORIGIN, Member, Origin
from quota.maker import Maker
from quota.manager import ClientQuotaManager, Group, QuotaGroups, Renewals
from quota.names import KeptName, kept_name
from quota.request_time import ClientRequestQuotaManager

EnforcedManager = ClientQuotaManager[EnforcedGroup]
EnforcedRequestManager = ClientRequestQuotaManager[EnforcedGroup]
EnforcedMutationManager = ControllerMutationQuotaManager[EnforcedMutationGroup]


class QuotaScope:
    """The managers of one scope: a broker (as in Kafka) or all brokers of this process.

    Attributes:
        label: node id, address while the id is unknown, or "cluster".
        mutation: the manager of the whole cluster, shared by all scopes, since in Kafka one controller has the buckets.
        produce_on, fetch_on, request_on, mutation_on: False: usage is counted, and no quota of that type applies.
        factory: creates the groups of its own managers.
        renewals: of its own managers.
    """

    __slots__ = (
        "factory",
        "fetch",
        "fetch_on",
        "label",
        "mutation",
        "mutation_on",
        "produce",
        "produce_on",
        "renewals",
        "request",
        "request_on",
    )

    def __init__(
        self,
        label: str,
        produce: EnforcedManager,
        fetch: EnforcedManager,
        request: EnforcedRequestManager,
        mutation: EnforcedMutationManager,
        factory: GroupFactory,
    ) -> None:
        self.label = label
        self.factory = factory
        self.produce = produce
        self.fetch = fetch
        self.request = request
        self.mutation = mutation
        self.renewals = Renewals()
        for manager in self.own_managers:
            manager.renewals = self.renewals
        self.produce_on = self.fetch_on = self.request_on = self.mutation_on = True

    @property
    def own_managers(self) -> tuple[EnforcedManager, ...]:
        """The managers that belong only to this scope."""
        return (self.produce, self.fetch, self.request)


class ClientQuota:
    """One (principal, client-id) of one origin in one scope: its groups, and how verdicts on it are enforced.

    Both are resolved once per generation of the managers: a change of quotas, switches or settings causes a new look-up. `produce`,
    `fetch`, `request` and `mutation` return None while no quota of that type was ever set (Kafka's "not enabled"), and when nothing of
    this client is recorded: it is exempt, or a switch is off.

    Attributes:
        enforcement: how a verdict is enforced; valid once its group was looked up.
        is_exempt: no quota applies to the principal, by name.
        declared: the declared group that it is in; None: none.
    """

    __slots__ = (
        "_counters",
        "_fetch",
        "_fetch_generation",
        "_is_recorded",
        "_maker",
        "_mutation",
        "_mutation_generation",
        "_origin",
        "_policy",
        "_policy_generation",
        "_produce",
        "_produce_generation",
        "_request",
        "_request_generation",
        "_scope",
        "_who",
        "client_id",
        "declared",
        "enforcement",
        "is_exempt",
        "principal",
        "usage",
    )

    def __init__(
        self,
        scope: QuotaScope,
        principal: KafkaPrincipal,
        client_id: str,
        usage: Usage,
        counters: Counters,
        policy: Policy,
        origin: Origin = UNKNOWN_ORIGIN,
        maker: Maker | None = None,
    ) -> None:
        self._scope = scope
        self._counters = counters
        self._policy = policy
        self._origin = origin
        self._maker = maker
        self.principal = principal
        self._who = principal if origin.groups is None else Member(principal, origin.group_of(principal.name, client_id))
        self.declared = self._who.group if isinstance(self._who, Member) else None
        kept = kept_name(client_id)
        self.client_id = client_id if scope.produce.custom_callback else kept  # an operator's callback receives the whole name
        self.usage = usage
        self._produce: EnforcedGroup | None = None
        self._produce_generation = -1
        self._fetch: EnforcedGroup | None = None
        self._fetch_generation = -1
        self._request: EnforcedGroup | None = None
        self._request_generation = -1
        self._mutation: EnforcedMutationGroup | None = None
        self._mutation_generation = -1
        self._policy_generation = -1
        self._is_recorded = True
        self.is_exempt = False
        self.enforcement = policy.base
        self._policy_generation = policy.generation
        self._resolve_enforcement(client_id)

    @property
    def scope(self) -> QuotaScope:
        """The scope, whose managers have its groups."""
        return self._scope

    @property
    def has_custom_callback(self) -> bool:
        """Whether an operator's callback chooses the groups, which are then looked up for each request."""
        scope = self._scope
        return scope.produce.custom_callback or scope.fetch.custom_callback or scope.request.custom_callback

    def refresh_enforcement(self) -> None:
        """Look up again how verdicts on this client are enforced, if anything changed."""
        policy = self._policy
        if self._policy_generation == policy.generation:
            return
        self._policy_generation = policy.generation
        if not isinstance(self.client_id, KeptName):  # a request with a long name uses the state of its first look-up
            self._resolve_enforcement(self.client_id)

    def _resolve_enforcement(self, client_id: str) -> None:
        policy = self._policy
        enforcement = policy.of_client(self._origin.listener, self.principal, client_id)
        self._is_recorded = enforcement is not None
        self.enforcement = enforcement or policy.base
        self.is_exempt = policy.is_exempt(self.principal)
        self.usage.count_exempt(self.is_exempt)

    @property
    def is_enforced(self) -> bool:
        """Whether this client is delayed by verdicts at present."""
        self.refresh_enforcement()
        return self._is_recorded and not self.enforcement.only_observes

    def latencies(self, api_key: int, *, known: bool, broker: str) -> list[int]:
        """Return the latency histogram of an API's responses; shared by all clients.

        Args:
            broker: the node id; empty: the broker of the scope.
        """
        return self._counters.latencies.of(api_key, known=known, broker=broker or self._scope.label)

    def produce(self, now_ms: int) -> EnforcedGroup | None:
        """The group of this client's produced bytes."""
        manager = self._scope.produce
        if self._produce_generation != manager.generation:
            self._produce = self._group_in(manager, now_ms) if self._scope.produce_on else None
            self._produce_generation = _generation(manager)
        return self._produce

    def fetch(self, now_ms: int) -> EnforcedGroup | None:
        """The group of this client's fetched bytes."""
        manager = self._scope.fetch
        if self._fetch_generation != manager.generation:
            self._fetch = self._group_in(manager, now_ms) if self._scope.fetch_on else None
            self._fetch_generation = _generation(manager)
        return self._fetch

    def request(self, now_ms: int) -> EnforcedGroup | None:
        """The group of this client's request time, in percent of one thread."""
        manager = self._scope.request
        if self._request_generation != manager.generation:
            self._request = self._group_in(manager, now_ms) if self._scope.request_on else None
            self._request_generation = _generation(manager)
        return self._request

    def mutation(self, now_ms: int) -> EnforcedMutationGroup | None:
        """The group of this client's controller mutations."""
        manager = self._scope.mutation
        if self._mutation_generation != manager.generation:
            self._mutation = self._group_in(manager, now_ms) if self._scope.mutation_on else None
            self._mutation_generation = _generation(manager)
        return self._mutation

    def _group_in(self, manager: QuotaGroups[Group], now_ms: int) -> Group | None:
        self.refresh_enforcement()
        if not (manager.enabled and self._is_recorded):
            return None
        return manager.group(self._who, self.client_id, now_ms, self._maker)

    def exempt(self, elapsed_ns: int, now_ms: int) -> None:
        """Count exempt time."""
        self._scope.request.record_exempt(elapsed_ns, now_ms)

    def produce_throttled(self, group: EnforcedGroup, throttle_ms: int, now_ms: int) -> None:
        """Count a produce verdict above zero."""
        self._throttled(self._scope.produce, "Produce", group, throttle_ms, now_ms)

    def fetch_throttled(self, group: EnforcedGroup, throttle_ms: int, now_ms: int) -> None:
        """Count a fetch verdict above zero."""
        self._throttled(self._scope.fetch, "Fetch", group, throttle_ms, now_ms)

    def request_throttled(self, group: EnforcedGroup, throttle_ms: int, now_ms: int) -> None:
        """Count a request-time verdict above zero."""
        self._throttled(self._scope.request, "Request", group, throttle_ms, now_ms)

    def mutation_throttled(self, group: EnforcedMutationGroup, throttle_ms: int, now_ms: int) -> None:
        """Count a controller-mutation verdict above zero."""
        self._throttled(self._scope.mutation, "ControllerMutation", group, throttle_ms, now_ms)

    def _throttled(
        self,
        manager: EnforcedManager | EnforcedMutationManager,
        quota_type: str,
        group: EnforcedGroup | EnforcedMutationGroup,
        throttle_ms: int,
        now_ms: int,
    ) -> None:
        group = group.limiting
        group.record_throttle(throttle_ms, now_ms)
        self._counters.throttled(quota_type, throttle_ms)
        self.usage.throttled(quota_type, rule_of(group.tags, manager.rules, custom_callback=manager.custom_callback), throttle_ms)


def _generation(manager: QuotaGroups[Group]) -> int:
    """Return the generation up to which a group of `manager` is valid; with an operator's callback it is valid for one request."""
    return -1 if manager.custom_callback else manager.generation
