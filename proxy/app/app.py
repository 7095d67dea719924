"""The composition root: builds the house from its settings, starts it, reloads it, drains it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from protocol.messages.metadata import Topology
from proxy.app.config_parts import callback_choice, gateway_settings, quota_windows, static_defaults
from proxy.app.live_state import LiveState
from proxy.app.open_files import fit_open_files
from proxy.app.reload import needs_restart
from proxy.base.clock import now_ms, now_ns, wall_time_s
from proxy.base.close_reason import CloseReason
from proxy.base.host_port import HostPort
from proxy.config.checks.admin import advice_on_administration, can_change
from proxy.config.load import ConfigSource
from proxy.config.model import Config
from proxy.config.problem import ConfigProblems
from proxy.config.sections.groups import declared_groups
from proxy.enforcement.mode import Enforcement, Mode
from proxy.enforcement.quota_scopes import CallbackChoice, QuotaScopes, QuotaTable
from proxy.enforcement.switches import Switches
from proxy.net.accept.admission import Admission
from proxy.net.accept.bound_listener import BoundListener
from proxy.net.accept.client_listeners import ClientListeners
from proxy.net.accept.connection_limits import ConnectionLimits
from proxy.net.buffer_budget import BufferBudget
from proxy.net.connection_deadlines import Deadlines
from proxy.net.gateway import Gateway, GatewayEvents
from proxy.net.upstream.brokers_quotas import BrokersQuotas
from proxy.net.upstream.login import ask_as
from proxy.net.upstream.own_login import OwnLogin
from proxy.net.upstream.prober import Prober
from proxy.net.upstream.routes import Route, Routes
from proxy.observe.tokens import Tokens
from proxy.quota_admin.audit.log import AuditLog
from proxy.quota_admin.authorizer import Authorizer, Rules
from proxy.quota_admin.authorizer_probe import AuthorizerProbe
from proxy.quota_admin.broker_authority import BrokerAuthority
from proxy.quota_admin.client_quota_api import ClientQuotaApi
from proxy.quota_admin.service import Administration
from proxy.quota_store.choice import make_store, other_store
from proxy.quota_store.followed import FollowedQuotas
from proxy.quota_store.forward import ForwardStore
from proxy.session.settings import SessionSettings
from proxy.telemetry import log
from proxy.telemetry.counters import Counters, UsageTable
from proxy.telemetry.garbage import GarbageWatch
from proxy.telemetry.loop_lag import LoopLag
from proxy.telemetry.watchdog import Watchdog
from proxy.tls.contexts import TlsContexts
from quota.callbacks.cluster import Cluster, PartitionInfo
from quota.connections.connection_quotas import ConnectionQuotas

if TYPE_CHECKING:
    from proxy.metering.metering import Metering
    from proxy.observe.admin_http import AdminHttp

EXPIRE_S = 30.0


class App:
    """One running proxy."""

    def __init__(self, config: Config, source: ConfigSource) -> None:
        self._source = source
        self.config = config
        self.enforcement = Enforcement()
        self.counters = Counters()
        self.usages = UsageTable()
        self._session_settings = SessionSettings(self.enforcement, self.usages, self.counters)
        self._deadlines = Deadlines()
        self._budget = BufferBudget(self.counters, config.limits.process_buffer_bytes_max, self._session_settings.buffers)
        windows = quota_windows(config)
        quotas = ConnectionQuotas(
            (listener.name for listener in config.listeners), num_samples=windows.num_samples, window_ms=windows.window_ms
        )
        self.admission = Admission(quotas, self.counters, self._session_settings.policy, per_cluster=config.enforcement.scope == "cluster")
        self.connection_limits = ConnectionLimits(quotas, self.admission.slot_freed)
        self._groups = declared_groups(config.groups)
        self._apply_live(config)
        self.scopes = QuotaScopes(
            per_cluster=config.enforcement.scope == "cluster",
            choice=callback_choice(config, source.place),
            statics=static_defaults(config),
            windows=quota_windows(config),
        )
        self.scopes.declare(self._groups)
        self._switch_quotas(config)
        self.tls = TlsContexts(asyncio.get_running_loop(), config, self.counters)
        routes = Routes(asyncio.get_running_loop(), config, self.tls)
        listeners = [BoundListener(one, self.tls.clients.get(one.name), routes.of(one.name)) for one in config.listeners]
        self.gateway = Gateway(
            gateway_settings(config, self.counters, self.admission),
            self._session_settings,
            self.counters,
            routes,
            self._deadlines,
            self._budget,
            listeners,
            self.admission,
            GatewayEvents(self.scopes.of, self._learn_cluster, self.scopes.learn, lambda: self.scopes.wants_cluster),
        )
        self.admission.make_room = self.gateway.make_room
        self.client_listeners = ClientListeners(
            listeners,
            self.counters,
            self.admission,
            header_ms=lambda: self._deadlines.first_frame_ms,
            hello_ms=lambda: self._deadlines.tls_handshake_ms,
            may_accept=lambda: self._budget.accepting,
            serve=self.gateway.serve,
        )
        self.scopes.on_moved = self.gateway.count_anew
        self.probers = {route.name: self._prober(route, config) for route in routes}
        self.prober = self.probers[routes.main.name]
        self.policy = self._session_settings.policy
        self._switch_table: Mapping[str, str] | None = None
        self.quotas = FollowedQuotas(self._apply_table, self.connection_limits.apply_rates)
        self.quotas.listeners.append(lambda content, _origin: self.apply_switches(content.switches))
        self.audit = AuditLog(config.audit.file, wall_time_s=wall_time_s)
        self.administration = Administration(
            self.quotas,
            Authorizer(Rules.of(config.quota_admin)),
            self.audit,
            self.counters.administration,
            now_ms=now_ms,
            profile=config.quotas.profile,
        )
        self.quotas.listeners.append(self.administration.content_arrived)
        self.authority = BrokerAuthority(self.counters.administration)
        self.gateway.client_quota_api = ClientQuotaApi(self.administration, self.authority)
        self._route = routes.main
        self._canary_task: asyncio.Task[None] | None = None
        self.state = LiveState(config, self.gateway, self.client_listeners, self.scopes, self.probers, self.quotas)
        self._tokens = Tokens(config.admin.tokens)
        self._admin: AdminHttp | None = None
        self._lag = LoopLag()
        self.metering: Metering | None = None
        self._garbage = GarbageWatch(self.counters, _log_garbage)
        self._watchdog = Watchdog(self._lag, clock_ns=now_ns, on_stall=_log_stall)
        self._tasks: list[asyncio.Task[Any]] = []

    async def start(self) -> None:
        """Read the quotas, bind every port, then begin.

        Raises:
            ConfigProblems: the quotas are not right.
            StartError: an address cannot be bound.
        """
        if self.config.admin.address is not None:  # first: a store may have to be waited for, and /readyz says so
            self._admin = self._admin_http(self.config.admin.address)
            await self._admin.start()
        await self._use_store(self.config)
        _warn_of_administration(self.config)
        await self.connection_limits.settled()
        if self.config.metering.is_on:
            from proxy.metering.metering import Metering  # only here: who does not meter loads no Arrow

            self.metering = Metering(self.config, self.scopes, self.admission, self.counters.metering, self.policy)
            self._session_settings.meter = self.metering.meter
            self.metering.start(self.config)
        self.client_listeners.open()
        self.gateway.start()
        self._watchdog.start(asyncio.get_running_loop())
        self._garbage.start()
        probing = (prober.run() for prober in self.probers.values())
        forever = (*probing, self._expire_forever(), self._garbage.watch(), self.tls.refresh_forever())
        self._tasks = [asyncio.create_task(work) for work in forever]
        self._watch_canary(self.config)
        for listener in self.client_listeners.listeners:
            log.info("listening", listener=listener.settings.name, host=listener.settings.address.host, port=listener.bootstrap_port)

    async def reload(self) -> bool:
        """Read file and flags again; what can change does so without a disconnect, the rest is named. False: kept all."""
        try:
            config = fit_open_files(self._source.load())
            choice = callback_choice(config, self._source.place)
            if other_store(self.config, config) or can_change(self.config) != can_change(config):
                await self._use_store(config)
        except ConfigProblems as problems:
            self.counters.config_reloads_rejected += 1
            for line in problems.lines():
                log.error("config_rejected", problem=line)
            return False
        await self.tls.refresh()
        quotas_are_right = await self.quotas.reload()
        for key in needs_restart(self.config, config):
            log.warning("restart_needed", key=key)
        if self.metering is not None:
            self.metering.settings_changed(config)
        self._rebuild_scopes(config, choice)
        self._apply_live(config)
        self.gateway.settings_changed()
        self.admission.enforcement_changed()
        self._tokens.read(config.admin.tokens)
        self.administration.authorizer.rules = Rules.of(config.quota_admin)
        if (config.quota_admin.authority, config.canary) != (self.config.quota_admin.authority, self.config.canary):
            self._watch_canary(config)
        self.config = self.state.config = config
        if quotas_are_right:
            self.counters.config_reloads_succeeded += 1
            log.info("config_reloaded", mode=config.acting_mode, scope=config.enforcement.scope)
        else:
            self.counters.config_reloads_rejected += 1
        return quotas_are_right

    async def drain(self) -> None:
        """Stop accepting, answer what is in flight, release what waits."""
        self.state.draining = True
        log.info("draining", connections=len(self.gateway.connections))
        self.client_listeners.close(CloseReason.DRAIN)
        in_time = await self.gateway.drain()
        log.info("drained", in_time=in_time)

    async def stop(self) -> None:
        """End everything now."""
        for task in [*self._tasks, *filter(None, [self._canary_task])]:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self.client_listeners.close(CloseReason.SHUTDOWN)
        await self.gateway.close()
        await self.administration.close()
        await self.quotas.close()
        self.audit.close()
        await self.connection_limits.close()
        if self.metering is not None:
            await self.metering.stop()
        self.scopes.close()
        if self._admin is not None:
            await self._admin.stop()
        self._watchdog.stop()
        self._garbage.stop()

    def log_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Count and log an uncaught exception: the loop's exception handler. What ended a connection is counted there."""
        if not context.get("counted"):
            self.counters.internal_errors += 1
        log.error("internal_error", limit_key="internal_error", message=str(context.get("message")), exception=context.get("exception"))

    @property
    def requests(self) -> int:
        """Requests forwarded so far."""
        return self.counters.requests + sum(connection.session.requests.frames for connection in self.gateway.connections)

    # --- parts

    def _admin_http(self, address: HostPort) -> AdminHttp:
        from proxy.observe.admin_changes import ChangesPages  # only here: who has no admin port loads no HTTP server
        from proxy.observe.admin_http import AdminHttp

        return AdminHttp(
            self.state,
            address,
            lag=self._lag,
            open_quotas=self.config.admin.open_quotas,
            open_names=self.config.admin.metrics_names == "all",
            tokens=self._tokens,
            changes=lambda access: ChangesPages(self.state, self.administration, self.audit, access),
            tls=self.tls.admin,
        )

    def _apply_live(self, config: Config) -> None:
        """Settings that take effect on the next request."""
        self.enforcement.mode = Mode(config.acting_mode)
        self._session_settings.shadows = config.quotas.store == "forward"
        self.enforcement.delay_max_ms = config.enforcement.delay_max_ms
        self._session_settings.policy.configured(config.quotas.exempt, self._groups)
        self._session_settings.empty_client_id_is_default = config.empty_client_id == "default-entity"
        self._session_settings.answers_quotas = config.quotas.store != "forward"
        self._session_settings.unknown_apis_pass = config.unknown_apis == "pass"
        self._session_settings.frame_bytes_max = config.limits.request_frame_bytes_max
        limits = config.limits
        self._deadlines.tls_handshake_ms = limits.tls_handshake_ms
        self._deadlines.first_frame_ms = limits.first_frame_ms
        self._deadlines.login_ms = limits.login_ms
        self._deadlines.frame_grace_ms = limits.frame_grace_ms
        self._deadlines.frame_bytes_per_second_min = limits.frame_bytes_per_second_min
        self._deadlines.undrained_ms = limits.undrained_ms
        self._deadlines.idle_ms = limits.idle_ms
        self._deadlines.departed_ms = limits.departed_ms
        self._budget.bytes_max = limits.process_buffer_bytes_max
        self.admission.count_over_all(per_cluster=config.enforcement.scope == "cluster")
        self.connection_limits.apply(config.connections, config.listeners)
        self.admission.failed_logins.max_per_minute = config.connections.max_failed_logins_per_ip
        self._session_settings.principals.max_connections = config.connections.max_connections_per_principal
        self._session_settings.principals.overrides = config.connections.principal_overrides

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
            self.scopes.declare(self._groups)
        self._switch_quotas(config)

    def _watch_canary(self, config: Config) -> None:
        """Have the brokers' authority proven where it counts."""
        if self._canary_task is not None:
            self._canary_task.cancel()
            self._canary_task = None
        self.authority.is_trusted = True
        self.state.canary = None
        if config.quota_admin.authority != "broker":
            return
        canary, route = config.canary, self._route
        if canary is None:
            log.warning(
                "quota_authority_untested",
                remedy="set [canary], an account without rights: a broker without an authorizer allows everybody everything",
            )
            return
        tls = self.tls.brokers.get(route.upstream)
        watch = AuthorizerProbe(
            self.authority,
            lambda frame: ask_as(canary, frame, route.bootstrap.current(), tls, config.limits.upstream_connect_ms),
        )
        self.state.canary = watch
        self._canary_task = asyncio.create_task(watch.run())

    def _switch_quotas(self, config: Config) -> None:
        quotas = config.quotas
        self.scopes.switch(produce=quotas.produce, fetch=quotas.fetch, request=quotas.request, mutation=quotas.controller_mutation)

    async def _use_store(self, config: Config) -> None:
        """Follow the store of quotas of the configuration from now on."""
        if config.quotas.store != "forward":
            await self.quotas.use(lambda on_content: make_store(config, on_content, altering=can_change(config)))
            return
        upstream = self._route.upstream
        brokers = BrokersQuotas(
            self._route.bootstrap, self.tls.brokers.get(upstream), upstream.credentials, config.limits.upstream_connect_ms
        )
        await self.quotas.use(lambda on_content: ForwardStore(brokers, on_content, now_ms=now_ms, wall_time_s=wall_time_s))

    def _apply_table(self, table: QuotaTable) -> None:
        self.scopes.apply_table(table)
        if self.metering is not None:
            self.metering.quotas_changed(self.administration.altering if self.quotas.origin == "own" else None)

    def apply_switches(self, table: Mapping[str, str]) -> None:
        """Put the switches of the quota store in force from the next request on; no connection ends."""
        if table is self._switch_table:  # contents share what stayed the same
            return
        self._switch_table = table
        switches = Switches(table)
        for problem in switches.problems:
            log.warning("switch_ignored", limit_key="switch_ignored", problem=problem)
        if not self.policy.switch(switches):
            return
        self.scopes.renew()
        if self.metering is not None:
            self.metering.settings_changed(self.config)
        self.gateway.enforcement_changed()
        self.admission.enforcement_changed()
        log.info("switches_changed", switches=len(switches.table), all=None if switches.of_all is None else switches.of_all.value)

    def _prober(self, route: Route, config: Config) -> Prober:
        """Who asks the brokers by one route; the cluster is known from `[upstream]`."""
        is_main = route is self.gateway.routes.main
        return Prober(
            route.bootstrap,
            functools.partial(self._learn_topology, route),
            lambda: is_main and self.scopes.wants_cluster,
            functools.partial(_log_upstream, route.name),
            config.limits.upstream_connect_ms,
            self.tls.brokers.get(route.upstream),
            OwnLogin(route.upstream.credentials, functools.partial(_log_own_login, route.name)),
        )

    def _learn_topology(self, route: Route, topology: Topology) -> None:
        """What the prober heard: where brokers are, so that their ports are bound early, and the cluster."""
        if not self.gateway.settings.sidecar:
            for broker in topology.brokers:
                route.book.learn(broker.node_id, broker.host, broker.port)
        if route is self.gateway.routes.main:
            self._learn_cluster(topology)

    def _learn_cluster(self, topology: Topology) -> None:
        if self.scopes.wants_cluster:
            partitions = tuple(PartitionInfo(part.topic, part.partition, part.leader) for part in topology.partitions)
            nodes = tuple(broker.node_id for broker in topology.brokers)
            self.scopes.update_cluster(Cluster(topology.cluster_id, nodes, partitions))

    async def _expire_forever(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_S)
            self.scopes.expire(now_ms())
            self.admission.quotas.ips.expire(now_ms())
            self.admission.failed_logins.expire(now_ms())


def _warn_of_administration(config: Config) -> None:
    """Say what somebody who lets others change quotas may not expect."""
    if not can_change(config):
        return
    for line in advice_on_administration(config):
        log.warning("quota_admin_exposed", problem=line)
    if config.audit.file is None:
        log.warning("audit_in_memory", remedy="name a file in audit.file: what is changed is forgotten when the process ends")
    if config.quotas.store == "file" and config.quotas.path is None:
        log.warning("quotas_in_memory", remedy="name a file in quotas.path: quotas that are set are gone when the process ends")


def _log_upstream(name: str, error: str | None) -> None:
    if error is None:
        log.info("upstream_answers", upstream=name)
    else:
        log.warning("upstream_silent", limit_key=name, upstream=name, problem=error)


def _log_own_login(name: str, problem: str | None) -> None:
    if problem is None:
        log.info("own_login_works", upstream=name)
    else:
        log.error("own_login_failed", upstream=name, problem=problem)


def _log_stall(stack: str) -> None:
    log.warning("loop_stalled", limit_key="loop_stalled", stack=log.Stack(stack))


def _log_garbage(generation: int, took_ms: float) -> None:
    log.warning("gc_pause", limit_key="gc_pause", generation=generation, took_ms=round(took_ms, 1))
