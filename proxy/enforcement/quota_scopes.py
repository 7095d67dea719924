"""All quota managers of the process: a set for each broker (as Kafka) or one for the whole cluster, and one for controller mutations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from proxy.base.clock import now_ms as clock_ms
from proxy.base.clock import now_ns
from proxy.enforcement.groups.child_groups import enforced_bucket
from proxy.enforcement.groups.enforced_groups import EnforcedMutationGroup
from proxy.enforcement.groups.group_factory import PLAIN, GroupFactories, GroupFactory
from proxy.enforcement.mode import INT32_MAX
from proxy.enforcement.paced.factory import PacedMaker
from proxy.enforcement.paced.manager import OnLead, OnRescaled, PaceableManager, Replaced
from proxy.enforcement.paced.request_manager import PaceableRequestManager
from proxy.enforcement.quota_scope import EnforcedManager, EnforcedRequestManager, QuotaScope
from proxy.telemetry import log
from quota.callbacks.callback import ClientQuotaCallback
from quota.callbacks.cluster import Cluster
from quota.callbacks.guarded_callback import GuardedCallback
from quota.controller_mutation import ControllerMutationQuotaManager
from quota.entity import ClientQuotaEntity, ClientQuotaType
from quota.groups.declared_groups import NO_GROUPS, DeclaredGroups
from quota.manager import ClientQuotaManager
from quota.request_time import ClientRequestQuotaManager

Address = tuple[str, int]
QuotaTable = Mapping[ClientQuotaType, Mapping[ClientQuotaEntity, float]]
CLUSTER = "cluster"
EMPTY_TABLE: QuotaTable = {}


class CallbackChoice:
    """The class that decides the groups, and its settings; None: Kafka's eight levels."""

    __slots__ = ("callback_class", "settings")

    def __init__(self, callback_class: type[Any] | None = None, settings: Mapping[str, Any] | None = None) -> None:
        self.callback_class = callback_class
        self.settings = dict(settings or {})


class QuotaWindows(NamedTuple):
    """Number and length (ms) of samples; controller mutations have their own."""

    num_samples: int = 11
    window_ms: int = 1_000
    controller_num_samples: int = 11
    controller_window_ms: int = 1_000


