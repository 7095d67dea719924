"""A client's connection and its connection to a broker, from the start to the end of both."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from protocol.api_keys import ApiVersion
from protocol.errors import ProtocolError
from proxy.base.clock import now_ms, now_ns
from proxy.base.close_reason import CloseReason, reason_of
from proxy.base.host_port import HostPort
from proxy.base.pause_reason import DRAIN, IN_FLIGHT, LONG_ANSWER, LONG_REQUEST, THROTTLE
from proxy.net.departure import Departure
from proxy.net.relay.answer_buffer import AnswerBuffer
from proxy.net.relay.broker_channel import BrokerChannel
from proxy.net.relay.client_channel import ClientChannel
from proxy.net.relay.flow import Channel
from proxy.net.sockets import min_rtt_ns, restore_receive_buffer, set_broker_options, shrink_receive_buffer
from proxy.net.throttled_channels import ThrottledChannels
from proxy.net.turns import Reader, Turns, Worker
from proxy.session.administered import BrokersAnswer
from proxy.session.reading import ReadStep
from proxy.session.requests.pending_requests import Stop
from proxy.session.session import Session
from proxy.telemetry.counters import Counters
from proxy.tls.transport import TlsTransport

FLUSH_S = 5.0  # how long a side that is being closed may take what was written to it


class Owner(Protocol):
    """Keeps the connections; the gateway."""

    counters: Counters
    timers: ThrottledChannels
    answer_buffer: AnswerBuffer
    long_work: Turns[Worker]
    long_requests: Turns[Reader]

    @property
    def departed_ms(self) -> int:
        """How long a connection is served at most after its client has closed its side."""

    def client_departed(self, connection: Connection) -> bool:
        """The client has closed its side, and responses or requests of it are pending; False: the connection may not stay."""

    def client_socket_closed(self, connection: Connection) -> None:
        """Its client's socket is closed; the connection goes on without it."""

    def connection_closed(self, connection: Connection, reason: CloseReason, detail: str) -> None:
        """A connection ended, with its one reason."""

    def connection_gone(self, connection: Connection) -> None:
        """Both its sockets are gone."""

    def administer(self, connection: Connection) -> None:
        """It has a request that is answered here; `Connection.answer` takes the answer."""

    def watch_client(self, connection: Connection) -> None:
        """Its client is not read, and may leave meanwhile: that must be seen at once."""


