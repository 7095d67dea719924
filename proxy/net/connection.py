"""A client's connection and its connection to a broker, from their beginning to their end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Protocol

from protocol.api_keys import ApiVersion
from protocol.errors import ProtocolError
from proxy.base.clock import now_ms, now_ns
from proxy.base.close_reason import CloseReason, reason_of
from proxy.base.host_port import HostPort
from proxy.base.pause_reason import DRAIN, IN_FLIGHT, LONG_ANSWER, LONG_REQUEST, THROTTLE
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.net.broker_question import BrokerQuestion
from proxy.net.departure import Departure
from proxy.net.other_protocols import looks_like
from proxy.net.relay.announced_quotas import AnnouncedQuotas
from proxy.net.relay.broker_channel import BrokerChannel
from proxy.net.relay.client_channel import ClientChannel
from proxy.net.relay.long_frame_memory import LongFrameMemory
from proxy.net.sockets import min_rtt_ns, set_broker_options
from proxy.net.throttled_channels import ThrottledChannels
from proxy.net.turns import Reader, Turns, Worker
from proxy.session.reading import ReadStep
from proxy.session.requests.pending_requests import Stop
from proxy.session.session import Session
from proxy.telemetry.counters import Counters
from proxy.tls.transport import TlsTransport


class Owner(Protocol):
    """Owns the connections: the gateway."""

    counters: Counters
    timers: ThrottledChannels
    long_frame_memory: LongFrameMemory
    long_work: Turns[Worker]
    long_requests: Turns[Reader]

    @property
    def announced_quotas(self) -> AnnouncedQuotas | None:
        """Quotas that another process announces; None: no other process does."""

    @property
    def departed_ms(self) -> int:
        """How long a connection is served at most after its client has closed its side."""

    def client_departed(self, connection: Connection) -> bool:
        """The client has closed its side while requests or responses are pending; False: the connection has to end."""

    def client_socket_closed(self, connection: Connection) -> None:
        """The client's socket is closed; the connection continues without it."""

    def connection_closed(self, connection: Connection, reason: CloseReason, detail: str) -> None:
        """A connection has ended, with its reason."""

    def connection_gone(self, connection: Connection) -> None:
        """Both sockets of the connection are closed."""

    def administer(self, connection: Connection) -> None:
        """The connection has a request that Sluice answers; `Connection.answer` receives the response."""

    def watch_client(self, connection: Connection) -> None:
        """Watch the client's socket, since it is not read and a disconnect must be noticed at once."""