class QuotaScopes:
    """Scopes by upstream address; a scope gets its node id when a response contains it.

    Attributes:
        mutation: counts the controller mutations of the whole cluster, whatever the scope of the others.

    Args:
        statics: bytes per second for clients without a quota, by type (Kafka's old `quota.producer.default`).
        windows: of every manager; they do not change.
        factories: create the groups of each scope.
        make_mutation_group: creates the groups of controller mutations, as `enforced_bucket` does.
    """

    def __init__(
        self,
        *,
        per_cluster: bool,
        choice: CallbackChoice,
        statics: Mapping[ClientQuotaType, float],
        windows: QuotaWindows | None = None,
        factories: GroupFactories = PLAIN,
        make_mutation_group: Callable[..., EnforcedMutationGroup] = enforced_bucket,
    ) -> None:
        self._per_cluster = per_cluster
        self._choice = choice
        self._statics = dict(statics)
        self._windows = windows or QuotaWindows()
        self._factories = factories
        self._scopes: dict[Address | str, QuotaScope] = {}
        self._callbacks: dict[QuotaScope | str, GuardedCallback] = {}
        self._node_ids: dict[Address, int] = {}
        self._routes: dict[Address, int] = {}  # a broker may have one address on several routes
        self._table: QuotaTable = EMPTY_TABLE
        self._cluster: Cluster | None = None
        self._on = (True, True, True, True)
        self._groups = NO_GROUPS
        self.on_labelled: Callable[[], None] | None = None  # called when a broker's scope gets its node id
        self.on_moved: Callable[[], None] | None = None  # called when connections have to call `of` again
        self.on_lead: OnLead | None = None  # called for each group that gets a schedule at run time
        self.on_rescaled: OnRescaled | None = None  # called for each group whose schedule was rescaled, since its bound changed
        self.on_repaced: Callable[[Replaced], None] | None = None  # called when groups were replaced, since their pacing changed
        callback = self._make_callback(None)
        self.mutation = ControllerMutationQuotaManager(
            make_mutation_group,
            num_samples=self._windows.controller_num_samples,
            window_ms=self._windows.controller_window_ms,
            callback=callback,
            starts_full=True,
        )
        self._enlist(CLUSTER, callback)

    def of(self, address: Address) -> QuotaScope:
        """Return the scope of traffic to the broker at `address`."""
        key: Address | str = CLUSTER if self._per_cluster else address
        scope = self._scopes.get(key)
        if scope is None:
            scope = None if self._per_cluster else self._met_elsewhere(address)
            if scope is None:
                scope = self._make(CLUSTER if self._per_cluster else self._label(address), self._node_ids.get(address))
            self._scopes[key] = scope
        return scope

    def _met_elsewhere(self, address: Address) -> QuotaScope | None:
        """The scope of the broker at `address`, if it has one on another route."""
        node_id = self._node_ids.get(address)
        others = (other for other, other_id in self._node_ids.items() if other_id == node_id and other != address)
        return None if node_id is None else next((self._scopes[other] for other in others if other in self._scopes), None)

    def all(self) -> list[QuotaScope]:
        """Return every scope once."""
        return list(dict.fromkeys(self._scopes.values()))

    def node_id(self, address: Address) -> int | None:
        """Return the node id of the broker at `address`, or None while unknown."""
        return self._node_ids.get(address)

    @property
    def reached(self) -> Iterator[tuple[int, int, str, int]]:
        """The brokers whose node ids are known: route, node id, host and port of each."""
        return ((self._routes[address], node_id, *address) for address, node_id in self._node_ids.items())

    def learn(self, node_id: int, address: Address, route: int = 0) -> bool:
        """Store the node id of the broker at `address`. A broker that moved keeps its sensors, and one on several routes has them once.

        Returns:
            Whether it is new.
        """
        if self._node_ids.get(address) == node_id:
            return False
        known = next((other for other, other_id in self._node_ids.items() if other_id == node_id and self._routes[other] == route), None)
        if known is not None:
            del self._node_ids[known], self._routes[known]
        self._node_ids[address] = node_id
        self._routes[address] = route
        if not self._per_cluster:
            self._name_scope(node_id, address, known)
        return True

    def _name_scope(self, node_id: int, address: Address, known: Address | None) -> None:
        """Let the traffic to `address` count for the broker `node_id`, whose address was `known` before."""
        scope = self._scopes.get(address)
        moved = None if known is None else self._scopes.pop(known, None)  # the next broker at its old address is another one
        moved = moved or self._met_elsewhere(address)
        if moved is not None:
            self._move(moved, address, scope)
        elif scope is not None:
            scope.label = str(node_id)
            scope.factory.rescope(scope.label)
            if self.on_labelled is not None:
                self.on_labelled()
            callback = self._callbacks.get(scope)
            if callback is not None:
                callback.configure(self._configs(node_id))

    def _move(self, moved: QuotaScope, address: Address, replaced: QuotaScope | None) -> None:
        self._scopes[address] = moved
        if replaced is None:
            return
        if self.on_moved is not None:
            self.on_moved()
        if replaced not in self._scopes.values():
            _release(replaced)
        callback = self._callbacks.pop(replaced, None)
        if callback is not None:
            callback.close()

    def apply_table(self, table: QuotaTable) -> None:
        """Apply a quota table everywhere; entities that are not in it have no quota. A type with the same mapping object is unchanged."""
        before, self._table = self._table, table
        for scope in self.all():
            self._fill(scope, before)
        self._keep_pacing()
        if table.get(ClientQuotaType.CONTROLLER_MUTATION) is not before.get(ClientQuotaType.CONTROLLER_MUTATION):
            self.mutation.replace_quotas(table.get(ClientQuotaType.CONTROLLER_MUTATION, {}))

    def switch(self, *, produce: bool = True, fetch: bool = True, request: bool = True, mutation: bool = True) -> None:
        """Enable or disable the quotas of each type."""
        self._on = (produce, fetch, request, mutation)
        for scope in self.all():
            scope.produce_on, scope.fetch_on, scope.request_on, scope.mutation_on = self._on
        self.renew()

    def declare(self, groups: DeclaredGroups) -> None:
        """Use these declared groups from the next request on, and no others."""
        self._groups = groups
        for scope in self.all():
            for manager in scope.own_managers:
                manager.declare(groups)
        self.mutation.declare(groups)
        self._keep_pacing()

    def repace(self) -> Replaced:
        """Give each group the pacing that applies to it now; return the groups that were replaced."""
        now_ms = clock_ms()
        replaced: Replaced = {}
        for manager in self._paceable():
            replaced.update(manager.repace(now_ms, self.on_lead))
        return replaced

    def _keep_pacing(self) -> None:
        """Quotas or declared groups changed: some groups may have another bound or pacing than before."""
        now_ms = clock_ms()
        for manager in self._paceable():
            manager.rescale(now_ms, self.on_rescaled)
        if any(manager.depends_on_quotas for manager in self._paceable()):
            replaced = self.repace()
            if replaced and self.on_repaced is not None:
                self.on_repaced(replaced)

    def _paceable(self) -> list[PaceableManager]:
        managers = (manager for scope in self.all() for manager in scope.own_managers)
        return [manager for manager in managers if isinstance(manager, PaceableManager)]

    def renew(self) -> None:
        """Let every client look up its groups and its enforcement again with its next request."""
        self.mutation.renew()
        for scope in self.all():
            for manager in scope.own_managers:
                manager.renew()

    def change(self, *, per_cluster: bool, choice: CallbackChoice, statics: Mapping[ClientQuotaType, float]) -> None:
        """Use another callback, static default or scope from the next request on.

        Groups with equal tags keep their history, unless the scope changes and with it the sensors.
        """
        rescoped = per_cluster != self._per_cluster
        self._per_cluster, self._choice, self._statics = per_cluster, choice, dict(statics)
        old, self._callbacks = list(self._callbacks.values()), {}
        callback = self._make_callback(None)
        self.mutation.replace_callback(callback)
        self._enlist(CLUSTER, callback)
        if rescoped:
            for scope in self.all():
                _release(scope)
            self._scopes = {}
            if self.on_moved is not None:
                self.on_moved()
        else:
            for scope, key in {scope: key for key, scope in self._scopes.items()}.items():
                self._install(scope, None if isinstance(key, str) else self._node_ids.get(key))
        for callback in old:
            callback.close()
        self._keep_pacing()

    def _install(self, scope: QuotaScope, node_id: int | None) -> None:
        callback = self._make_callback(node_id)
        for manager in scope.own_managers:
            manager.update_static_default(self._statics.get(manager.quota_type))
            manager.replace_callback(callback)
        self._enlist(scope, callback)

    def update_cluster(self, cluster: Cluster) -> None:
        """Pass the cluster's partitions and leaders to every callback."""
        if cluster == self._cluster:
            return
        self._cluster = cluster
        for scope, callback in self._callbacks.items():
            if callback.update_cluster_metadata(cluster):
                for manager in (self.mutation,) if isinstance(scope, str) else scope.own_managers:
                    manager.refresh_bounds()

    @property
    def wants_cluster(self) -> bool:
        """Whether a quota callback needs topics, partitions and leaders."""
        return self._choice.callback_class is not None

    @property
    def callbacks(self) -> list[GuardedCallback]:
        """The operator's callbacks: that of controller mutations, then one for each scope."""
        return list(self._callbacks.values())

    @property
    def callback_name(self) -> str | None:
        """Module and class of the operator's callback."""
        chosen = self._choice.callback_class
        return None if chosen is None else f"{chosen.__module__}:{chosen.__qualname__}"

    def expire(self, now_ms: int) -> None:
        """Forget groups that recorded nothing for an hour."""
        for scope in self.all():
            for manager in scope.own_managers:
                manager.expire(now_ms)
        self.mutation.expire(now_ms)

    def close(self) -> None:
        """Close the operator's callbacks."""
        for callback in self._callbacks.values():
            callback.close()

    def _label(self, address: Address) -> str:
        node_id = self._node_ids.get(address)
        return f"{address[0]}:{address[1]}" if node_id is None else str(node_id)

    def _make(self, label: str, node_id: int | None) -> QuotaScope:
        callback = self._make_callback(node_id)
        factory = self._factories.of_scope(label)
        make_timed = factory.maker(ClientQuotaType.REQUEST)
        make_request_manager: Callable[..., EnforcedRequestManager] = ClientRequestQuotaManager
        if isinstance(make_timed, PacedMaker):
            make_request_manager = PaceableRequestManager
        scope = QuotaScope(
            label,
            self._make_manager(ClientQuotaType.PRODUCE, callback, factory),
            self._make_manager(ClientQuotaType.FETCH, callback, factory),
            make_request_manager(
                make_timed,
                num_samples=self._windows.num_samples,
                window_ms=self._windows.window_ms,
                callback=callback,
            ),
            self.mutation,
            factory,
        )
        scope.produce_on, scope.fetch_on, scope.request_on, scope.mutation_on = self._on
        for manager in scope.own_managers:
            manager.declare(self._groups)
        self._enlist(scope, callback)
        self._fill(scope)
        return scope

    def _enlist(self, scope: QuotaScope | str, callback: ClientQuotaCallback | None) -> None:
        if isinstance(callback, GuardedCallback):
            self._callbacks[scope] = callback
            if self._cluster is not None:
                callback.update_cluster_metadata(self._cluster)

    def _make_manager(self, quota_type: ClientQuotaType, callback: ClientQuotaCallback | None, factory: GroupFactory) -> EnforcedManager:
        make = factory.maker(quota_type)
        make_manager: Callable[..., EnforcedManager] = PaceableManager if isinstance(make, PacedMaker) else ClientQuotaManager
        # a throttle time of more than 24.8 days saturates: Kafka's wraps, and a negative one would delay no client
        return make_manager(
            quota_type,
            make,
            num_samples=self._windows.num_samples,
            window_ms=self._windows.window_ms,
            callback=callback,
            static_default=self._statics.get(quota_type),
            cap_ms=INT32_MAX,
        )

    def _make_callback(self, node_id: int | None) -> ClientQuotaCallback | None:
        if self._choice.callback_class is None:
            return None
        callback = GuardedCallback(self._choice.callback_class, now_ns=now_ns, on_fault=_log_fault, static_defaults=self._statics)
        callback.configure(self._configs(node_id))
        return callback

    def _configs(self, node_id: int | None) -> dict[str, Any]:
        return {**self._choice.settings, "broker.id": -1 if node_id is None else node_id}

    def _fill(self, scope: QuotaScope, before: QuotaTable = EMPTY_TABLE) -> None:
        for manager in scope.own_managers:
            if self._table.get(manager.quota_type) is not before.get(manager.quota_type):
                manager.replace_quotas(self._table.get(manager.quota_type, {}))


def _release(scope: QuotaScope) -> None:
    """Release a scope without traffic."""
    for manager in scope.own_managers:
        manager.release()


def _log_fault(method: str, error: str) -> None:
    log.warning("callback_fault", limit_key=f"callback_fault {method}", problem=error)
