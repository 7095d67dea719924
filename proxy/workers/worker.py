"""A worker: the data path of one process, which receives its state and its connections from the supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from protocol.messages import metadata
from protocol.messages.metadata import Partition, Topology
from proxy.app.config_parts import callback_choice, limit_principals, quota_windows
from proxy.app.data_path import DataPath
from proxy.app.data_path_state import DataPathState
from proxy.app.process_watch import ProcessWatch
from proxy.base.clock import now_ms
from proxy.config.load import ConfigSource, GivenConfig
from proxy.config.model import Config
from proxy.config.problem import ConfigProblems
from proxy.enforcement.mode import Enforcement
from proxy.enforcement.policy import Policy
from proxy.enforcement.quota_scopes import CallbackChoice
from proxy.handler_time import shared_by
from proxy.net.accept.bound_listener import BoundListener
from proxy.net.accept.client_listeners import AdmittedConnection, Port
from proxy.net.accept.first_bytes import Arrival
from proxy.net.relay.announced_quotas import AnnouncedQuotas
from proxy.net.upstream.routes import Route, Routes
from proxy.observe.live.limits import LIVE_PAGE_BYTES_MAX
from proxy.observe.workers.answers import WorkerAnswers
from proxy.quota_admin.authorizer import Authorizer, Rules
from proxy.quota_admin.broker_authority import BrokerAuthority
from proxy.quota_admin.client_quota_api import ClientQuotaApi
from proxy.quota_store.in_force import NOTHING, InForce, in_force
from proxy.quota_store.store import StoreContent
from proxy.shared_usage.segment import QUOTAS_AT
from proxy.shared_usage.shared_usage import SharedUsage
from proxy.telemetry import log
from proxy.telemetry.counters import Counters
from proxy.telemetry.watchdog import PERIOD_SECONDS
from proxy.tls.contexts import TlsContexts
from proxy.workers.asked_bucket import asked_buckets
from proxy.workers.asked_principals import RemotePrincipals
from proxy.workers.handover.orphan import Orphan
from proxy.workers.handover.parts import KnownBrokers
from proxy.workers.handover.place import SOCKET_NAME, runtime_dir_of
from proxy.workers.handover.served_connections import ServedConnections
from proxy.workers.messaging import messages
from proxy.workers.messaging.link import Link
from proxy.workers.messaging.messages import AnyMessage
from proxy.workers.messaging.passing import PassedConnection, PassedConnections, PassedHandoverSocket, PassedPort
from proxy.workers.messaging.questions import BindBroker, Questions
from proxy.workers.remote_administration import RemoteAdministration
from quota.connections.connection_quotas import ConnectionQuotas

UNKNOWN_CONTROLLER: Final = -1
_PORTS: Final[msgspec.msgpack.Decoder[dict[str, int]]] = msgspec.msgpack.Decoder(dict[str, int])
QUOTAS_LATE_MS: Final = 1_000
"""Time limit for quotas that were sent to all workers; meanwhile a worker reads nothing else."""
HEARTBEAT_MS: Final = round(PERIOD_SECONDS * 1_000)


class NoAdmission:
    """Admits every connection, since the supervisor has already admitted it."""

    only_observes = False

    def __init__(self, config: Config) -> None:
        windows = quota_windows(config)
        self.quotas = ConnectionQuotas(
            (listener.name for listener in config.listeners), num_samples=windows.num_samples, window_ms=windows.window_ms
        )


class Worker:
    """Serves connections until the supervisor ends it, or until the supervisor is gone and the last connection has ended."""

    def __init__(self, config: Config, source: ConfigSource, questions: Questions, usage: SharedUsage) -> None:
        loop = asyncio.get_running_loop()
        self._source = source
        self._usage = usage
        usage.on_unpublished, usage.on_row_refused = self._publish_within, self._row_refused
        self.config = config
        self._questions = questions
        self._link: Link | None = None
        self.counters = Counters()
        policy = Policy(Enforcement())
        self._quotas = AnnouncedQuotas(usage.segment.words[QUOTAS_AT : QUOTAS_AT + 1], self._catch_up)
        self._tls = TlsContexts(loop, config, self.counters)
        self._routes = Routes(loop, config, self._tls)
        listeners = [BoundListener(one, self._tls.clients.get(one.name), self._routes.of(one.name)) for one in config.listeners]
        self._listeners = {listener.settings.name: listener for listener in listeners}
        for route in self._routes:
            route.binds(self._bind)
            route.book.on_move = functools.partial(self._send_broker, route)
        self.data_path = DataPath(
            config,
            source,
            self.counters,
            policy,
            self._routes,
            listeners,
            slots=self,
            on_login_failed=self._login_failed,
            factories=usage,
            make_handler_time=shared_by(usage),
            make_mutation_group=asked_buckets(questions, usage),
            announced_quotas=self._quotas,
        )
        self.data_path.on_node_learned = self._send_reached
        sessions = self.data_path.session_settings
        sessions.principals = RemotePrincipals(questions, self._send)
        sessions.first_number, sessions.number_step = usage.worker + 1, usage.segment.workers
        self._served = ServedConnections(sessions.principals)
        self._orphan = Orphan(usage.worker, usage.segment.descriptor, self._known_brokers)
        self._is_orphan = False
        limit_principals(sessions.principals, config)
        self._in_force: InForce = NOTHING
        self._authority = BrokerAuthority(self.counters.administration)
        self._authorizer = Authorizer(Rules.of(config.quota_admin))
        self._prepared: tuple[int, Config, CallbackChoice] | None = None
        self._passed: PassedConnections | None = None
        self._may_accept = True
        self._draining = self._terminated = False
        self.ended = asyncio.Event()
        self._watch = ProcessWatch(self.counters, self._heartbeat)
        self._answers = WorkerAnswers(DataPathState(self.data_path.gateway, self.data_path.scopes), self._watch.lag)
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self, link: Link, passing: socket.socket) -> None:
        """Start to serve connections.

        Raises:
            StartError: the metering directory cannot be written.
        """
        self._link = link
        self.data_path.gateway.client_quota_api = ClientQuotaApi(RemoteAdministration(link, self._authorizer), self._authority)
        self.data_path.meter(NoAdmission(self.config))
        self.data_path.gateway.start()
        self._watch.start()
        forever = (self.data_path.expire_forever(), self._watch.watch(), self._tls.refresh_forever())
        self._tasks = [asyncio.create_task(work) for work in forever]
        self._passed = PassedConnections(passing, self._serve, self._lost, self._keep)
        self._beat()
        link.send(messages.Ready())

    async def stop(self) -> None:
        """End all connections and tasks now."""
        if self._passed is not None:
            self._passed.close()
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self.data_path.gateway.close()
        await self.data_path.stop()
        self._orphan.close()
        self._usage.segment.clear_throttled(self._usage.worker)
        if self._is_orphan:  # otherwise the supervisor does it, which reuses the number
            self._usage.segment.exit(self._usage.worker, now_ms())
        self._watch.stop()

    def log_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Count and log an uncaught exception: the loop's exception handler."""
        self._watch.log_exception(loop, context)

    # --- connections

    def _serve(self, passed: PassedConnection, sock: socket.socket) -> None:
        self._served.passed(passed.listener, passed.ip_key)
        listener = self._listeners.get(passed.listener)
        if listener is None:
            sock.close()
            self.left(passed.listener, passed.ip_key)
            return
        arrival = Arrival(sock, passed.peer, passed.listener, passed.since_ms, passed.first)
        self.data_path.serve(AdmittedConnection(listener, passed.node_id, arrival, passed.ip_key))

    def _lost(self, passed: PassedConnection) -> None:
        """A connection was lost, because this process has reached its limit of open files."""
        self.counters.accepts_exhausted += 1
        log.warning("open_files_exhausted", limit_key="open_files_exhausted", connections=len(self.data_path.gateway.connections))
        self._send(messages.ConnectionEnded(passed.listener, passed.ip_key))

    def _keep(self, what: PassedPort | PassedHandoverSocket, sock: socket.socket) -> None:
        """Keep a duplicate of a listening socket for the next supervisor."""
        if isinstance(what, PassedPort):
            self._orphan.keep_port(Port(what.listener, what.address, sock))
        else:
            self._orphan.keep_handover_socket(sock)

    def left(self, listener_name: str, ip_key: tuple[int, str]) -> None:
        """Report to the supervisor that a connection has ended."""
        self._served.ended(listener_name, ip_key)
        self._send(messages.ConnectionEnded(listener_name, ip_key))

    def _login_failed(self, peer: tuple[str, int]) -> None:
        self._send(messages.LoginFailed(*peer))

    def _send(self, message: AnyMessage) -> None:
        if self._link is not None:
            self._link.send(message)

    def _publish_within(self, within_ms: int) -> None:
        """Schedule the publication of usage of groups, unless the next heartbeat comes early enough."""
        if within_ms < HEARTBEAT_MS:
            asyncio.get_running_loop().call_later(within_ms / 1_000, self._publish, within_ms)

    def _row_refused(self) -> None:
        self.counters.shared_rows_refused += 1

    def _publish(self, within_ms: int) -> None:
        self._usage.publish_noted(within_ms, now_ms())

    def _heartbeat(self) -> None:
        """Show the supervisor that this process runs, publish usage, and report whether there is memory for more connections."""
        self._beat()
        self._usage.publish_from(HEARTBEAT_MS, now_ms())
        may_accept = self.data_path.may_accept()
        if may_accept != self._may_accept:
            self._may_accept = may_accept
            self._send(messages.Accepting(may_accept))

    def _beat(self) -> None:
        self._usage.segment.store_heartbeat(self._usage.worker, now_ms())

    # --- ports and brokers

    def _bind(self, route: Route, node_id: int) -> bool:
        """Let the supervisor bind the ports of a broker before a response with its address is sent."""
        host, port = route.book.upstream[node_id]
        ports = self._questions.ask(BindBroker(route.number, node_id, host, port), _PORTS)
        if ports is None:
            return False
        own = [listener for listener in self._listeners.values() if listener.route is route]
        for listener in own:
            if listener.settings.name in ports:
                listener.ports[node_id] = ports[listener.settings.name]
        return all(node_id in listener.ports or listener.names is not None for listener in own)

    def _known_brokers(self) -> KnownBrokers:
        return KnownBrokers(self._routes.addresses, list(self.data_path.scopes.reached))

    def _send_broker(self, route: Route, node_id: int, address: tuple[str, int]) -> None:
        self._send(messages.BrokerAddress(route.number, node_id, *address))

    def _send_reached(self, node_id: int, address: tuple[str, int], route: int) -> None:
        self._send(messages.BrokerReached(route, node_id, *address))

    # --- messages of the supervisor

    def received(self, message: AnyMessage) -> None:
        """Handle a message."""
        handle: Callable[[Any], None] | None = self._handlers().get(type(message))
        if handle is not None:
            handle(message)

    def _handlers(self) -> dict[type, Callable[[Any], None]]:
        return {
            messages.Quotas: self._quotas_changed,
            messages.Ports: self._ports_bound,
            messages.BrokerAddress: self._broker_met,
            messages.BrokerReached: self._broker_reached,
            messages.Cluster: self._cluster_changed,
            messages.Authority: self._authority_changed,
            messages.MakeRoom: lambda message: self.data_path.make_room(message.protected_listener),
            messages.PrepareReload: self._prepare,
            messages.CommitReload: self._commit,
            messages.Drain: lambda _message: self.drain(),
            messages.Stop: lambda _message: self.ended.set(),
        }

    def _catch_up(self, generation: int) -> None:
        """Read the supervisor's messages up to the quotas of this generation.

        The worker continues with the old quotas if they do not arrive within a second, or if the supervisor has ended. It also does so
        while it drains: after an upgrade the generation is that of another supervisor, which sends this worker no messages.
        """
        if self._draining:
            self._quotas.in_force = generation
            return
        end_ms = now_ms() + QUOTAS_LATE_MS
        while self._quotas.in_force < generation:
            if self._link is None or not self._link.read_ahead(max(0, end_ms - now_ms()) / 1_000):
                if self._quotas.in_force < generation:
                    self._quotas.in_force = generation
                    log.warning("quotas_late", limit_key="quotas_late", generation=generation)
                return

    def _quotas_changed(self, message: messages.Quotas) -> None:
        self._quotas.in_force = max(self._quotas.in_force, message.generation)
        kept = {} if message.whole else dict(self._in_force.content.quotas)
        for entity, values in message.entities:
            if values:
                kept[entity] = MappingProxyType(values)
            else:
                kept.pop(entity, None)
        before = self._in_force
        switches = _unless_equal(message.switches, before.content.switches)
        pacing = _unless_equal(message.pacing, before.content.pacing)
        self._in_force = now = in_force(StoreContent(MappingProxyType(kept), switches, pacing), before)
        if now.table is not before.table:
            self.data_path.apply_table(now.table, message.who)
        if self._in_force is now:  # else a connection that was checked again has read newer quotas, which are in force
            self.data_path.apply_switches(switches)
        if self._in_force is now:
            self.data_path.apply_pacing(pacing)
        if self._in_force is now:
            self._send(messages.InForce(message.generation))

    def _ports_bound(self, message: messages.Ports) -> None:
        listener = self._listeners.get(message.listener)
        if listener is not None:
            listener.bootstrap_port = message.bootstrap_port
            listener.ports.update(message.brokers)

    def _broker_met(self, message: messages.BrokerAddress) -> None:
        route = next((route for route in self._routes if route.number == message.route), None)
        if route is not None:
            route.book.upstream[message.node_id] = (message.host, message.port)

    def _broker_reached(self, message: messages.BrokerReached) -> None:
        self.data_path.scopes.learn(message.node_id, (message.host, message.port), message.route)

    def _cluster_changed(self, message: messages.Cluster) -> None:
        brokers = tuple(metadata.Broker(*broker, None) for broker in message.brokers)
        partitions = tuple(Partition(*part) for part in message.partitions)
        self.data_path.learn_cluster(Topology(message.cluster_id, UNKNOWN_CONTROLLER, brokers, partitions))

    def _authority_changed(self, message: messages.Authority) -> None:
        self._authority.is_trusted = message.is_trusted

    async def answer(self, request: messages.Request) -> bytes:
        """Return this worker's part of a page of the admin port."""
        assert isinstance(request.what, messages.PageRequest)
        return await self._answers.answer(request.what.query)

    # --- reload

    def _prepare(self, message: messages.PrepareReload) -> None:
        """Check the supervisor's new configuration, and report whether it can be applied here."""
        self._prepared = None
        source = GivenConfig(self._source.path, self._source.flags, message.config_text)
        lines: list[str] = []
        try:
            config = config_of_worker(source.load(), self._usage.worker, len(self._usage.numbers))
            choice = callback_choice(config, source.place)
        except ConfigProblems as problems:
            lines = source.located(problems.problems).lines()
        else:
            self._prepared = (message.number, config, choice)
        self._send(messages.Prepared(message.number, lines))

    def _commit(self, message: messages.CommitReload) -> None:
        prepared, self._prepared = self._prepared, None
        if not message.is_agreed or prepared is None or prepared[0] != message.number:
            return
        _, config, choice = prepared
        self.data_path.reload(config, choice)
        self._authorizer.rules = Rules.of(config.quota_admin)
        self.config = config
        self._tasks.append(asyncio.ensure_future(self._tls.refresh()))

    # --- shutdown

    def terminate(self) -> None:
        """Drain at the first signal, end at the second. A service manager may send the first to all processes of a service."""
        if self._terminated:
            self.ended.set()
        self._terminated = True
        self.drain()

    def drain(self) -> None:
        """Forward responses in flight, then end."""
        if not self._draining:
            self._draining = True
            self._tasks.append(asyncio.ensure_future(self._drain()))

    async def _drain(self) -> None:
        if self._passed is not None:
            self._passed.close()
        self._orphan.close()
        await self.data_path.drain()
        self.ended.set()

    def supervisor_lost(self) -> None:
        """Serve the open connections to their end, since the supervisor has ended."""
        log.error("supervisor_lost", connections=len(self.data_path.gateway.connections))
        self._link = None
        self._is_orphan = True
        self._tasks.append(asyncio.ensure_future(self._serve_the_rest()))

    async def _serve_the_rest(self) -> None:
        if not self._draining:
            await self._orphan.offer_until_taken()
        runtime_dir = runtime_dir_of(self.config)
        if runtime_dir is not None:
            self._tasks.append(asyncio.ensure_future(self._served.report_forever(runtime_dir / SOCKET_NAME)))
        await self.data_path.gateway.until_none()
        self.ended.set()


def config_of_worker(config: Config, number: int, workers: int) -> Config:
    """Return the configuration of one worker: its metering run has its own name, and its byte budget is an equal share of the whole.

    The supervisor keeps a part of the whole for the live page.
    """
    name = f"{config.metering.proxy_id or socket.gethostname()}-{number}"
    whole = config.limits.process_buffer_bytes_max
    shared = whole if config.admin.address is None else max(whole // 2, whole - LIVE_PAGE_BYTES_MAX)
    limits = msgspec.structs.replace(config.limits, process_buffer_bytes_max=shared // workers)
    return msgspec.structs.replace(config, metering=msgspec.structs.replace(config.metering, proxy_id=name), limits=limits)


def _unless_equal(new: Mapping[str, str], old: Mapping[str, str]) -> Mapping[str, str]:
    """Return `old` if both are equal, so that an unchanged table keeps its object."""
    return old if new == old else MappingProxyType(new)