class Connection:
    """One client, one broker, one session between them.

    `settle` applies the session's decisions to pauses, timers and kept bytes; it may be called at any time.
    """

    __slots__ = (
        "_broker_left",
        "_loop",
        "_owner",
        "_question",
        "accepted_ms",
        "broker",
        "broker_peer",
        "client",
        "client_connects",
        "client_eof_ms",
        "client_sock",
        "client_tls",
        "closing",
        "departure",
        "draining",
        "ip_key",
        "lasts",
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
        self.client_connects = False  # its transport is being made, which has its socket from then on
        self.client_tls: TlsTransport | None = None  # after the handshake; the channel's transport when the broker is connected
        self._broker_left: tuple[Exception | None] | None = None  # why the broker closed while a long response is parsed
        self._question: BrokerQuestion | None = None  # the request of Sluice's own that has no response yet
        self.session = session
        self.peer = peer
        self.listener_name = listener_name
        self.upstream = upstream
        self.accepted_ms = now_ms()
        self.broker_peer: tuple[str, int] = ("", 0)
        self.ip_key: tuple[int, str] = (0, "")  # whether it counts among the connections of its address that outlive their client
        self.wake_at_ms = 0
        self.watched_fd = -1  # of the client's socket, while `DisconnectWatcher` watches it
        self.client_eof_ms = 0  # when everything the client sent had been read
        self.departure: Departure | None = None  # when the client closed its side, which the kernel may know before the end is read
        self.closing = False
        self.draining = False
        self.lasts = False
        session.fetch_admission.notify = self._ask_again_soon
        session.buffer.end = self.close_for_memory
        quotas = owner.announced_quotas
        self.client, self.broker = ClientChannel(self, session, quotas), BrokerChannel(self, session, quotas)
        self.client.peer, self.broker.peer = self.broker, self.client

    # --- bytes

    @property
    def long_frame_memory(self) -> LongFrameMemory:
        """The memory into which long frames are read."""
        return self._owner.long_frame_memory

    def settle(self, now: int) -> None:
        """Apply what the session decided: send, pause or resume reading, set the timer."""
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
        self._queue_work()
        end_ms = self._settle_end(now) if self.departure is not None or self.draining else 0
        if self.closing:
            return
        wake_at_ms = min(filter(None, (step.hold_until_ms, step.wake_at_ms, end_ms)), default=0)
        if wake_at_ms or self.wake_at_ms:
            self._owner.timers.schedule(self, wake_at_ms)
        if not session.reserve(self.client.login_bytes):
            self.close_for_memory()
            return
        session.settle_flag.needs_settle = bool(wake_at_ms or self.departure is not None or self.draining or session.is_unsettled)

    def _send(self, step: ReadStep) -> None:
        """Send the bytes of a step."""
        if step.to_client is not None:
            self.client.write(step.to_client)
        if step.to_broker is not None:
            self.broker.write(step.to_broker)

    def _read(self, step: ReadStep) -> None:
        """Pause or resume reading of both sides, as the last step says."""
        if step.hold_until_ms:
            self.broker.pause(THROTTLE)
            self.broker.shrink_receive_buffer()
        else:
            self.broker.resume(THROTTLE)
        if step.is_throttled:
            self.client.shrink_receive_buffer()
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
            if not self.session.throttle.session_is_short:
                self.client.restore_receive_buffer()
            self.broker.restore_receive_buffer()

    def _queue_work(self) -> None:
        """Queue the work of others for this connection: steps of a long frame, a request that Sluice answers."""
        if self._has_work():
            self._owner.long_work.add(self)
        if self._question is not None:
            self._question.settle(closing=False)
        administered = self.session.requests.pending.administered
        if administered is not None and not administered.begun:
            administered.begun = True
            self._owner.administer(self)

    def _has_work(self) -> bool:
        """Whether a long frame is being parsed in steps; the broker is not read while the frame is a response."""
        responses = self.session.responses
        if responses.work is not None:
            self.broker.pause(LONG_ANSWER)
            return True
        self.broker.resume(LONG_ANSWER)
        return self.session.requests.pending.work is not None

    def go_on(self) -> bool:
        """Parse one step of a long frame; return whether more steps remain."""
        if self.closing:
            return False
        requests, responses, now = self.session.requests, self.session.responses, now_ms()
        try:
            if responses.work is not None:
                passed = responses.go_on(now, now_ns())
                if passed is not None:
                    self.client.write(passed)
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
        """Handle the broker's response to a message of the client's login."""
        login = self.session.login
        login.news = False
        self.client.follow_login(under_way=login.under_way)
        if self.session.throttle.session_is_short:
            # shrinking a full buffer empties it without notice to its sender, and a renewal would arrive seconds late
            self.client.shrink_receive_buffer()

    def wake(self, now: int) -> None:
        """Handle the deadline of this connection."""
        if self._owner.announced_quotas is not None:
            self._owner.announced_quotas.apply()
        self.attempt(lambda: self.settle(now))

    def attempt(self, act: Callable[[], None]) -> None:
        """Run `act`: an exception ends this connection and no other."""
        try:
            act()
        except ProtocolError as error:
            self.fail_client(error, b"")
        except Exception as error:  # noqa: BLE001 - as in the channels
            self.crash(error)

    def settings_changed(self) -> None:
        """A reload changed the settings that all sessions share."""
        if not self.closing:
            now = now_ms()
            self.session.settings_changed(now)
            self.wake(now)

    def enforcement_changed(self) -> None:
        """Switches changed: forward what waited for quotas that are no longer enforced."""
        if not self.closing:
            now = now_ms()
            self.session.release_unenforced(now)
            self.wake(now)

    def repaced(self, replaced: Mapping[EnforcedGroup, EnforcedGroup]) -> None:
        """Groups got another pacing, each with the group that continues it. `check_again` follows when all connections know of it."""
        if not self.closing:
            self.session.repaced(replaced, now_ms())

    def check_again(self) -> None:
        """Check what waits here now."""
        if not self.closing:
            self.wake(now_ms())

    def _pause_client(self, reason: int) -> None:
        """Pause reading from the client. A client that has closed its side is read to the end, since a reset would discard the rest."""
        if self.departure is not None and reason != DRAIN:
            return
        self.client.pause(reason)
        if reason == THROTTLE and self.watched_fd < 0:  # when it disconnects, the throttle is left to its group, and it may return at once
            self._owner.watch_client(self)

    def _next_turn(self) -> None:
        """Continue with the frames that exceeded the limit of one callback."""
        if not self.closing and self.session.requests.pending.stop is Stop.TURN:
            self._resume_kept(now_ms())

    def _resume_kept(self, now: int) -> None:
        """Forward kept requests, as far as they may go."""
        try:
            onward = self.session.requests.resume(now, now_ns())
            if onward is not None:
                self.broker.write(onward)
            self.settle(now)
        except ProtocolError as error:
            self.fail_client(error, b"")
        except Exception as error:  # noqa: BLE001 - as in the channels
            self.crash(error)

    def _ask_again_soon(self) -> None:
        """A waiting fetch may have room: check it in the next turn, when the response that made room is recorded."""
        self.session.requests.pending.resume_at_ms = 0
        self._loop.call_soon(self._asked_again)

    def _asked_again(self) -> None:
        if not self.closing:
            self.wake(now_ms())

    def _settle_end(self, now: int) -> int:
        """End when no response is pending and the client has closed its side or Sluice drains. Returns when to check again, 0 for never."""
        end_ms = 0 if self.departure is None else self._settle_departure(self.departure, now)
        if not self.closing:
            reason = self.session.reading.end_reason(client_eof=bool(self.client_eof_ms), draining=self.draining)
            if reason is not None:
                self.close(reason)
        return end_ms

    def _settle_departure(self, departure: Departure, now: int) -> int:
        """Close the broker's side after the last request, and drop responses not read in time. Returns when to check again, 0 for never."""
        session, transport = self.session, self.client.transport
        if self.client_eof_ms and session.in_flight and session.reading.has_sent_all:
            self.broker.half_close()
        untaken_bytes = 0 if transport is None or self.client.lost else transport.get_write_buffer_size()
        end_ms = departure.since_ms + self._owner.departed_ms
        step = departure.next_step(untaken_bytes, now, end_ms, keeps_requests=session.requests.pending.keeps and transport is not None)
        if step.drops:
            self._drop(CloseReason.HALF_CLOSE_DEADLINE)
        elif step.aborts_client:
            self.client.abort()
        return step.wake_at_ms

    def _drop(self, reason: CloseReason) -> None:
        """End at once, and drop all pending bytes."""
        self._owner.counters.discarded_request_bytes += self.session.requests.pending.kept_bytes
        self.close(reason)
        self.abort()

    # --- beginning and end

    def client_made(self) -> None:
        """Start passing bytes: the client's transport is connected. The broker may have ended the connection meanwhile."""
        self.client_connects = False
        if self.closing:
            self.client.close(self._loop)
            return
        assert self.client.writer is not None
        assert self.broker.writer is not None
        self.client.write_peer = self.broker.writer.write
        self.broker.write_peer = self.client.writer.write
        if self.broker.lost:
            self.close(CloseReason.BROKER_CLOSED)

    def client_failed(self, reason: CloseReason, detail: str = "") -> None:
        """End the connection: no transport could be made for the client's socket."""
        self.client_connects = False
        if self.closing and self.client.transport is None:
            self.client_sock.close()
            self._gone()
        self.close(reason, detail)

    def has_lasted(self) -> None:
        """Do what short connections are spared: enable keep-alive for a broker that vanishes, and direct writes."""
        self.lasts = True
        broker = self.broker.fileno()
        set_broker_options(broker)
        self.broker.begin_direct_writes(broker)
        self.client.begin_direct_writes(self.client_sock.fileno())

    def client_eof(self) -> None:
        """The client has closed its side: forward complete frames one at a time, and deliver the responses."""
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
            self.session.settle_flag.needs_settle = True
            self.session.throttle.depart(now)
        self._resume_kept(now)
        if is_news and not self.closing and not self._owner.client_departed(self):
            self._drop(CloseReason.DEPARTED_LIMIT if self.session.requests.pending.keeps else CloseReason.CLIENT_CLOSED)

    def broker_stalled(self) -> None:
        """The broker does not read: pause the client."""
        self._owner.watch_client(self)

    # --- requests that Sluice answers

    async def ask(self, api: ApiVersion, frame: bytes) -> bytes:
        """Send a request of Sluice's own to the broker, on behalf of the client's request; return the whole response.

        Raises:
            ConnectionError: the connection has ended.
        """
        if self.closing:
            raise ConnectionAbortedError("the connection has ended")
        self._question = question = BrokerQuestion(self.session.ask(api, frame, now_ms(), now_ns()), self._loop)
        self.session.settle_flag.needs_settle = True
        self.broker.write(frame)
        try:
            return await question.response()
        finally:
            self._question = None

    def answer(self, frame: bytes) -> None:
        """Send the response to the request that Sluice answers."""
        if self.closing:
            return
        now = now_ms()
        self.session.answer_administered(frame, now, now_ns())
        self.wake(now)

    def client_left_while_paused(self) -> None:
        """The kernel reports the client's FIN while its side is paused: read what is queued, and forward it when it may go."""
        if self.closing or self.departure is not None:
            return
        self._depart(now_ms())
        if not self.closing:
            self.client.resume(THROTTLE | IN_FLIGHT)

    def _gone(self) -> None:
        has_client = not self.client.lost and (self.client_connects or self.client.transport is not None)
        if self.closing and not has_client and (self.broker.lost or self.broker.transport is None):
            self._owner.connection_gone(self)
            self.client.let_go()
            self.broker.let_go()

    def client_lost(self, error: Exception | None) -> None:
        """The client's socket is closed."""
        if self.closing:
            self._gone()
        elif self.client_eof_ms and self.session.requests.pending.keeps:
            self._go_on_without_client()
        else:
            self.close(CloseReason.CLIENT_CLOSED if error is None else CloseReason.CLIENT_RESET)

    def _go_on_without_client(self) -> None:
        """Continue without the client, which has closed both directions: forward its requests, and discard the responses."""
        self._owner.client_socket_closed(self)
        self.broker.drop_answers()
        self.client.resume_writing()
        self.wake(now_ms())

    def broker_gone(self, error: Exception | None) -> None:
        """The broker has closed the connection: deliver its responses, then close the client; no response is made up."""
        if self.closing:
            self._gone()
            return
        if self.session.responses.work is not None:  # its last bytes are parsed first
            self._broker_left = (error,)
            return
        held = self.session.responses.held.release(now_ms())
        if held is not None:
            self.client.write(held)
        if self.client_eof_ms and error is None:
            self.close(CloseReason.CLIENT_CLOSED)
        else:
            self.close(CloseReason.BROKER_CLOSED if error is None else CloseReason.BROKER_RESET)

    def drain(self) -> None:
        """Take no new requests, forward the waiting ones, release held responses; the connection ends when no response is pending."""
        if self.closing or self.draining:
            return
        now = now_ms()
        requests = self.session.requests
        self.draining = True
        self.session.settle_flag.needs_settle = True
        requests.ungated = True
        self.session.throttle.cancel()
        self._resume_kept(now)
        self.wake(now)

    def close_for_memory(self) -> None:
        """Close, because the process exceeds its buffer budget, and this connection holds most of the address that holds most."""
        if not self.closing:
            self.close(CloseReason.BUFFER_LIMIT, f"{self.session.buffer.reserved_bytes} bytes kept")

    def fail_client(self, error: ProtocolError, data: bytes) -> None:
        """Close after invalid or refused bytes of the client."""
        reason = looks_like(data) if error.reason == "frame_size" and not self.session.requests.frames else None
        self.close(reason or reason_of(error, otherwise=CloseReason.BAD_REQUEST), str(error))
        error.forget_frames()

    def fail_broker(self, error: ProtocolError) -> None:
        """Close after invalid bytes of the broker, or bytes that must not be sent."""
        if error.reason == "unmapped":
            self._owner.counters.unmapped += 1
        held = self.session.responses.held.release(now_ms())  # valid responses before the invalid one
        if held is not None:
            self.client.write(held)
        self.close(reason_of(error, otherwise=CloseReason.BAD_RESPONSE), str(error))
        error.forget_frames()

    def crash(self, error: Exception) -> None:
        """Close this connection after an unexpected exception; the process continues."""
        self._owner.counters.internal_errors += 1
        self._loop.call_exception_handler({"message": "a connection ended by an internal error", "exception": error, "counted": True})
        self.close(CloseReason.INTERNAL_ERROR, f"{type(error).__name__}: {error}")

    def close(self, reason: CloseReason, detail: str = "") -> None:
        """Close both sides; bytes already written are delivered within a time limit."""
        if self.closing:
            return
        self.closing = True
        if self._question is not None:
            self._question.settle(closing=True)
        self._owner.timers.schedule(self, 0)
        self._leave_session()
        self._close_client()
        # a broker that does not read must not delay the end of a connection without a client
        deserted = reason is CloseReason.CLIENT_GONE_WHILE_PAUSED and self.broker.write_full_since_ms
        self._close_broker(linger=reason not in _BROKER_AT_FAULT and not deserted)
        self._owner.connection_closed(self, reason, detail)
        self.session.let_go()
        self._gone()

    def _leave_session(self) -> None:
        """Record forwarded requests, then drop the session, also when an operator's callback raises."""
        try:
            if self.session.in_flight or self.session.throttle.is_throttled:
                self.session.leave(now_ms())
        except Exception as error:  # noqa: BLE001 - a bug of ours, or of a callback, keeps no connection from ending
            self._owner.counters.internal_errors += 1
            context = {"message": "an internal error occurred while a connection was closed", "exception": error, "counted": True}
            self._loop.call_exception_handler(context)
        self.session.close()

    def abort(self) -> None:
        """Close both sockets now, dropping unsent bytes."""
        self.client.abort()
        self.broker.abort()

    def abort_client(self) -> None:
        """Close the client's socket now, dropping unsent bytes."""
        self.client.abort()

    def _close_client(self) -> None:
        if self.client.transport is not None:
            if not self.client.lost:
                self.client.close(self._loop)
        elif not self.client_connects:  # otherwise `client_made` closes it
            (self.client_tls or self.client_sock).close()

    def _close_broker(self, *, linger: bool) -> None:
        broker = self.broker
        if broker.transport is None or broker.lost:
            return
        if not linger:
            broker.abort()
        elif not self.session.in_flight and not self.session.responses.in_frame:
            broker.close(self._loop)  # no response can arrive and stay unread
        else:
            # Closing with unread responses would reset the connection and could discard requests that were just sent.
            broker.half_close()
            broker.read_to_the_end(self._loop)


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
