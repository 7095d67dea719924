"""Connections without sockets and without a clock: bytes in, bytes out, and the test moves the time.

Session, channels, pauses and the heap of deadlines are the real ones. Only the transports, which keep unread bytes as a kernel does, and
the event loop's timer are fakes.
"""

import asyncio
import socket
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self, cast
from unittest import mock

import pytest

import proxy.base.clock
from proxy.base.close_reason import CloseReason
from proxy.base.host_port import HostPort
from proxy.enforcement.groups.child_groups import enforced_bucket
from proxy.enforcement.groups.group_factory import PLAIN
from proxy.enforcement.mode import Enforcement, Mode
from proxy.enforcement.paced.factory import PacedGroups
from proxy.enforcement.pacing import PacingTable
from proxy.enforcement.quota_scopes import CallbackChoice, QuotaScopes
from proxy.enforcement.switches import Switches
from proxy.handler_time import BrokerHandlerTime
from proxy.net import connection as net_connection
from proxy.net.connection import Connection
from proxy.net.departure import DepartedClients
from proxy.net.relay import broker_channel, client_channel
from proxy.net.relay.flow import Channel
from proxy.net.relay.long_frame_memory import LongFrameMemory
from proxy.net.throttled_channels import ThrottledChannels
from proxy.net.turns import long_requests, long_work
from proxy.session.login.identity import OPEN, IdentityRules
from proxy.session.rewrite import ApiVersionsCut, ClientAddress, Rewriter
from proxy.session.session import Session
from proxy.session.settings import SessionSettings
from proxy.telemetry.client_usage import UsageTable
from proxy.telemetry.counters import Counters
from quota.entity import ClientQuotaEntity, ClientQuotaType
from quota.groups.declared_groups import DeclaredGroup, DeclaredGroups
from quota.limits import QuotaLimits
from tests.support.frames.kafka_frames import answer_ids, request_ids

START_MS = 1_000_000
BROKER = ("b", 1)
TIMERS_MAX = 10_000
NO_DESCRIPTOR = 1 << 20


