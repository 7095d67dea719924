"""The supervisor: the control plane of a Sluice with workers as data paths."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from proxy.app.config_parts import apply_policy, callback_choice, limit_principals, quota_windows
from proxy.app.control_plane import EXPIRE_S, ControlPlane, admission_of
from proxy.app.control_plane_state import ControlPlaneState
from proxy.app.open_files import fit_open_files
from proxy.app.process_watch import ProcessWatch
from proxy.app.reload import needs_restart
from proxy.base.clock import now_ms
from proxy.base.close_reason import CloseReason
from proxy.base.errors import StartError
from proxy.config.load import ConfigSource
from proxy.config.model import Config
from proxy.config.problem import ConfigProblems
from proxy.config.sections.groups import declared_groups
from proxy.enforcement.mode import Enforcement
from proxy.enforcement.policy import Policy
from proxy.enforcement.quota_scopes import CallbackChoice, QuotaScopes
from proxy.fleet.comparison.limits_number import limits_number
from proxy.fleet.comparison.quotas_number import QuotasNumber
from proxy.fleet.keys import keys_of
from proxy.fleet.status import FleetStatus
from proxy.net.accept.bound_listener import BoundListener
from proxy.net.accept.client_listeners import Port
from proxy.net.upstream.routes import Route, Routes
from proxy.observe.fleet import FleetReport
from proxy.observe.workers.many_workers import ManyWorkers
from proxy.quota_store.store import Origin, StoreContent
from proxy.session.login.principal_connections import PrincipalConnections
from proxy.shared_usage.segment import HEARTBEAT_AGE_MAX_MS, Segment
from proxy.telemetry import log
from proxy.telemetry.counters import Counters
from proxy.tls.contexts import TlsContexts
from proxy.workers.asked_bucket import Buckets
from proxy.workers.fleet_mutations import FleetMutations
from proxy.workers.handover.connection_state import ConnectionState
from proxy.workers.handover.handover_listener import HandoverListener, Part
from proxy.workers.handover.messages import UpgradeEnded
from proxy.workers.handover.parts import ADMIN_PORT, KnownBrokers, parts_of
from proxy.workers.handover.place import Place
from proxy.workers.handover.predecessor import Inherited, Predecessor
from proxy.workers.handover.successor import Successor
from proxy.workers.hub.process import HubProcess
from proxy.workers.messaging.link import LinkLost
from proxy.workers.messaging.messages import (
    AlterQuotas,
    BrokerAddress,
    BrokerReached,
    Described,
    DescribeQuotas,
    FleetQuotas,
    Request,
    encoded,
)
from proxy.workers.messaging.passing import PassedHandoverSocket, PassedPort
from proxy.workers.messaging.questions import AnyQuestion, BindBroker, EnterPrincipal
from proxy.workers.pool import WorkerPool
from proxy.workers.processes.child import WorkerProcess
from proxy.workers.processes.fork_server import Spawn
from quota.connections.connection_rate import ConnectionRate
from quota.entity import KafkaPrincipal

if TYPE_CHECKING:
    from proxy.metering.metering import Metering
    from proxy.workers.shared_connections import SharedConnections

SETTLE_S: Final = 1.0
"""Time before a replaced supervisor begins to drain: a client that connected last can send a request and get the response."""


class Supervisor:
    """The control plane of a Sluice with several processes; the counterpart of `App`."""

    def __init__(
        self,
        config: Config,
        source: ConfigSource,
        segment: Segment,
        numbers: Sequence[int],
        *,
        place: Place | None,
        predecessor: Predecessor | None,
        terminate: Callable[[], None],
        spawn: Spawn,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._place = place
        self._predecessor = predecessor
        self._segment = segment
        self._first_number = numbers[0]
        self._source = source
        self.config = config
        self.counters = Counters()
        self.policy = Policy(Enforcement())
        self.tls = TlsContexts(loop, config, self.counters)
        self._routes = Routes(loop, config, self.tls)
        listeners = [BoundListener(one, None, self._routes.of(one.name)) for one in config.listeners]
        self.admission = admission_of(config, self.counters, self.policy)
        self._principals = PrincipalConnections()
        self._connections = ConnectionState(self.admission, self._principals)
        self._buckets = Buckets(None if config.fleet is None else FleetMutations(segment, keys_of(config.fleet).digests))
        self.pool = WorkerPool(
            source,
            numbers,
            self.counters,
            self.policy,
            on_left=self.admission.left,
            on_login_failed=self.admission.login_failed,
            on_broker_met=self._learn_broker,
            on_principal_left=self._principal_left,
            answers=self._answer_request,
            answer=self._answer_question,
            segment=self._segment.descriptor,
            on_death=lambda number: self._segment.exit(number, now_ms()),
            on_quotas=self._quotas_sent,
            is_responsive=lambda number: now_ms() - self._segment.heartbeat_ms(number) < HEARTBEAT_AGE_MAX_MS,
            spawn=spawn,
        )
        self._quotas_number = QuotasNumber()
        self._shared = self._shared_connections(config)
        self.hub = None if config.fleet is None else HubProcess(source, segment.descriptor, spawn, self._hub_reported, self._shared)
        if self._shared is not None and self.hub is not None:
            self._shared.publish = self.hub.publish_connections
        self.control = ControlPlane(config, self.counters, self.policy, self.tls, self._routes, listeners, self.admission, self.pool)
        self.control.client_listeners.on_bound = self._ports_bound
        for route in self._routes:
            route.book.on_move = self._broker_moved(route)
        self._apply(config)
        self.control.quotas.listeners.append(self._content_arrived)
        self.control.quotas.on_settled = self.pool.settled
        self.control.authority.on_trust = self.pool.announcements.trust
        self._watch = ProcessWatch(self.counters)
        self._tasks: list[asyncio.Task[Any]] = []
        self._reloading = asyncio.Lock()
        self._metering: Metering | None = None
        self._state = ControlPlaneState(config, self.control, None if self.hub is None else self._fleet_report)
        self._shown = ManyWorkers(self._state, self.pool.query_page)
        self._upgrades: set[asyncio.Task[Any]] = set()
        self._handover_listener: HandoverListener | None = None
        self._successor: Successor | None = None
        if place is not None:
            self._successor = Successor(
                place,
                segment.descriptor,
                numbers,
                suspend=self._suspend,
                resume=self._resume,
                on_replaced=lambda: self._replaced(terminate),
                report=self._connections.report,
            )

    def _shared_connections(self, config: Config) -> SharedConnections | None:
        """Return the connections that the members of the fleet share; None: they share none."""
        if config.fleet is None or not config.fleet.connections:
            return None
        from proxy.workers.shared_connections import SharedConnections  # imported here: nothing else of a supervisor needs numpy

        return SharedConnections(self.admission.quotas, self._principals, keys_of(config.fleet).digests, now_ms)

    @property
    def requests(self) -> int:
        """Number of requests that this process has forwarded: 0, since workers forward them."""
        return 0

    async def start(self) -> None:
        """Start the workers, read the quotas, and bind every port.

        Raises:
            ConfigProblems: the quotas are invalid, or a worker cannot start.
            StartError: an address cannot be bound, or the metering directory cannot be written.
        """
        try:
            await self._start()
        except (ConfigProblems, StartError) as error:
            if self._predecessor is not None:
                await self.control.release()
                self.control.drop_admin_sockets()
                await self._predecessor.failed(self._lines_of(error))
            raise
        self._watch.start()
        forever = [*self.control.forever(), self._watch.watch(), self.tls.refresh_forever(), self._expire_forever()]
        if self._predecessor is not None:
            forever.append(self._connections.follow(self._predecessor.changes()))
        if self._shared is not None:
            forever.append(self._shared.run_forever())
        self._tasks = [asyncio.create_task(work) for work in forever]

    def _lines_of(self, error: ConfigProblems | StartError) -> list[str]:
        """Return why a start failed, with file and line where a configuration is the reason."""
        return self._source.located(error.problems).lines() if isinstance(error, ConfigProblems) else [str(error)]

    async def _start(self) -> None:
        if self.hub is not None:
            self._report_quotas()
            await self.hub.start()
        await self.pool.start()
        predecessor = self._predecessor
        if predecessor is None:
            await self.control.open(self._shown, self._watch.lag)
        await self.control.follow_quotas()
        await self.pool.settled()
        if self.hub is not None:
            await self.hub.joined()  # before the rates are handed over: what the replaced hub has read is in them, and the rest comes here
        inherited = Inherited() if predecessor is None else await predecessor.inherit()
        listeners = self.control.client_listeners
        if predecessor is not None:
            self.control.admin_sockets = inherited.take_admin_sockets(str(self.config.admin.address))
            await self.control.open(self._shown, self._watch.lag)
        listeners.inherit(inherited.ports)
        continued = self._connections.restore(inherited)
        self._meter(continued)
        if self._shared is not None:
            self._shared.begin(continued)
        self._buckets.restore(inherited.buckets)
        for broker in inherited.reached:
            self.pool.announcements.broker_reached(BrokerReached(*broker))
        self.control.accept()
        for broker in inherited.brokers:
            self._learn_broker(BrokerAddress(*broker))
        listeners.drop_inherited()
        self._listen_for_successors()
        if predecessor is not None:
            await predecessor.taken()
            log.info("took_over", pid=os.getpid(), ports=len(inherited.ports))

    def _meter(self, continued: Sequence[ConnectionRate]) -> None:
        """If configured, meter the decisions on connections in a run of this process, since workers do not make them.

        Args:
            continued: rates whose samples begin before the run.
        """
        if not self.config.metering.is_on:
            return
        from proxy.metering.facts.connections import connections_setting  # imported here: without metering no Arrow is loaded
        from proxy.metering.facts.fleet_fact import fleet_setting
        from proxy.metering.metering import Metering

        no_clients = QuotaScopes(per_cluster=True, choice=CallbackChoice(), statics={}, windows=quota_windows(self.config))
        config = named_run(self.config, self._first_number)
        of_run = {} if config.fleet is None else fleet_setting(config, self._segment, keys_of(config.fleet).digests)
        if self._shared is not None:
            of_run |= connections_setting(self._segment.identity)
        self._metering = Metering(
            config, no_clients, self.admission, self.counters.metering, self.policy, continued=continued, of_run=of_run
        )
        self._metering.start(config)
        if self.hub is not None and self.hub.status is not None:
            self._hub_reported(self.hub.status)

    async def reload(self) -> bool:
        """Read file and flags again; all processes apply them, or none does. False: nothing changed."""
        async with self._reloading:  # workers prepare one configuration at a time
            return await self._reload()

    async def _reload(self) -> bool:
        try:
            config = fit_open_files(self._source.load())
            callback_choice(config, self._source.place)
            if self.control.needs_other_store(config):
                await self.control.use_store(config)
        except ConfigProblems as problems:
            return self.control.reload_rejected(self._source.located(problems.problems).lines())
        lines = await self.pool.reload(lambda: self._apply_config(config))
        if lines:
            return self.control.reload_rejected(lines)
        await self.tls.refresh()
        await self.control.warn_of_groups()
        return self.control.reload_ended(quotas_are_right=await self.control.quotas.reload())

    async def drain(self) -> None:
        """Stop accepting, and let every worker forward the responses in flight."""
        if self._successor is not None:
            self._successor.give_up()
            if self._successor.is_replaced:
                await asyncio.sleep(SETTLE_S)
        self._state.draining = True
        self.control.stop_accepting(CloseReason.DRAIN)
        log.info("draining", connections=sum(worker.connections for worker in self.pool.workers.values()))
        in_time = await self.pool.drain(self.config.limits.drain_ms)
        log.info("drained", in_time=in_time)

    async def stop(self) -> None:
        """End all workers and this process's tasks now."""
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for task in list(self._upgrades):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self.control.stop_accepting(CloseReason.SHUTDOWN)
        await self.pool.stop()
        if self._shared is not None:
            self._shared.publish_last()
        if self.hub is not None:
            await self.hub.stop()
        if self._handover_listener is not None:
            await self._handover_listener.stop()
        await self.control.stop()
        if self._metering is not None:
            await self._metering.stop()
        self._routes.close()
        await self.control.close_admin()
        self.control.drop_admin_sockets()
        self._watch.stop()
        if self._place is not None:
            if self._handover_listener is not None and self._successor is not None and not self._successor.is_replaced:
                self._place.remove_socket()
            self._place.close()

    # --- another supervisor

    def upgrade(self) -> None:
        """Start an upgrade: a new version is to replace this process."""
        task = asyncio.ensure_future(self._upgrade())
        self._upgrades.add(task)
        task.add_done_callback(self._upgrades.discard)

    async def _upgrade(self) -> UpgradeEnded:
        if self._successor is None:
            log.error("upgrade_refused", remedy="set runtime_dir to a folder: an upgrade needs it")
            return UpgradeEnded(None, "there is no runtime_dir")
        return await self._successor.upgrade()

    def _listen_for_successors(self) -> None:
        """Listen for other supervisors, and pass duplicates of the socket to the workers for the case that this process dies.

        Raises:
            StartError: the socket cannot be bound.
        """
        if self._place is None or self._successor is None:
            return
        try:
            sock = self._place.listen()
        except OSError as error:
            raise StartError(f"runtime_dir: {self._place.socket_path} cannot be bound: {error.strerror or error}") from None
        self._handover_listener = HandoverListener(sock, self._successor, self._upgrade, lambda: None, self._connections.follow_worker)
        self.pool.show(PassedHandoverSocket(), sock)

    async def _suspend(self) -> Sequence[Part]:
        """Stop accepting, release what only one process can hold, and return the ports and the state to hand over."""
        listeners = self.control.client_listeners
        listeners.suspend()
        await self.control.release()
        brokers = KnownBrokers(
            self._routes.addresses, [(one.route, one.node_id, one.host, one.port) for one in self.pool.announcements.reached]
        )
        ports = listeners.ports() + [Port(ADMIN_PORT, str(self.config.admin.address), sock) for sock in self.control.admin_sockets]
        return [*parts_of(ports, brokers, self._buckets.states()), *self._connections.hand_over(now_ms())]

    async def _resume(self) -> None:
        """Reverse `_suspend`, since the new version failed."""
        self._connections.keep()
        if self.hub is not None:
            await self.hub.resume()
        try:
            await self.control.open(self._shown, self._watch.lag)
        except (ConfigProblems, StartError) as error:
            log.error("not_resumed", problem="; ".join(self._lines_of(error)))
        self.control.client_listeners.resume()

    def _replaced(self, terminate: Callable[[], None]) -> None:
        """Begin to drain, since the new version accepts connections."""
        if self._handover_listener is not None:
            self._handover_listener.close()
        self.control.drop_admin_sockets()
        terminate()

    async def _expire_forever(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_S)
            self._buckets.expire(now_ms())

    def log_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Count and log an uncaught exception: the loop's exception handler."""
        self._watch.log_exception(loop, context)

    # --- settings

    def _apply_config(self, config: Config) -> None:
        for key in needs_restart(self.config, config):
            log.warning("restart_needed", key=key)
        if self._metering is not None:
            self._metering.settings_changed(config)
        self._apply(config)
        self.control.reload(config)
        self.config = self._state.config = config
        if self._shared is not None:
            self._shared.limits_changed()
            self._report_quotas()

    def _apply(self, config: Config) -> None:
        apply_policy(self.policy, config, declared_groups(config.groups))
        self.pool.announcements.wants_cluster = config.callback is not None
        limit_principals(self._principals, config)

    # --- quotas, ports, brokers

    def _content_arrived(self, content: StoreContent, origin: Origin) -> None:
        who = self.control.administration.altering if origin == "own" else None
        self.pool.announcements.content_arrived(content, who)
        self._quotas_number.update(content.quotas, content.switches, content.pacing)
        self._report_quotas()
        if self._metering is not None:
            self._metering.quotas_changed(who)
            self._metering.settings_changed(self.config)  # the content of a store includes switches

    def _report_quotas(self) -> None:
        """Report to the hub the numbers with which members compare their quotas and limits."""
        if self.hub is not None:
            self.hub.set_quotas(FleetQuotas(self._quotas_number.number, limits_number(self.config)))

    def _hub_reported(self, status: FleetStatus) -> None:
        if self._metering is not None and status.clock_ms is not None:
            heard = {one.incarnation: one.member for one in status.members[1:]}
            self._metering.fleet_reported(status.clock_ms, heard, is_cut_off=status.is_cut_off)

    def _fleet_report(self) -> FleetReport:
        """Return the last report of the hub; the hub's heartbeat in the segment has its time."""
        assert self.hub is not None
        assert self._segment.fleet is not None
        age_ms = now_ms() - self._segment.heartbeat_ms(self._segment.fleet)
        return FleetReport(self.hub.status, age_ms, self.hub.starts, None if self._shared is None else self._shared.status())

    def _quotas_sent(self, generation: int) -> None:
        """Announce the generation in the segment, so that no worker reads requests before it has these quotas.

        The event loop first writes the messages with the quotas, then makes this call.
        """
        asyncio.get_running_loop().call_soon(self._segment.announce_quotas, generation)

    def _ports_bound(self, listener: BoundListener) -> None:
        self.pool.announcements.ports_bound(listener.settings.name, listener.bootstrap_port, listener.ports)
        if self._place is not None:
            for port in self.control.client_listeners.ports_of(listener):
                self.pool.show(PassedPort(port.listener, port.address, int(port.sock.family)), port.sock)

    def _broker_moved(self, route: Route) -> Any:
        return lambda node_id, address: self.pool.announcements.broker_met(BrokerAddress(route.number, node_id, *address))

    def _learn_broker(self, message: BrokerAddress) -> None:
        """A worker learned the address of a broker."""
        for route in self._routes:
            if route.number == message.route:
                route.book.learn(message.node_id, message.host, message.port)

    # --- requests of workers

    def _answer_question(self, worker: WorkerProcess, question: AnyQuestion) -> Any:
        if isinstance(question, BindBroker):
            self._learn_broker(BrokerAddress(question.route, question.node_id, question.host, question.port))
            listeners = self.control.client_listeners.listeners
            return {one.settings.name: one.ports[question.node_id] for one in listeners if question.node_id in one.ports}
        if isinstance(question, EnterPrincipal):
            principal = KafkaPrincipal(question.kind, question.name)
            may_stay = self._principals.enter(principal, only_observes=question.only_observes)
            if may_stay:
                worker.principals[question.kind, question.name] += 1
            return may_stay
        return self._buckets.use(question)

    def _principal_left(self, kind: str, name: str) -> None:
        self._principals.leave(KafkaPrincipal(kind, name))

    async def _answer_request(self, request: Request) -> bytes:
        asked, administration = request.what, self.control.administration
        if self._successor is not None:
            await self._successor.may_go_on.wait()
            if self._successor.is_replaced:
                raise LinkLost("another process keeps the quotas now; connect again")
        if isinstance(asked, AlterQuotas):
            results = await administration.alter(
                asked.requester, asked.alterations, validate_only=asked.validate_only, broker_allows=asked.broker_allows
            )
            return encoded(results)
        if isinstance(asked, DescribeQuotas):
            found = await administration.describe_many(
                asked.requester, asked.components, strict=asked.strict, broker_allows=asked.broker_allows
            )
            entries = None if found.entries is None else [(entity, dict(values)) for entity, values in found.entries.items()]
            return encoded(Described(found.error_code, found.error_message, entries))
        raise TypeError(type(asked).__name__)


def named_run(config: Config, first_number: int) -> Config:
    """Return a configuration with a metering name of its own, since the replaced supervisor still writes under the usual name.

    Args:
        first_number: lowest number of a worker; supervisors that run at the same time have different ones. 0: the usual name.
    """
    if not first_number:
        return config
    name = f"{config.metering.proxy_id or socket.gethostname()}-supervisor-{first_number}"
    return msgspec.structs.replace(config, metering=msgspec.structs.replace(config.metering, proxy_id=name))
