"""The control plane: admission of connections, quotas, and the admin port. A Sluice has one, with and without workers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from protocol.messages.metadata import Topology
from proxy.app.config_parts import pacing_rules, quota_windows
from proxy.base.clock import now_ms, wall_time_s
from proxy.base.close_reason import CloseReason
from proxy.base.host_port import HostPort
from proxy.config.checks.admin import advice_on_administration, can_change
from proxy.config.checks.groups import advice_on_groups
from proxy.config.model import Config
from proxy.enforcement.policy import Policy
from proxy.enforcement.quota_scopes import QuotaTable
from proxy.net.accept.admission import Admission
from proxy.net.accept.bound_listener import BoundListener
from proxy.net.accept.client_listeners import AdmittedConnection, ClientListeners
from proxy.net.accept.connection_limits import ConnectionLimits
from proxy.net.upstream.brokers_quotas import BrokersQuotas
from proxy.net.upstream.login import ask_as
from proxy.net.upstream.own_login import OwnLogin
from proxy.net.upstream.prober import Prober
from proxy.net.upstream.routes import Route, Routes
from proxy.observe.state import ProxyState
from proxy.observe.tokens import Tokens
from proxy.quota_admin.audit.log import AuditLog
from proxy.quota_admin.authorizer import Authorizer, Rules
from proxy.quota_admin.authorizer_probe import AuthorizerProbe
from proxy.quota_admin.broker_authority import BrokerAuthority
from proxy.quota_admin.service import Administration
from proxy.quota_store.choice import make_store, other_store
from proxy.quota_store.followed import FollowedQuotas
from proxy.quota_store.forward import ForwardStore
from proxy.telemetry import log
from proxy.telemetry.counters import Counters
from proxy.telemetry.loop_lag import LoopLag
from proxy.tls.contexts import TlsContexts
from quota.connections.connection_quotas import ConnectionQuotas

if TYPE_CHECKING:
    from proxy.observe.admin_http import AdminHttp
    from proxy.observe.workers.many_workers import ManyWorkers

EXPIRE_S = 30.0


class Relays(Protocol):
    """The data path that serves admitted connections: that of this process, or workers."""

    @property
    def wants_cluster(self) -> bool:
        """Whether a quota callback needs the cluster's topics, partitions and leaders."""

    def serve(self, admitted: AdmittedConnection) -> None:
        """Serve an admitted connection."""

    def may_accept(self) -> bool:
        """Whether there is memory for one more connection."""

    def make_room(self, protected_listener: str) -> None:
        """Close a connection of a listener other than `protected_listener`."""

    def apply_table(self, table: QuotaTable, who: str | None) -> None:
        """Apply a table of quotas; `who` is the principal that requested the change, None: it came from another source."""

    def apply_switches(self, table: Mapping[str, str]) -> bool:
        """Apply switches; False: they have not changed."""

    def apply_pacing(self, table: Mapping[str, str]) -> None:
        """Apply how quotas are enforced, by target."""

    def learn_cluster(self, topology: Topology) -> None:
        """Pass the cluster's topics and partitions to callbacks."""


