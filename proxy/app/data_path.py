"""Serves admitted connections: sessions, groups, connections to brokers, metering. There is one in each process that relays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from protocol.messages.metadata import Topology
from proxy.app.config_parts import (
    apply_policy,
    callback_choice,
    gateway_settings,
    group_factories,
    limit_principals,
    quota_windows,
    static_defaults,
)
from proxy.base.clock import now_ms
from proxy.config.checks.pacing import refusal_of
from proxy.config.load import ConfigSource
from proxy.config.model import Config
from proxy.config.sections.groups import declared_groups
from proxy.enforcement.groups.child_groups import enforced_bucket
from proxy.enforcement.groups.enforced_groups import EnforcedMutationGroup
from proxy.enforcement.groups.group_factory import PLAIN, GroupFactories
from proxy.enforcement.paced.factory import PacedGroups
from proxy.enforcement.pacing import PacingTable
from proxy.enforcement.policy import Policy
from proxy.enforcement.quota_scopes import CallbackChoice, QuotaScopes, QuotaTable
from proxy.enforcement.switches import Switches
from proxy.handler_time import HandlerTimes, MakeBrokerHandlerTime, alone
from proxy.net.accept.bound_listener import BoundListener
from proxy.net.accept.client_listeners import AdmittedConnection
from proxy.net.buffer_budget import BufferBudget
from proxy.net.connection_deadlines import Deadlines
from proxy.net.gateway import ConnectionSlots, Gateway, GatewayEvents
from proxy.net.relay.announced_quotas import AnnouncedQuotas
from proxy.net.upstream.routes import Routes
from proxy.session.settings import SessionSettings
from proxy.telemetry import log
from proxy.telemetry.client_usage import UsageTable
from proxy.telemetry.counters import Counters
from quota.callbacks.cluster import Cluster, PartitionInfo

if TYPE_CHECKING:
    from proxy.metering.metering import JudgedConnections, Metering
    from proxy.shared_usage.shared_usage import SharedUsage

EXPIRE_S = 30.0

Peer = tuple[str, int]


class DataPath:
    """The connections of one process, with their sessions and quotas.

    Args:
        listeners: give the addresses that clients receive.
        slots: takes back the slot of a connection that ended.
        on_login_failed: called with the address of each client that a broker does not let in.
        factories: make the groups of each scope.
        make_handler_time: makes what is known of the time of a broker's request handlers.
        make_mutation_group: makes the groups of controller mutations.
        announced_quotas: quotas that another process announces; None: no other process does.
    """

    def __init__(
        self,
        config: Config,
        source: ConfigSource,
        counters: Counters,
        policy: Policy,
        routes: Routes,
        listeners: Sequence[BoundListener],
        *,
        slots: ConnectionSlots,
        on_login_failed: Callable[[Peer], None],
        factories: GroupFactories = PLAIN,
        make_handler_time: MakeBrokerHandlerTime = alone,
        make_mutation_group: Callable[..., EnforcedMutationGroup] = enforced_bucket,
        announced_quotas: AnnouncedQuotas | None = None,
    ) -> None:
        self.config = config
        self.counters = counters
        self.policy = policy
        self._factories = factories
        self.usages = UsageTable()
        self.session_settings = SessionSettings(policy.base, self.usages, counters, policy)
        self.deadlines = Deadlines()
        self.budget = BufferBudget(counters, config.limits.process_buffer_bytes_max, self.session_settings.buffers)
        self._groups = declared_groups(config.groups)
        self._apply(config)
        factories = group_factories(config, factories)
        self.pacings = factories.pacings if isinstance(factories, PacedGroups) else None  # None: nothing can be paced
        self.session_settings.paces = self.pacings is not None and self.pacings.paces
        self.scopes = QuotaScopes(
            per_cluster=config.enforcement.scope == "cluster",
            choice=callback_choice(config, source.place),
            statics=static_defaults(config),
            windows=quota_windows(config),
            factories=factories,
            make_mutation_group=make_mutation_group,
        )
        self._declare()
        self.gateway = Gateway(
            gateway_settings(config, counters, on_login_failed),
            self.session_settings,
            counters,
            routes,
            self.deadlines,
            self.budget,
            listeners,
            slots,
            GatewayEvents(self.scopes.of, self.learn_cluster, self._node_met, lambda: self.scopes.wants_cluster, announced_quotas),
            HandlerTimes(make_handler_time),
        )
        self.on_node_learned: Callable[[int, Peer, int], None] | None = None
        self.scopes.on_moved = self.gateway.count_anew
        self.scopes.on_repaced = self.gateway.repaced
        self.metering: Metering | None = None
        self._switch_table: Mapping[str, str] | None = None
        self._pacing_table: Mapping[str, str] | None = None
        self._switch_quotas(config)

    def meter(self, judged: JudgedConnections) -> None:
        """Begin to meter, when the configuration says so.

        Args:
            judged: the connection quotas whose decisions are metered.

        Raises:
            StartError: the directory cannot be written.
        """
        if not self.config.metering.is_on:
            return
        from proxy.metering.facts.fleet_fact import fleet_setting
        from proxy.metering.metering import Metering  # imported here: without metering no Arrow is loaded

        shared = self._shared()
        fleet = {} if shared is None else fleet_setting(self.config, shared.segment, shared.fleet_key)
        counts, pacings = self.counters.metering, self.pacings
        self.metering = Metering(self.config, self.scopes, judged, counts, self.policy, shared, of_run=fleet, pacings=pacings)
        self.session_settings.meter = self.metering.meter
        self.scopes.on_lead = self.metering.meter.schedule_begins
        self.scopes.on_rescaled = self.metering.meter.schedule_rescaled
        self.metering.start(self.config)

    def _shared(self) -> SharedUsage | None:
        """Return the sharing of usage with other workers, or None."""
        if self._factories is PLAIN:
            return None
        from proxy.shared_usage.shared_usage import SharedUsage

        return self._factories if isinstance(self._factories, SharedUsage) else None

    @property
    def requests(self) -> int:
        """Number of requests forwarded so far."""
        return self.counters.requests + sum(connection.session.requests.frames for connection in self.gateway.connections)

    # --- called by the control plane

    @property
    def wants_cluster(self) -> bool:
        """Whether a quota callback needs topics, partitions and leaders."""
        return self.scopes.wants_cluster

    def serve(self, admitted: AdmittedConnection) -> None:
        """Serve an admitted connection."""
        self.gateway.serve(admitted)

    def may_accept(self) -> bool:
        """Whether there is memory for one more connection."""
        return self.budget.accepting

    def make_room(self, protected_listener: str) -> None:
        """Close a connection of another listener."""
        self.gateway.make_room(protected_listener)

    def apply_table(self, table: QuotaTable, who: str | None) -> None:
        """Apply a table of quotas from the next request on.

        Args:
            table: bounds by quota type and entity.
            who: the principal that requested the change; None: at startup, or from another source.
        """
        self.scopes.apply_table(table)
        if self.metering is not None:
            self.metering.quotas_changed(who)

    def apply_switches(self, table: Mapping[str, str]) -> bool:
        """Apply switches from the next request on; no connection ends. False: they have not changed."""
        if table is self._switch_table:  # two contents share the parts that are equal
            return False
        self._switch_table = table
        switches = Switches(table)
        for problem in switches.problems:
            log.warning("switch_ignored", limit_key="switch_ignored", problem=problem)
        if not self.policy.switch(switches):
            return False
        self.scopes.renew()
        if self.metering is not None:
            self.metering.settings_changed(self.config)
        self.gateway.enforcement_changed()
        log.info("switches_changed", switches=len(switches.table), all=None if switches.of_all is None else switches.of_all.value)
        return True

    def apply_pacing(self, table: Mapping[str, str]) -> None:
        """Apply the pacings of the quota store from the next request on; no connection ends."""
        if table is self._pacing_table:  # two contents share the parts that are equal
            return
        self._pacing_table = table
        pacing = PacingTable(table)
        refusal = refusal_of(self.config) if pacing.paces else None
        for problem in pacing.problems if refusal is None else [f"the quotas {refusal}"]:
            log.warning("pacing_ignored", limit_key="pacing_ignored", problem=problem)
        pacings = self.pacings
        if pacings is None or refusal is not None or pacing.table == pacings.table.table:
            return
        pacings.table = pacing
        self.session_settings.paces = pacings.paces
        replaced = self.scopes.repace()
        if self.metering is not None:
            self.metering.pacing_changed(self.config)
        self.gateway.repaced(replaced)
        log.info("pacing_changed", entries=len(pacing.table), paces=pacings.paces)

    def _node_met(self, node_id: int, address: Peer, route: int) -> None:
        """A connection to the port of a broker has reached it at this address."""
        if self.scopes.learn(node_id, address, route) and self.on_node_learned is not None:
            self.on_node_learned(node_id, address, route)

    def learn_cluster(self, topology: Topology) -> None:
        """Pass partitions and their leaders to callbacks that need them."""
        if self.scopes.wants_cluster:
            partitions = tuple(PartitionInfo(part.topic, part.partition, part.leader) for part in topology.partitions)
            nodes = tuple(broker.node_id for broker in topology.brokers)
            self.scopes.update_cluster(Cluster(topology.cluster_id, nodes, partitions))

    # --- settings

    def reload(self, config: Config, choice: CallbackChoice) -> None:
        """Apply another configuration from the next request on; `choice` is its callback."""
        if self.metering is not None:
            self.metering.settings_changed(config)
        self._rebuild_scopes(config, choice)
        self._apply(config)
        self.gateway.settings_changed()
        self.config = config

    def _apply(self, config: Config) -> None:
        """Apply the settings that take effect on the next request."""
        apply_policy(self.policy, config, self._groups)
        self._apply_to_sessions(config)
        limits, deadlines = config.limits, self.deadlines
        deadlines.tls_handshake_ms = limits.tls_handshake_ms
        deadlines.first_frame_ms = limits.first_frame_ms
        deadlines.login_ms = limits.login_ms
        deadlines.frame_grace_ms = limits.frame_grace_ms
        deadlines.frame_bytes_per_second_min = limits.frame_bytes_per_second_min
        deadlines.undrained_ms = limits.undrained_ms
        deadlines.idle_ms = limits.idle_ms
        deadlines.departed_ms = limits.departed_ms
        self.budget.bytes_max = limits.process_buffer_bytes_max

    def _apply_to_sessions(self, config: Config) -> None:
        settings = self.session_settings
        settings.shadows = config.quotas.store == "forward"
        settings.answers_quotas = config.quotas.store != "forward"
        settings.empty_client_id_is_default = config.empty_client_id == "default-entity"
        settings.unknown_apis_pass = config.unknown_apis == "pass"
        settings.frame_bytes_max = config.limits.request_frame_bytes_max
        limit_principals(settings.principals, config)

    def _rebuild_scopes(self, config: Config, choice: CallbackChoice) -> None:
        old = self.config
        if (config.enforcement.scope, config.callback, static_defaults(config)) != (
            old.enforcement.scope,
            old.callback,
            static_defaults(old),
        ):
            self.scopes.change(per_cluster=config.enforcement.scope == "cluster", choice=choice, statics=static_defaults(config))
        if config.groups != old.groups:
            self._groups = declared_groups(config.groups)
            self._declare()
        self._switch_quotas(config)

    def _declare(self) -> None:
        if self.pacings is not None:
            self.pacings.groups = self._groups
        self.scopes.declare(self._groups)

    def _switch_quotas(self, config: Config) -> None:
        quotas = config.quotas
        self.scopes.switch(produce=quotas.produce, fetch=quotas.fetch, request=quotas.request, mutation=quotas.controller_mutation)

    # --- shutdown

    async def drain(self) -> None:
        """Forward responses in flight, release what waits, end every connection."""
        log.info("draining", connections=len(self.gateway.connections))
        in_time = await self.gateway.drain()
        log.info("drained", in_time=in_time)

    async def stop(self) -> None:
        """Write the remaining metering, and close callbacks; every connection has ended."""
        if self.metering is not None:
            await self.metering.stop()
        self.scopes.close()

    async def expire_forever(self) -> None:
        """Forget idle groups, until cancelled."""
        while True:
            await asyncio.sleep(EXPIRE_S)
            self.scopes.expire(now_ms())