class Connection:
    """One client, one broker, one session between them.

    `settle` brings pauses, timers and kept bytes in line with what the session decided; it may be called at any time.
    """

    __slots__ = (
        "_answered",
        "_broker_left",
        "_loop",
        "_owner",
        "_question",
        "_small_broker_buffer",
        "_small_client_buffer",
        "accepted_ms",
        "broker",
        "broker_peer",
        "client",
        "client_eof_ms",
        "client_sock",
        "client_tls",
        "closing",
        "departure",
        "draining",
        "guarded",
        "ip_key",
        "listener_name",
        "peer",
        "session",
        "upstream",
        "wake_at_ms",
        "watched_fd",
    )

    def __init__(
        self, owner: Owner, session: Session, client_sock: socket.socket, peer: tuple[str, int], listener_name: str, upstream: HostPort
    ) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self.client_sock = client_sock
        self.client_tls: TlsTransport | None = None  # after its handshake; the channel's transport once the broker is there
        self._small_client_buffer = False
        self._small_broker_buffer = False
        self._broker_left: tuple[Exception | None] | None = None  # it is gone, for this reason; a long answer of it is still looked at
        self._question: BrokersAnswer | None = None  # asked of the broker for the request that is answered here ...
        self._answered: asyncio.Future[None] | None = None  # ... and what waits for its answer
        self.session = session
        self.peer = peer
        self.listener_name = listener_name
        self.upstream = upstream
        self.accepted_ms = now_ms()
        self.broker_peer: tuple[str, int] = ("", 0)
        self.ip_key: tuple[int, str] = (0, "")  # what it counts as among the connections of its address
        self.wake_at_ms = 0
        self.watched_fd = -1  # of the client's socket, while `DisconnectWatcher` watches it
        self.client_eof_ms = 0  # since when all that the client sent has been read
        self.departure: Departure | None = None  # from when its client closed its side, which the kernel may know before it is read
        self.closing = False
        self.draining = False
        self.guarded = False
        session.fetch_admission.notify = self._ask_again_soon
        session.buffer.end = self.end_for_room
        self.client = ClientChannel(self, session)
        self.broker = BrokerChannel(self, session)
        self.client.peer, self.broker.peer = self.broker, self.client

    # --- bytes

    @property
    def answer_buffer(self) -> AnswerBuffer:
        """Where long answers are read to."""
        return self._owner.answer_buffer

    def write_broker(self, data: bytes) -> None:
        """Send on what the client sent."""
        transport = self.broker.transport
        if transport is not None and not self.broker.lost:
            transport.write(data)

    def write_client(self, data: bytes | memoryview) -> None:
        """Send on what the broker answered."""
        transport = self.client.transport
        if transport is not None and not self.client.lost:
            transport.write(data)

    def settle(self, now: int) -> None:
        """Carry out what the session decided: what leaves, what is read, when to look again."""
        if self.closing:
            return
        session = self.session
        session.settle(now)
        if session.login.news:
            self._follow_login()
        if session.wants_rtt:
            session.set_rtt(min_rtt_ns(self.broker.fileno()))
        step = session.reading.next_step(now, now_ns(), draining=self.draining)
        while step.again:
            self._send(step)
            step = session.reading.next_step(now, now_ns(), draining=self.draining)
        self._send(step)
        self._read(step)
        self._hand_on()
        end_ms = self._settle_end(now) if self.departure is not None or self.draining else 0
        if self.closing:
            return
        wake_at_ms = min(filter(None, (step.hold_until_ms, step.wake_at_ms, end_ms)), default=0)
        if wake_at_ms or self.wake_at_ms:
            self._owner.timers.schedule(self, wake_at_ms)
        if not session.reserve(self.client.login_bytes):
            self.end_for_room()
            return
        session.attention.needs_settle = bool(wake_at_ms or self.departure is not None or self.draining or session.is_unsettled)

    def _send(self, step: ReadStep) -> None:
        """Send what leaves in a step."""
        if step.to_client is not None:
            self.write_client(step.to_client)
        if step.to_broker is not None:
            self.write_broker(step.to_broker)

    def _read(self, step: ReadStep) -> None:
        """Read from both sides as the last step says."""
        if step.hold_until_ms:
            self.broker.pause(THROTTLE)
            self._shrink_broker_buffer()
        else:
            self.broker.resume(THROTTLE)
        if step.is_throttled:
            self._shrink_client_buffer()
        if step.pause:
            self._pause_client(step.pause)
        else:
            self.client.resume(THROTTLE | IN_FLIGHT)
        if step.in_next_turn:
            self._loop.call_soon(self._next_turn)
        if step.reads_in_turns:
            self.client.pause(LONG_REQUEST)
            self._owner.long_requests.add(self.client)
        if step.is_free:
            self._restore_buffers()

    def _hand_on(self) -> None:
        """Hand on what others do for this connection: steps with a long frame, a request that is answered here."""
        if self._has_work():
            self._owner.long_work.add(self)
        if self._question is not None:
            self._tell()
        administered = self.session.requests.pending.administered
        if administered is not None and not administered.begun:
            administered.begun = True
            self._owner.administer(self)

    def _has_work(self) -> bool:
        """Whether a long frame is looked at in steps; the broker is not read while it is one of its own."""
        responses = self.session.responses
        if responses.work is not None:
            self.broker.pause(LONG_ANSWER)
            return True
        self.broker.resume(LONG_ANSWER)
        return self.session.requests.pending.work is not None

    def go_on(self) -> bool:
        """Take one step with a long frame; return whether more are to come."""
        if self.closing:
            return False
        requests, responses, now = self.session.requests, self.session.responses, now_ms()
        try:
            if responses.work is not None:
                passed = responses.go_on(now, now_ns())
                if passed is not None:
                    self.write_client(passed)
                if responses.work is None:
                    self.settle(now)
                    if self._broker_left is not None and responses.work is None:
                        self.broker_gone(*self._broker_left)
        except ProtocolError as error:
            self.fail_broker(error)
        except Exception as error:  # noqa: BLE001 - as in the channels
            self.crash(error)
        if self.closing:
            return False
        if requests.pending.work is not None:
            self.attempt(self._go_on_with_request)
        return not self.closing and (responses.work is not None or requests.pending.work is not None)

    def _go_on_with_request(self) -> None:
        now = now_ms()
        if self.session.requests.pending.go_on(now):
            self._resume_kept(now)

    def _follow_login(self) -> None:
        """The broker has answered a message of the client's login."""
        login = self.session.login
        login.news = False
        self.client.follow_login(under_way=login.under_way)
        if self.session.throttle.session_is_short:
            # made small when it is full, it would be emptied without its sender learning of it, and a renewal come seconds late
            self._shrink_client_buffer()

    def wake(self, now: int) -> None:
        """A deadline of this connection has come."""
        self.attempt(lambda: self.settle(now))

    def attempt(self, act: Callable[[], None]) -> None:
        """Do something for this connection: what goes wrong in it ends this connection, and nothing else."""
        try:
            act()
        except ProtocolError as error:
            self.fail_client(error, b"")
        except Exception as error:  # noqa: BLE001 - as in the channels
            self.crash(error)

    def settings_changed(self) -> None:
        """A reload changed what all sessions share."""
        if not self.closing:
            now = now_ms()
            self.session.settings_changed(now)
            self.wake(now)

    def enforcement_changed(self) -> None:
        """Switches changed: what waits for the sake of quotas that are not enforced any more goes on."""
        if not self.closing:
            now = now_ms()
            self.session.release_unenforced(now)
            self.wake(now)

    def _pause_client(self, reason: int) -> None:
        """Read no more from the client for now. Who has closed its side is read to the end: a reset would take the rest back."""
        if self.departure is not None and reason != DRAIN:
            return
        self.client.pause(reason)
        if reason == THROTTLE and self.watched_fd < 0:  # what it owes is left to its group when it leaves, and it may be back at once
            self._owner.watch_client(self)

    def _next_turn(self) -> None:
        """Go on with the frames that were too many for one callback."""
        if not self.closing and self.session.requests.pending.stop is Stop.TURN:
            self._resume_kept(now_ms())

    def _resume_kept(self, now: int) -> None:
        """Send on what was kept back, as far as it may go."""
        try:
            onward = self.session.requests.resume(now, now_ns())
            if onward is not None:
                self.write_broker(onward)
            self.settle(now)
        except ProtocolError as error:
            self.fail_client(error, b"")
        except Exception as error:  # noqa: BLE001 - as in the channels
            self.crash(error)

    def _ask_again_soon(self) -> None:
        """Room was made for a fetch that waits: judge it in the next turn, after the answer that made it was counted."""
        self.session.requests.pending.resume_at_ms = 0
        self._loop.call_soon(self._asked_again)

    def _asked_again(self) -> None:
        if not self.closing:
            self.wake(now_ms())

    def _settle_end(self, now: int) -> int:
        """End when no response is pending: the client has closed its side, or we drain. Returns when to look again, 0 for never."""
        end_ms = 0 if self.departure is None else self._settle_departure(self.departure, now)
        if not self.closing:
            reason = self.session.reading.end_reason(client_eof=bool(self.client_eof_ms), draining=self.draining)
            if reason is not None:
                self.close(reason)
        return end_ms

    def _settle_departure(self, departure: Departure, now: int) -> int:
        """Tell the broker when no more will come, and drop what is not taken in time. Returns when to look again."""
        session, transport = self.session, self.client.transport
        if self.client_eof_ms and session.in_flight and session.reading.has_sent_all:
            self._half_close_broker()
        untaken_bytes = 0 if transport is None or self.client.lost else transport.get_write_buffer_size()
        end_ms = departure.since_ms + self._owner.departed_ms
        step = departure.next_step(untaken_bytes, now, end_ms, keeps_requests=session.requests.pending.keeps and transport is not None)
        if step.drops:
            self._drop(CloseReason.HALF_CLOSE_DEADLINE)
        elif step.aborts_client and transport is not None:
            transport.abort()
        return step.wake_at_ms

    def _drop(self, reason: CloseReason) -> None:
        """End at once, with all that is left."""
        self._owner.counters.discarded_request_bytes += self.session.requests.pending.kept_bytes
        self.close(reason)
        self.abort()

    # --- receive buffers: what waits stays with who sent it

    def _shrink_client_buffer(self) -> None:
        if not self._small_client_buffer:
            self._small_client_buffer = True
            shrink_receive_buffer(self.client_sock.fileno())

    def _shrink_broker_buffer(self) -> None:
        if not self._small_broker_buffer and self.broker.transport is not None:
            self._small_broker_buffer = True
            shrink_receive_buffer(self.broker.fileno())

    def _restore_buffers(self) -> None:
        if self._small_client_buffer and not self.session.throttle.session_is_short:
            self._small_client_buffer = False
            restore_receive_buffer(self.client_sock.fileno())
        if self._small_broker_buffer and self.broker.transport is not None:
            self._small_broker_buffer = False
            restore_receive_buffer(self.broker.fileno())

    # --- beginning and end

    def client_made(self) -> None:
        """The client's transport is there; from here on bytes flow."""
        assert self.client.transport is not None
        assert self.broker.transport is not None
        self.client.write_peer = self.broker.transport.write
        self.broker.write_peer = self.client.transport.write
        if self.broker.lost:
            self.close(CloseReason.BROKER_CLOSED)

    def guard_broker(self) -> None:
        """Let the kernel notice a broker that vanishes; asked for by `ConnectionDeadlines`, so that short connections do not pay for it."""
        self.guarded = True
        set_broker_options(self.broker.fileno())

    def client_eof(self) -> None:
        """The client has closed its side: complete frames go on, one at a time, and what the broker answers is delivered."""
        if self.closing or self.client_eof_ms:
            return
        if self.session.is_quiet:
            self.close(CloseReason.CLIENT_CLOSED)
            return
        self.client_eof_ms = now_ms()
        self._depart(self.client_eof_ms)

    def _depart(self, now: int) -> None:
        is_news = self.departure is None
        if is_news:
            self.departure = Departure(now)
            self.session.attention.needs_settle = True
            self.session.throttle.depart(now)
        self._resume_kept(now)
        if is_news and not self.closing and not self._owner.client_departed(self):
            self._drop(CloseReason.DEPARTED_LIMIT if self.session.requests.pending.keeps else CloseReason.CLIENT_CLOSED)

    def broker_stalled(self) -> None:
        """The broker does not take what it is sent; while it does not, nothing is read from the client."""
        self._owner.watch_client(self)

    # --- requests that are answered here

    async def ask(self, api: ApiVersion, frame: bytes) -> bytes:
        """Put a question of ours to the broker on behalf of the request that is answered here; return the whole answer.

        Raises:
            ConnectionError: the connection has ended.
        """
        if self.closing:
            raise ConnectionAbortedError("the connection has ended")
        self._question = question = self.session.ask(api, frame, now_ms(), now_ns())
        self._answered = answered = self._loop.create_future()
        self.session.attention.needs_settle = True
        self.write_broker(frame)
        try:
            await answered
        finally:
            self._question = self._answered = None
        assert question.frame is not None
        return question.frame

    def answer(self, frame: bytes) -> None:
        """The request that is answered here has its answer."""
        if self.closing:
            return
        now = now_ms()
        self.session.answer_administered(frame, now, now_ns())
        self.wake(now)

    def _tell(self) -> None:
        """The one who asked the broker learns what it said, or that it will say nothing any more."""
        question, answered = self._question, self._answered
        if question is None or answered is None or answered.done():
            return
        if question.frame is not None:
            answered.set_result(None)
        elif self.closing:
            answered.set_exception(ConnectionAbortedError("the connection has ended"))

    def client_left_while_paused(self) -> None:
        """The kernel has the client's FIN although we do not read: take what is queued, it goes on in its turn."""
        if self.closing or self.departure is not None:
            return
        self._depart(now_ms())
        if not self.closing:
            self.client.resume(THROTTLE | IN_FLIGHT)

    def _gone(self) -> None:
        if self.closing and (self.client.lost or self.client.transport is None) and (self.broker.lost or self.broker.transport is None):
            self._owner.connection_gone(self)
            self.client.let_go()
            self.broker.let_go()

    def client_lost(self, error: Exception | None) -> None:
        """The client's socket is gone."""
        if self.closing:
            self._gone()
        elif self.client_eof_ms and self.session.requests.pending.keeps:
            self._go_on_without_client()
        else:
            self.close(CloseReason.CLIENT_CLOSED if error is None else CloseReason.CLIENT_RESET)

    def _go_on_without_client(self) -> None:
        """The client has closed both sides: what it sent before still goes on, what the broker answers goes nowhere."""
        self._owner.client_socket_closed(self)
        self.broker.drop_answers()
        self.client.resume_writing()
        self.wake(now_ms())

    def broker_gone(self, error: Exception | None) -> None:
        """The broker ended the connection: what it answered is delivered, then the client is closed; nothing is made up."""
        if self.closing:
            self._gone()
            return
        if self.session.responses.work is not None:  # the last that it said is looked at first
            self._broker_left = (error,)
            return
        held = self.session.responses.release(now_ms())
        if held is not None:
            self.write_client(held)
        if self.client_eof_ms and error is None:
            self.close(CloseReason.CLIENT_CLOSED)
        else:
            self.close(CloseReason.BROKER_CLOSED if error is None else CloseReason.BROKER_RESET)

    def drain(self) -> None:
        """Take no new request, send on what was received, release what waits; the connection ends when no response is pending."""
        if self.closing or self.draining:
            return
        now = now_ms()
        requests = self.session.requests
        self.draining = True
        self.session.attention.needs_settle = True
        requests.ungated = True
        self.session.throttle.forgive()
        self._resume_kept(now)
        self.wake(now)

    def end_for_room(self) -> None:
        """The process keeps as much as it may, and this connection holds most of the address that holds most."""
        if not self.closing:
            self.close(CloseReason.BUFFER_LIMIT, f"{self.session.buffer.reserved_bytes} bytes kept")

    def fail_client(self, error: ProtocolError, data: bytes) -> None:
        """The client's bytes cannot be understood, or ask for what is refused."""
        reason = _looks_like(data) if error.reason == "frame_size" and not self.session.requests.frames else None
        self.close(reason or reason_of(error, otherwise=CloseReason.BAD_REQUEST), str(error))

    def fail_broker(self, error: ProtocolError) -> None:
        """The broker's bytes cannot be understood, or must not leave."""
        if error.reason == "unmapped":
            self._owner.counters.unmapped += 1
        held = self.session.responses.release(now_ms())  # right answers, given before the broken one
        if held is not None:
            self.write_client(held)
        self.close(reason_of(error, otherwise=CloseReason.BAD_RESPONSE), str(error))

    def crash(self, error: Exception) -> None:
        """A bug of ours: this connection ends, the process goes on."""
        self._owner.counters.internal_errors += 1
        self._loop.call_exception_handler({"message": "a connection ended by an internal error", "exception": error, "counted": True})
        self.close(CloseReason.INTERNAL_ERROR, f"{type(error).__name__}: {error}")

    def close(self, reason: CloseReason, detail: str = "") -> None:
        """End both sides: what was written is still delivered, for a bounded time."""
        if self.closing:
            return
        self.closing = True
        self._tell()
        self._owner.timers.schedule(self, 0)
        self._leave_session()
        self._close_client()
        # a broker that reads nothing must not delay the end of a connection without a client
        deserted = reason is CloseReason.CLIENT_GONE_WHILE_PAUSED and self.broker.write_full_since_ms
        self._close_broker(linger=reason not in _BROKER_AT_FAULT and not deserted)
        self._owner.connection_closed(self, reason, detail)
        self.session.let_go()
        self._gone()

    def _leave_session(self) -> None:
        """Record what was forwarded, then let the session go, whatever a callback of the operator does meanwhile."""
        try:
            if self.session.in_flight or self.session.throttle.is_throttled:
                self.session.leave(now_ms())
        except Exception as error:  # noqa: BLE001 - a bug of ours, or of a callback, keeps no connection from ending
            self._owner.counters.internal_errors += 1
            context = {"message": "the end of a connection met an internal error", "exception": error, "counted": True}
            self._loop.call_exception_handler(context)
        self.session.close()

    def abort(self) -> None:
        """Drop both sockets now."""
        for channel in (self.client, self.broker):
            if channel.transport is not None and not channel.lost:
                channel.transport.abort()

    def abort_client(self) -> None:
        """Drop the client's socket now, with what it has not taken."""
        if self.client.transport is not None and not self.client.lost:
            self.client.transport.abort()

    def _close_client(self) -> None:
        transport = self.client.transport
        if transport is None:
            (self.client_tls or self.client_sock).close()
        elif not self.client.lost:
            transport.close()
            if transport.get_write_buffer_size():
                self._abort_later(self.client)

    def _close_broker(self, *, linger: bool) -> None:
        transport = self.broker.transport
        if transport is None or self.broker.lost:
            return
        if not linger:
            transport.abort()
            return
        if not self.session.in_flight and not self.session.responses.in_frame:
            transport.close()  # flushes what was written; no answer is on its way that could be left unread
            if transport.get_write_buffer_size():
                self._abort_later(self.broker)
            return
        # Closing with unread answers would reset the connection and could take back requests that were just sent.
        self._half_close_broker()
        self.broker.pauses = 0
        if not transport.is_closing():
            transport.resume_reading()
        self._abort_later(self.broker)

    def _half_close_broker(self) -> None:
        transport = self.broker.transport
        if transport is not None and not self.broker.lost and not transport.is_closing() and transport.can_write_eof():
            transport.write_eof()

    def _abort_later(self, channel: Channel) -> None:
        self._loop.call_later(FLUSH_S, _abort, channel)


def _abort(channel: Channel) -> None:
    if channel.transport is not None and not channel.lost:
        channel.transport.abort()


def _looks_like(data: bytes) -> CloseReason | None:
    """Name what often comes to a Kafka port by mistake."""
    if data[:1] == b"\x16" and data[1:2] == b"\x03":
        return CloseReason.NOT_KAFKA_TLS
    if data[:6] == b"PROXY " or data[:12] == b"\r\n\r\n\x00\r\nQUIT\n":
        return CloseReason.NOT_KAFKA_PROXY_HEADER
    if data[:4] in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"CONN", b"PRI "):
        return CloseReason.NOT_KAFKA_HTTP
    return None


_BROKER_AT_FAULT = frozenset(
    {
        CloseReason.BAD_RESPONSE,
        CloseReason.RESPONSE_MISMATCH,
        CloseReason.RESPONSE_UNSOLICITED,
        CloseReason.REWRITE_LIMIT,
        CloseReason.UNMAPPED,
        CloseReason.INTERNAL_ERROR,
        CloseReason.BROKER_RESET,
        CloseReason.BROKER_SILENT,
        CloseReason.SHUTDOWN,
    }
)