class ManualTimer:
    """The handle that `call_later` returns."""

    def __init__(self, at_ms: int, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.at_ms = at_ms
        self.callback = callback
        self.arguments = arguments

    def cancel(self) -> None:
        self.at_ms = -1


class ManualLoop:
    """An event loop's clock, timers and call_soon, moved by the test."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.crashes: list[dict[str, Any]] = []
        self._timers: list[ManualTimer] = []

    def call_later(self, delay_s: float, callback: Callable[..., object], *arguments: object) -> ManualTimer:
        timer = ManualTimer(self.now_ms + round(delay_s * 1000), callback, arguments)
        self._timers.append(timer)
        return timer

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> ManualTimer:
        return self.call_later(0, callback, *arguments)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.crashes.append(context)

    def turn(self) -> None:
        """Run what is due now, but not what these callbacks schedule."""
        due = [timer for timer in self._timers if 0 <= timer.at_ms <= self.now_ms]
        self._timers = [timer for timer in self._timers if timer not in due]
        for timer in due:
            timer.callback(*timer.arguments)

    def run_until(self, end_ms: int) -> None:
        """Run what is due up to `end_ms`, in order; the clock has the time of each."""
        for _ in range(TIMERS_MAX):
            self._timers = [timer for timer in self._timers if timer.at_ms >= 0]
            due = [timer for timer in self._timers if timer.at_ms <= end_ms]
            if not due:
                self.now_ms = end_ms
                return
            timer = min(due, key=lambda one: one.at_ms)
            self._timers.remove(timer)
            self.now_ms = max(self.now_ms, timer.at_ms)
            timer.callback(*timer.arguments)
        raise AssertionError("timers without end: something waits by spinning")


class MemoryTransport:
    """One end of a connection: the bytes written to it, and the bytes that wait to be read."""

    def __init__(self, loop: ManualLoop, channel: Channel) -> None:
        self._loop = loop
        self._channel = channel
        self._unread: list[bytes] = []
        self.written = bytearray()
        self.reading = True
        self.closed = False
        self.eof_written = False

    def arrive(self, data: bytes) -> None:
        """Deliver bytes of the peer; they are read at once unless reading is paused."""
        self._unread.append(data)
        self._read()

    @property
    def unread_reads(self) -> int:
        """How many reads the unread bytes take."""
        return len(self._unread)

    @property
    def unread_bytes(self) -> int:
        """The bytes that the kernel would hold."""
        return sum(map(len, self._unread))

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        taken = bytes(self.written)
        self.written.clear()
        return taken

    def _read(self) -> None:
        while self._unread and self.reading and not self.closed:
            self._hand_over(self._unread.pop(0))

    def _hand_over(self, data: bytes) -> None:
        """Give bytes to the present protocol, as an event loop does."""
        if isinstance(self._channel, asyncio.BufferedProtocol):
            room = self._channel.get_buffer(-1)
            taken = min(len(room), len(data))
            room[:taken] = data[:taken]
            if data[taken:]:
                self._unread.insert(0, data[taken:])
            self._channel.buffer_updated(taken)
            return
        self._channel.data_received(data)

    # --- what the proxy calls

    def write(self, data: bytes) -> None:
        assert isinstance(data, bytes | memoryview), type(data)
        self.written += data

    def write_eof(self) -> None:
        self.eof_written = True

    def can_write_eof(self) -> bool:
        return True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
        self._loop.call_soon(self._read)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._loop.call_soon(self._channel.connection_lost, None)

    abort = close

    def set_protocol(self, protocol: Any) -> None:
        self._channel = protocol

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, _name: str) -> "NoSocket":
        return NoSocket()


class NoSocket:
    """A socket that accepts every option."""

    def setsockopt(self, *_arguments: object) -> None:
        pass

    def fileno(self) -> int:
        return NO_DESCRIPTOR

    def close(self) -> None:
        pass


class Peer:
    """One client and its broker, both controlled by the test."""

    def __init__(self, proxy: "ProxyFixture", connection: Connection) -> None:
        self.proxy = proxy
        self.connection = connection
        self.client = MemoryTransport(proxy.loop, connection.client)
        self.broker = MemoryTransport(proxy.loop, connection.broker)
        connection.broker.connection_made(cast("asyncio.Transport", self.broker))
        connection.client.connection_made(cast("asyncio.Transport", self.client))

    def sends(self, *frames: bytes) -> list[int]:
        """Send as the client; return the correlation ids of the requests that reach the broker now."""
        self.client.arrive(b"".join(frames))
        return self.forwarded()

    def answers(self, *frames: bytes) -> list[int]:
        """Answer as the broker; return the correlation ids of the answers that reach the client now."""
        self.broker.arrive(b"".join(frames))
        return self.delivered()

    def forwarded(self) -> list[int]:
        """Return the correlation ids of requests that reached the broker since the last call."""
        return request_ids(self.broker.take())

    def delivered(self) -> list[int]:
        """Return the correlation ids of answers that reached the client since the last call."""
        return answer_ids(self.client.take())

    def asks(self, request: bytes, answer: bytes) -> bytes:
        """Send one request and its answer; return what reaches the client now."""
        assert len(self.sends(request)) == 1, "the request did not go on"
        self.broker.arrive(answer)
        return self.client.take()


class ProxyFixture:
    """The environment of the connections: settings, quotas, timers, and the clock inside its block. It is their owner."""

    def __init__(self, *, produce: float | None = None, fetch: float | None = None, **settings: Any) -> None:
        self.loop: ManualLoop = settings.get("loop") or ManualLoop()
        self.counters = Counters()
        self.timers = ThrottledChannels(cast("asyncio.AbstractEventLoop", self.loop), lambda: self.loop.now_ms)
        self.long_frame_memory = LongFrameMemory()
        self.departed = DepartedClients()
        self.announced_quotas = None  # as in a process without a supervisor
        self.long_work = long_work(cast("asyncio.AbstractEventLoop", self.loop))
        self.long_requests = long_requests(cast("asyncio.AbstractEventLoop", self.loop))
        self.enforcement = Enforcement(settings.get("mode", Mode.DELAY), settings.get("delay_max_ms", 5_000))
        self.usages = UsageTable()
        self.settings = SessionSettings(self.enforcement, self.usages, self.counters)
        factories = settings.get("factories", PLAIN)
        self.pacings = factories.pacings if isinstance(factories, PacedGroups) else None
        self.settings.paces = self.pacings is not None and self.pacings.paces
        self.scopes = QuotaScopes(
            per_cluster=False,
            choice=CallbackChoice(),
            statics={},
            windows=settings.get("windows"),
            factories=factories,
            make_mutation_group=settings.get("make_mutation_group", enforced_bucket),
        )
        self.scope = self.scopes.of(BROKER)
        self.closed: list[tuple[CloseReason, str]] = []
        self.administered: list[Connection] = []
        """Connections whose quota requests are due and wait for `Connection.answer`."""
        self._peers: list[weakref.ref[Peer]] = []  # kept by the code that plays them
        self._clock = pytest.MonkeyPatch()
        self.broker_times = BrokerHandlerTime()
        self.set_quota(produce=produce, fetch=fetch, request=settings.get("request"), mutation=settings.get("mutation"))

    def set_quota(
        self,
        *,
        produce: float | None = None,
        fetch: float | None = None,
        request: float | None = None,
        mutation: float | None = None,
        client_id: str = "etl",
    ) -> None:
        """Set bytes per second, percent of a thread and mutations per second of a client-id; what is not given stays."""
        entity = ClientQuotaEntity(None, client_id)
        if produce is not None:
            self.scope.produce.update_quota(entity, produce)
        if fetch is not None:
            self.scope.fetch.update_quota(entity, fetch)
        if request is not None:
            self.scope.request.update_quota(entity, request)
        if mutation is not None:
            self.scope.mutation.update_quota(entity, mutation)

    def change_bounds(self, bound: float) -> None:
        """Set bytes produced and fetched per second of client-id etl, as a table of quotas of a running proxy."""
        quotas = {ClientQuotaEntity(None, "etl"): bound}
        self.scopes.apply_table({ClientQuotaType.PRODUCE: QuotaLimits.of(quotas), ClientQuotaType.FETCH: QuotaLimits.of(quotas)})
        self.loop.run_until(self.loop.now_ms)

    def connect(
        self,
        client_address: ClientAddress | None = None,
        *,
        redact_configs: bool = True,
        rules: IdentityRules = OPEN,
        host: str = "127.0.0.1",
    ) -> Peer:
        """Return a new connection; without `client_address` that of a sidecar."""
        cut = ApiVersionsCut(unknown_apis_pass=self.settings.unknown_apis_pass)
        rewriter = Rewriter(client_address, None, cut, redact_configs=redact_configs)
        session = Session(self.settings, rewriter, rules, (host, 9))
        session.set_broker_times(self.broker_times)
        session.count_in(self.scope)
        with mock.patch("asyncio.get_running_loop", return_value=self.loop):
            connection = Connection(self, session, cast("socket.socket", NoSocket()), ("127.0.0.1", 9), "default", HostPort("b", 1))
        peer = Peer(self, connection)
        self._peers.append(weakref.ref(peer))
        return peer

    def declare(self, *groups: DeclaredGroup) -> None:
        """Declare these groups, as a reload does."""
        declared = DeclaredGroups(groups)
        if self.pacings is not None:
            self.pacings.groups = declared
        self.settings.policy.configured(self.settings.policy.exempt, declared)
        self.scopes.declare(declared)
        self.settings.known_heads.clear()
        for peer in filter(None, (known() for known in self._peers)):
            peer.connection.settings_changed()
        self.loop.run_until(self.loop.now_ms)

    def switch(self, table: Mapping[str, str]) -> None:
        """Apply switches, as a running proxy does."""
        self.settings.policy.switch(Switches(table))
        self.scopes.renew()
        for peer in filter(None, (known() for known in self._peers)):
            peer.connection.enforcement_changed()
        self.loop.run_until(self.loop.now_ms)

    def pace(self, table: Mapping[str, str]) -> None:
        """Apply pacings, as a running proxy does; its `factories` are `PacedGroups`."""
        assert self.pacings is not None
        self.pacings.table = PacingTable(table)
        self.settings.paces = self.pacings.paces
        replaced = self.scopes.repace()
        self.settings.known_heads.clear()
        for peer in filter(None, (known() for known in self._peers)):
            peer.connection.repaced(replaced)
        for peer in filter(None, (known() for known in self._peers)):
            peer.connection.check_again()
        self.loop.run_until(self.loop.now_ms)

    @property
    def now_ms(self) -> int:
        """The time in milliseconds."""
        return self.loop.now_ms

    def wait(self, ms: int) -> None:
        """Advance the time; deadlines on the way fire."""
        self.loop.run_until(self.loop.now_ms + ms)

    def __enter__(self) -> Self:
        """Let the proxy's clock show the time of this fixture."""
        for module in (proxy.base.clock, client_channel, broker_channel, net_connection):
            self._clock.setattr(module, "now_ns", lambda: self.loop.now_ms * 1_000_000)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._clock.undo()

    # the interface of a connection's owner

    departed_ms = 60_000

    def client_departed(self, connection: Connection) -> bool:
        return self.departed.enter(connection, connection.peer[0])

    def client_socket_closed(self, connection: Connection) -> None:
        pass

    def connection_closed(self, connection: Connection, reason: CloseReason, detail: str) -> None:
        if connection.departure is not None:
            self.departed.leave(connection)
        self.closed.append((reason, detail))

    def connection_gone(self, connection: Connection) -> None:
        pass

    def administer(self, connection: Connection) -> None:
        self.administered.append(connection)

    def watch_client(self, connection: Connection) -> None:
        pass
