"""The open connections: each admitted client is connected to its broker, and both are kept until they end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from protocol.errors import BadRequestError, ProtocolError
from protocol.messages.metadata import Topology
from proxy.base.clock import now_ms
from proxy.base.close_reason import CloseReason
from proxy.base.host_port import HostPort, ip_of
from proxy.config.model import Listener
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.quota_scope import QuotaScope
from proxy.handler_time import HandlerTimes
from proxy.meter.usage import Place
from proxy.net.accept.admission import Peer
from proxy.net.accept.bound_listener import BoundListener
from proxy.net.accept.client_listeners import AdmittedConnection, note_end, refuse_crashed
from proxy.net.accept.first_bytes import Arrival
from proxy.net.buffer_budget import BufferBudget
from proxy.net.connection import Connection
from proxy.net.connection_deadlines import ConnectionDeadlines, Deadlines
from proxy.net.departure import DepartedClients
from proxy.net.disconnect_watcher import DisconnectWatcher
from proxy.net.relay.announced_quotas import AnnouncedQuotas
from proxy.net.relay.long_frame_memory import LongFrameMemory
from proxy.net.throttled_channels import ThrottledChannels
from proxy.net.turns import long_requests, long_work
from proxy.net.upstream.connector import UpstreamUnreachableError
from proxy.net.upstream.routes import Route, Routes
from proxy.session.addresses import AddressBook, ClientView
from proxy.session.administered import OWN_VERSIONS, Administered
from proxy.session.login.identity import OPEN, IdentityRules, TlsPeer
from proxy.session.rewrite import NO_OWN_APIS, ApiVersionsCut, Rewriter
from proxy.session.session import Session
from proxy.session.settings import SessionSettings
from proxy.telemetry import log
from proxy.telemetry.counters import Counters, bump
from proxy.tls.clients import TlsRefusedError
from quota.connections.ip_connections import IpKey

SWEEP_S = 1.0
LARGE_REQUESTS_MAX = 2  # for requests about quotas: parsing one takes ten times its bytes
REWRITERS_MAX = 64  # a host has fewer addresses
_BY_A_PEER = frozenset({CloseReason.CLIENT_CLOSED, CloseReason.CLIENT_RESET, CloseReason.BROKER_CLOSED, CloseReason.BROKER_RESET})
FLUSH_MS = 2_000  # how long closed connections may take to send their last bytes at shutdown


@dataclass(slots=True)
class GatewaySettings:
    """Settings of connections. A reload changes them in place; listeners need a restart."""

    listeners: tuple[Listener, ...]
    sidecar: bool
    connect_timeout_ms: int
    drain_ms: int
    redact_configs: bool = True
    identities: Mapping[str, IdentityRules] = field(default_factory=dict)  # by listener name; without an entry every client is ANONYMOUS


@dataclass(slots=True)
class GatewayEvents:
    """Callbacks of the gateway."""

    scope_of: Callable[[Peer], QuotaScope]
    on_topology: Callable[[Topology], None]
    on_node_met: Callable[[int, Peer, int], None]  # (route number, node id, peer): the port of a broker led to this address
    wants_topology: Callable[[], bool]
    announced_quotas: AnnouncedQuotas | None = None  # None: no other process decides on quotas


class ClientQuotaApi(Protocol):
    """Answers requests about quotas."""

    async def answer(self, connection: Connection, request: Administered) -> bytes:
        """Return the whole response to a request.

        Raises:
            ConnectionError: the connection ended before anything was changed.
            ProtocolError: the broker's response is invalid.
        """


class ConnectionSlots(Protocol):
    """Counts the connections that hold a slot."""

    def left(self, listener_name: str, ip_key: IpKey) -> None:
        """An admitted connection has ended."""


class Gateway:
    """Connects each client to its broker, and keeps the connections.

    Args:
        listeners: provide the addresses that clients receive.
        slots: receives the slot of a connection that ended.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        session_settings: SessionSettings,
        counters: Counters,
        routes: Routes,
        deadlines: Deadlines,
        budget: BufferBudget,
        listeners: Sequence[BoundListener],
        slots: ConnectionSlots,
        events: GatewayEvents,
        handler_times: HandlerTimes,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.settings = settings
        self.counters = counters
        self.timers = ThrottledChannels(self._loop)
        self.long_frame_memory = LongFrameMemory()
        self.long_work = long_work(self._loop)
        self.long_requests = long_requests(self._loop)
        self.routes = routes
        self.connection_deadlines = ConnectionDeadlines(
            lambda: self.connections, deadlines, lambda connection: self.disconnect_watcher.watch(connection)
        )
        self.disconnect_watcher = DisconnectWatcher(self.connection_deadlines.client_left)
        self.departed = DepartedClients()
        self.connections: dict[Connection, None] = {}
        self.listeners = listeners
        self._budget = budget
        self._slots = slots
        self._session_settings = session_settings
        self._large_requests = asyncio.Semaphore(LARGE_REQUESTS_MAX)
        self.client_quota_api: ClientQuotaApi | None = None  # None: brokers answer requests about quotas
        self._api_versions = self._cut()
        self.usages = session_settings.usages
        self.policy = session_settings.policy
        self.handler_times = handler_times
        self._deadlines = deadlines
        self._events = events
        self._arrivals: dict[socket.socket, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: set[Connection] = set()  # closed, but with unsent bytes
        self._ended = asyncio.Event()  # set when a connection has closed or its sockets are gone
        self._sweep_timer: asyncio.TimerHandle | None = None

    @property
    def announced_quotas(self) -> AnnouncedQuotas | None:
        """Quotas that another process announces; None: no other process does."""
        return self._events.announced_quotas

    def start(self) -> None:
        """Start the checks of deadlines and of the buffer budget, once a second."""
        self._sweep_timer = self._loop.call_later(SWEEP_S, self._sweep)

    @property
    def book(self) -> AddressBook:
        """The addresses of the brokers at the listener of `[upstream]`."""
        return self.routes.main.book

    # --- connections

    def serve(self, admitted: AdmittedConnection) -> None:
        """Connect an admitted client to its broker."""
        self._arrivals[admitted.arrival.sock] = self._loop.create_task(self._serve(admitted))

    async def _serve(self, admitted: AdmittedConnection) -> None:
        listener, node_id, arrival, key = admitted
        sock = arrival.sock
        connection: Connection | None = None
        try:
            transport = tls = None
            if listener.tls is not None:
                left_ms = arrival.since_ms + self._deadlines.tls_handshake_ms - now_ms()
                transport, tls = await listener.tls.handshake(sock, left_ms, arrival.first)
            connection = self._connection_for(listener, node_id, arrival, tls)
            connection.client_tls = transport
            connection.ip_key = key
            connection.accepted_ms = arrival.since_ms
            await self._join(connection, node_id, sock)
        except TlsRefusedError as error:
            self._slots.left(arrival.listener_name, key)
            note_end(self.counters, arrival, error.reason, str(error))
        except Exception as error:  # noqa: BLE001 - a bug of ours ends this client's connection only
            if connection is not None:
                connection.crash(error)
                return
            refuse_crashed(self.counters, sock, error)
            self._slots.left(arrival.listener_name, key)
        finally:
            del self._arrivals[sock]

    def _connection_for(self, listener: BoundListener, node_id: int | None, arrival: Arrival, tls: TlsPeer | None) -> Connection:
        rules = self.settings.identities.get(listener.settings.name, OPEN)
        session = Session(self._session_settings, self._rewriter(listener, arrival.sock), rules, arrival.peer, tls)
        return Connection(self, session, arrival.sock, arrival.peer, listener.settings.name, self._upstream_of(listener.route, node_id))

    async def _join(self, connection: Connection, node_id: int | None, sock: socket.socket) -> None:
        """Connect the broker, then create the client's transport: nothing is read from the client before."""
        session, address = connection.session, connection.upstream
        route = self.routes.of(connection.listener_name)
        try:
            self.counters.upstream_connects += 1
            timeout_ms = self.settings.connect_timeout_ms
            transport = await route.connector.connect(lambda: connection.broker, address, timeout_ms, self._arrivals[sock])
        except UpstreamUnreachableError as error:
            self.counters.upstream_connect_failures += 1
            self.counters.brokers_reached[str(address) if node_id is None else str(node_id)] = 0
            route.bootstrap.failed(address)
            connection.close(CloseReason.UPSTREAM_UNREACHABLE, str(error))
            return
        except asyncio.CancelledError:
            connection.close(CloseReason.SHUTDOWN)
            raise
        # a host name may have many addresses: the one that was connected counts
        broker_peer: Peer = address if ip_of(address.host) else transport.get_extra_info("peername")[:2]
        if node_id is not None:
            self._events.on_node_met(node_id, broker_peer, route.number)
        connection.broker_peer = broker_peer
        scope = self._events.scope_of(broker_peer)
        self.counters.brokers_reached.pop(str(address), None)  # its node id is known by now
        self.counters.brokers_reached[scope.label if node_id is None else str(node_id)] = 1
        if connection.closing:  # the broker has closed, or sent something, before this task went on
            return
        if node_id is not None:
            session.set_broker_label(str(node_id))
        session.set_broker_times(self.handler_times.of(broker_peer))
        if self._session_settings.meter is not None:
            session.set_usage_place(Place(broker_peer, connection.listener_name))
        session.count_in(scope)
        self.connections[connection] = None
        self.counters.connections_open += 1
        if connection.client_tls is not None:
            connection.client_tls.attach(connection.client)
            return
        connection.client_connects = True
        try:
            await self._loop.connect_accepted_socket(lambda: connection.client, sock)
        except OSError as error:
            connection.client_failed(CloseReason.CLIENT_RESET, str(error))
        except asyncio.CancelledError:
            connection.client_failed(CloseReason.SHUTDOWN)
            raise

    def _cut(self) -> ApiVersionsCut:
        settings = self._session_settings
        return ApiVersionsCut(unknown_apis_pass=settings.unknown_apis_pass, own=OWN_VERSIONS if settings.answers_quotas else NO_OWN_APIS)

    def _upstream_of(self, route: Route, node_id: int | None) -> HostPort:
        if node_id is None:
            return route.bootstrap.current()
        return HostPort(*route.book.upstream[node_id])

    def _rewriter(self, listener: BoundListener, sock: socket.socket) -> Rewriter:
        """Return the rewriter for clients that reach Sluice at this host; it has no state of a connection, so it is cached."""
        host = self._advertised_host(listener, sock)
        wants_topology = self._events.wants_topology()
        rewriter = listener.rewriters.get((host, wants_topology))
        if rewriter is None:
            if len(listener.rewriters) >= REWRITERS_MAX:
                listener.rewriters.clear()
            rewriter = listener.rewriters[host, wants_topology] = self._make_rewriter(listener, host, wants_topology=wants_topology)
        return rewriter

    def _make_rewriter(self, listener: BoundListener, host: str, *, wants_topology: bool) -> Rewriter:
        on_topology = self._events.on_topology if wants_topology else None
        if self.settings.sidecar:
            return Rewriter(None, on_topology, self._api_versions, redact_configs=False)
        view = ClientView(listener.route.book, functools.partial(listener.client_address, host))
        return Rewriter(
            view.client_address, on_topology, self._api_versions, redact_configs=self.settings.redact_configs, revision=view.revision
        )

    def _advertised_host(self, listener: BoundListener, sock: socket.socket) -> str:
        return listener.advertised_host or _plain_ip(sock.getsockname()[0])

    def count_anew(self) -> None:
        """Let every connection look up its quota scope again."""
        for connection in self.connections:
            connection.session.count_in(self._events.scope_of(connection.broker_peer))

    def settings_changed(self) -> None:
        """Apply changed settings to every connection."""
        self._api_versions = self._cut()  # for new connections
        for listener in self.listeners:
            listener.rewriters.clear()
        self._session_settings.known_heads.clear()
        for connection in list(self.connections):
            connection.attempt(connection.settings_changed)

    def enforcement_changed(self) -> None:
        """Switches changed: release the connections that no longer have to wait; the others use the change from their next request on."""
        for connection in [connection for connection in self.connections if connection.session.waits]:
            connection.attempt(connection.enforcement_changed)

    def repaced(self, replaced: Mapping[EnforcedGroup, EnforcedGroup]) -> None:
        """Groups got another pacing, each with the group that continues it: every connection uses that from its next request on."""
        self._session_settings.known_heads.clear()
        for connection in list(self.connections):
            connection.attempt(functools.partial(connection.repaced, replaced))
        for connection in list(self.connections):  # a check counts what is in flight on all of them
            connection.check_again()

    def connection_closed(self, connection: Connection, reason: CloseReason, detail: str) -> None:
        """Count and log the end of a connection."""
        if reason in _BY_A_PEER:
            login = connection.session.login
            if reason is CloseReason.BROKER_CLOSED or reason is CloseReason.BROKER_RESET:
                login.broker_left()
            if login.refusal is not None:
                reason, detail = CloseReason.LOGIN_FAILED, login.refusal
        if connection in self.connections:
            del self.connections[connection]
            self.counters.connections_open -= 1
        self.connection_deadlines.forget(connection)
        self.disconnect_watcher.forget(connection)
        if connection.departure is not None:
            self.departed.leave(connection)
        self._closing.add(connection)
        self._ended.set()
        self._slots.left(connection.listener_name, connection.ip_key)
        bump(self.counters.closes, reason.value)
        requests, responses = connection.session.requests, connection.session.responses
        self.counters.requests += requests.frames
        self.counters.responses += responses.answers
        self.counters.bytes_from_clients += connection.client.bytes_in
        self.counters.bytes_from_brokers += connection.broker.bytes_in
        log.info_of("connection_closed", limit_key=reason.value, fields=lambda: _log_fields_of(connection, reason, detail))

    def administer(self, connection: Connection) -> None:
        """Answer a request about quotas. A change that was begun is completed even when its client disconnects."""
        task = self._loop.create_task(self._administer(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _administer(self, connection: Connection) -> None:
        request = connection.session.requests.pending.administered
        assert request is not None
        assert self.client_quota_api is not None
        try:
            async with self._large_requests if request.body is None else contextlib.nullcontext():
                if connection.closing and request.body is None:
                    return
                answer = await self.client_quota_api.answer(connection, request)
        except ConnectionError:
            return  # its broker is gone, and so is the connection
        except BadRequestError as error:
            connection.fail_client(error, request.frame)
            return
        except ProtocolError as error:
            connection.fail_broker(error)
            return
        except Exception as error:  # noqa: BLE001 - a bug of ours ends this connection, not the process
            connection.crash(error)
            return
        finally:
            if connection.closing:
                connection.session.forget_administered()
        connection.answer(answer)

    @property
    def departed_ms(self) -> int:
        """How long a connection is served at most after its client has closed its side, in ms."""
        return self._deadlines.departed_ms

    def client_departed(self, connection: Connection) -> bool:
        """A client has closed its side while work is pending; False: too many connections of its address are in this state."""
        return self.departed.enter(connection, connection.peer[0])

    def client_socket_closed(self, connection: Connection) -> None:
        """The client's socket is closed: its descriptor may soon belong to another one."""
        self.disconnect_watcher.forget(connection)

    def watch_client(self, connection: Connection) -> None:
        """Watch for the disconnect of a client that is not read."""
        self.disconnect_watcher.watch(connection)

    def make_room(self, protected_listener: str) -> None:
        """A listener exceeds the maximum of connections: close the connection of another listener that was idle for the longest time."""
        others = [connection for connection in self.connections if connection.listener_name != protected_listener]
        if others:
            min(others, key=_last_active_ms).close(CloseReason.MADE_ROOM)

    def connection_gone(self, connection: Connection) -> None:
        """Both sockets of a closed connection are closed."""
        self._closing.discard(connection)
        self._ended.set()

    def _sweep(self) -> None:
        self._sweep_timer = self._loop.call_later(SWEEP_S, self._sweep)
        self.connection_deadlines.sweep(now_ms())
        self._budget.check(self.connections, self._closing, now_ms())

    # --- shutdown

    async def drain(self) -> bool:
        """Forward responses in flight, release what waits, end every connection; False when the time limit was exceeded."""
        for connection in list(self.connections):
            connection.attempt(connection.drain)
        in_time = await self._until_none(self.connections, self.settings.drain_ms)
        for connection in list(self.connections):
            connection.close(CloseReason.DRAIN_DEADLINE)
        await self._until_none(self._closing, FLUSH_MS)
        return in_time

    async def until_none(self) -> None:
        """Wait until no connection is open."""
        while self.connections:
            self._ended.clear()
            await self._ended.wait()

    async def _until_none(self, connections: Collection[Connection], timeout_ms: int) -> bool:
        """Wait until a collection is empty; False when the time limit was exceeded."""
        self._ended.clear()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while connections:
                    await self._ended.wait()
                    self._ended.clear()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Close everything now."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in list(self.connections):
            connection.close(CloseReason.SHUTDOWN)
            connection.abort()
        tasks = [*self._arrivals.values(), *self._tasks]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self.timers.close()
        self.routes.close()
        self.disconnect_watcher.close()


def _log_fields_of(connection: Connection, reason: CloseReason, detail: str) -> dict[str, object]:
    """Return the log fields of a connection that ended."""
    requests, responses = connection.session.requests, connection.session.responses
    return {
        "reason": reason.value,
        "detail": detail,
        "peer": f"{connection.peer[0]}:{connection.peer[1]}",
        "listener": connection.listener_name,
        "broker": str(connection.upstream),
        "principal": str(connection.session.principal),
        "client_ids": list(connection.session.client_ids),
        "requests": requests.frames,
        "answers": responses.answers,
        "unanswered": len(connection.session.in_flight),
        "discarded_bytes": requests.pending.kept_bytes,
        "age_ms": now_ms() - connection.accepted_ms,
    }


def _last_active_ms(connection: Connection) -> int:
    return max(connection.client.read_ms, connection.broker.read_ms, connection.accepted_ms)


def _plain_ip(host: str) -> str:
    """Return the address, an IPv4-mapped IPv6 address as IPv4."""
    return host.removeprefix("::ffff:")