class ControlPlane:
    """Listeners and their admission, the quota store and its administration, probes of brokers, and the admin port.

    Args:
        listeners: the configured listeners.
        relays: serves admitted connections.

    Attributes:
        admin_sockets: listening sockets of the admin port that `open` uses instead of binding its address.
    """

    def __init__(
        self,
        config: Config,
        counters: Counters,
        policy: Policy,
        tls: TlsContexts,
        routes: Routes,
        listeners: Sequence[BoundListener],
        admission: Admission,
        relays: Relays,
    ) -> None:
        self.config = config
        self.counters = counters
        self.policy = policy
        self.tls = tls
        self.relays = relays
        self.admission = admission
        self.connection_limits = ConnectionLimits(admission.quotas, admission.slot_freed)
        self._header_ms, self._hello_ms = config.limits.first_frame_ms, config.limits.tls_handshake_ms
        admission.make_room = relays.make_room
        self.client_listeners = ClientListeners(
            listeners,
            counters,
            admission,
            header_ms=lambda: self._header_ms,
            hello_ms=lambda: self._hello_ms,
            may_accept=relays.may_accept,
            serve=relays.serve,
        )
        self._apply(config)
        self._routes = routes
        self.probers = {route.name: self._prober(route, config) for route in routes}
        self.quotas = FollowedQuotas(self._apply_table, self.connection_limits.apply_rates)
        self.quotas.listeners.append(lambda content, _origin: self.apply_switches(content.switches))
        self.quotas.listeners.append(lambda content, _origin: self.relays.apply_pacing(content.pacing))
        self.audit = AuditLog(config.audit.file, wall_time_s=wall_time_s)
        self.administration = Administration(
            self.quotas,
            Authorizer(Rules.of(config.quota_admin)),
            self.audit,
            counters.administration,
            now_ms=now_ms,
            profile=config.quotas.profile,
            listeners=[listener.name for listener in config.listeners],
        )
        self.administration.pacing_rules = pacing_rules(config)
        self.quotas.listeners.append(self.administration.content_arrived)
        self.authority = BrokerAuthority(counters.administration)
        self.canary: AuthorizerProbe | None = None  # None: the brokers' authorizer is not tested
        self._canary_task: asyncio.Task[None] | None = None
        self.tokens = Tokens(config.admin.tokens)
        self._admin: AdminHttp | None = None
        self.admin_sockets: list[socket.socket] = []

    async def open(self, shown: ProxyState | ManyWorkers, lag: LoopLag) -> None:
        """Open the audit log and the admin port, which only one process can hold.

        Raises:
            ConfigProblems: the audit log cannot be used.
            StartError: the admin port cannot be bound.
        """
        self.audit.open()
        if self.config.admin.address is not None:
            self._admin = self._admin_http(self.config.admin.address, shown, lag)
            sockets, self.admin_sockets = self.admin_sockets, []
            await self._admin.start(sockets)

    async def release(self) -> None:
        """Complete the changes in progress, then close the audit log and the admin port, so that another process can open them.

        Duplicates of the admin port's sockets stay in `admin_sockets`, so that its clients wait instead of being refused.
        """
        await self.administration.close()
        await self.audit.release()
        if self._admin is not None:
            self.admin_sockets = self._admin.duplicates()
        await self.close_admin()

    def drop_admin_sockets(self) -> None:
        """Close the sockets in `admin_sockets`."""
        while self.admin_sockets:
            self.admin_sockets.pop().close()

    async def follow_quotas(self) -> None:
        """Read the quotas, and follow the store from now on. The read may wait for the store; /readyz reports this meanwhile.

        Raises:
            ConfigProblems: the quotas are invalid.
        """
        await self.use_store(self.config)
        _warn_of_administration(self.config)
        await self.warn_of_groups()
        await self.connection_limits.settled()

    def accept(self) -> None:
        """Bind every port; connections arrive from now on.

        Raises:
            StartError: an address cannot be bound.
        """
        self.client_listeners.open()
        self._watch_canary(self.config)
        for listener in self.client_listeners.listeners:
            log.info("listening", listener=listener.settings.name, host=listener.settings.address.host, port=listener.bootstrap_port)

    def forever(self) -> Sequence[Any]:
        """Return the coroutines that are to run until shutdown."""
        return [*(prober.run() for prober in self.probers.values()), self._expire_forever()]

    def reload(self, config: Config) -> None:
        """Apply another configuration; it takes effect at the next connection and at the next request for quotas."""
        self._apply(config)
        self.admission.enforcement_changed()
        self.tokens.read(config.admin.tokens)
        self.administration.authorizer.rules = Rules.of(config.quota_admin)
        self.administration.pacing_rules = pacing_rules(config)
        if (config.quota_admin.authority, config.canary) != (self.config.quota_admin.authority, self.config.canary):
            self._watch_canary(config)
        self.config = config

    async def warn_of_groups(self) -> None:
        """Log the groups without members; in a thread, since 1,000 groups are half a million pairs."""
        for line in await asyncio.to_thread(lambda: list(advice_on_groups(self.config.groups))):
            log.warning("group_without_members", problem=line)

    def reload_rejected(self, lines: Sequence[str]) -> bool:
        """Count and log a rejected reload, with a line for each problem; return False."""
        self.counters.config_reloads_rejected += 1
        for line in lines:
            log.error("config_rejected", problem=line)
        return False

    def reload_ended(self, *, quotas_are_right: bool) -> bool:
        """Count and log a reload; return whether the quotas are valid, too."""
        if quotas_are_right:
            self.counters.config_reloads_succeeded += 1
            log.info("config_reloaded", mode=self.config.acting_mode, scope=self.config.enforcement.scope)
        else:
            self.counters.config_reloads_rejected += 1
        return quotas_are_right

    def stop_accepting(self, reason: CloseReason) -> None:
        """Stop accepting; waiting connections are closed for `reason`."""
        self.client_listeners.close(reason)

    async def stop(self) -> None:
        """Close the store and end the tasks; the admin port stays open until `close_admin`."""
        if self._canary_task is not None:
            self._canary_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._canary_task
        await self.administration.close()
        await self.quotas.close()
        self.audit.close()
        await self.connection_limits.close()

    async def close_admin(self) -> None:
        """Close the admin port."""
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.stop()

    # --- quotas

    def apply_switches(self, table: Mapping[str, str]) -> None:
        """Apply the switches of the quota store from the next request on; no connection ends."""
        if self.relays.apply_switches(table):
            self.admission.enforcement_changed()

    def _apply_table(self, table: QuotaTable) -> None:
        self.relays.apply_table(table, self.administration.altering if self.quotas.origin == "own" else None)

    def needs_other_store(self, config: Config) -> bool:
        """Whether a configuration names another quota store, or other settings of it."""
        return other_store(self.config, config) or can_change(self.config) != can_change(config)

    async def use_store(self, config: Config) -> None:
        """Use the quota store of a configuration from now on.

        Raises:
            ConfigProblems: the store cannot be used; the previous one stays in use.
        """
        if config.quotas.store != "forward":
            await self.quotas.use(lambda on_content: make_store(config, on_content, altering=can_change(config)))
            return
        upstream = self._routes.main.upstream
        brokers = BrokersQuotas(
            self._routes.main.bootstrap, self.tls.brokers.get(upstream), upstream.credentials, config.limits.upstream_connect_ms
        )
        await self.quotas.use(lambda on_content: ForwardStore(brokers, on_content, now_ms=now_ms, wall_time_s=wall_time_s))

    # --- parts

    def _apply(self, config: Config) -> None:
        """Apply the settings that take effect on the next connection."""
        self._header_ms, self._hello_ms = config.limits.first_frame_ms, config.limits.tls_handshake_ms
        self.admission.count_over_all(per_cluster=config.enforcement.scope == "cluster")
        self.connection_limits.apply(config.connections, config.listeners)
        self.admission.failed_logins.max_per_minute = config.connections.max_failed_logins_per_ip

    def _admin_http(self, address: HostPort, shown: ProxyState | ManyWorkers, lag: LoopLag) -> AdminHttp:
        from proxy.observe.admin_changes import ChangesPages  # imported here: without an admin port no HTTP server is loaded
        from proxy.observe.admin_http import AdminHttp
        from proxy.observe.live.pages import StoredQuotas
        from proxy.observe.live.what_if import WhatIf

        return AdminHttp(
            shown,
            address,
            lag=lag,
            open_quotas=self.config.admin.open_quotas,
            open_names=self.config.admin.metrics_names == "all",
            tokens=self.tokens,
            changes=lambda access: ChangesPages(shown, self.administration, self.audit, access),
            stored=StoredQuotas(lambda: self.administration.quotas, self.audit, WhatIf(lambda: self.config.metering)),
            tls=self.tls.admin,
        )

    def _watch_canary(self, config: Config) -> None:
        """Test the brokers' authorizer periodically, if it decides on changes of quotas."""
        if self._canary_task is not None:
            self._canary_task.cancel()
            self._canary_task = None
        self.authority.is_trusted = True
        self.canary = None
        if config.quota_admin.authority != "broker":
            return
        canary, route = config.canary, self._routes.main
        if canary is None:
            log.warning(
                "quota_authority_untested",
                remedy="set [canary], an account without rights: a broker without an authorizer allows every client everything",
            )
            return
        tls = self.tls.brokers.get(route.upstream)
        self.canary = AuthorizerProbe(
            self.authority,
            lambda frame: ask_as(canary, frame, route.bootstrap.current(), tls, config.limits.upstream_connect_ms),
        )
        self._canary_task = asyncio.create_task(self.canary.run())

    def _prober(self, route: Route, config: Config) -> Prober:
        """Return the prober of one route; the cluster is learned from `[upstream]`."""
        is_main = route is self._routes.main
        return Prober(
            route.bootstrap,
            functools.partial(self._learn_topology, route),
            lambda: is_main and self.relays.wants_cluster,
            functools.partial(_log_upstream, route.name),
            config.limits.upstream_connect_ms,
            self.tls.brokers.get(route.upstream),
            OwnLogin(route.upstream.credentials, functools.partial(_log_own_login, route.name)),
        )

    def _learn_topology(self, route: Route, topology: Topology) -> None:
        """Handle a result of the prober: bind the ports of brokers early, and store the cluster."""
        if not self.config.sidecar:
            for broker in topology.brokers:
                route.book.learn(broker.node_id, broker.host, broker.port)
        if route is self._routes.main:
            self.relays.learn_cluster(topology)

    async def _expire_forever(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_S)
            self.admission.quotas.ips.expire(now_ms())
            self.admission.failed_logins.expire(now_ms())


def admission_of(config: Config, counters: Counters, policy: Policy) -> Admission:
    """Return the admission for a configuration; `ControlPlane` sets its limits."""
    windows = quota_windows(config)
    names = (listener.name for listener in config.listeners)
    quotas = ConnectionQuotas(names, num_samples=windows.num_samples, window_ms=windows.window_ms)
    return Admission(quotas, counters, policy, per_cluster=config.enforcement.scope == "cluster")


def _warn_of_administration(config: Config) -> None:
    """Log warnings on a configuration that lets clients change quotas."""
    if not can_change(config):
        return
    for line in advice_on_administration(config):
        log.warning("quota_admin_exposed", problem=line)
    if config.audit.file is None:
        log.warning("audit_in_memory", remedy="name a file in audit.file: without it the audit log is lost when the process ends")
    if config.quotas.store == "file" and config.quotas.path is None:
        log.warning("quotas_in_memory", remedy="name a file in quotas.path: without it quotas that are set are lost when the process ends")


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
