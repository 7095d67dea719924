"""The byte budget of the process: pauses connections, closes some, and stops accepting once all buffers together grow too large.

Every connection has limits of its own (`Channel.write_limits_bytes` and those of the session); the budget limits their sum. Bytes kept by
sessions are counted at once (`proxy.session.buffers`). Unsent bytes of transports are counted once a second, at no cost per request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from proxy.base.close_reason import CloseReason
from proxy.base.pause_reason import MEMORY
from proxy.net.connection import Connection
from proxy.net.relay.flow import TO_CLIENT_LIMITS_BYTES, Channel
from proxy.session.buffers import BufferAccount
from proxy.telemetry import log
from proxy.telemetry.counters import Counters
from proxy.tls.transport import TlsTransport

PAUSE_SHARE, RESUME_SHARE = 0.90, 0.80  # the sides with the largest backlogs are paused above the first and resumed below the second
REFUSE_SHARE, ACCEPT_SHARE = 0.95, 0.90  # the same for accepting connections

BACKLOG_BYTES = TO_CLIENT_LIMITS_BYTES[1]
"""Sides with fewer unsent bytes are not paused."""
UNTAKEN_MS = 5_000
"""While the sum is too large, a client that has not read for this time is closed."""

NO_PRESSURE, PAUSING, REFUSING = 0, 1, 2

_Backlog = list[tuple[int, Channel, Connection]]
"""Bytes that are unsent, the side that they were read from, and its connection."""


class BufferBudget:
    """Sums the bytes held by all connections, and acts on the sum.

    A side is paused while the other side does not read its bytes. It is not paused for a frame that has to be complete before it is sent,
    since the frame would then stay incomplete. A side whose backlog is gone is read again, whatever the sum is.
    """

    def __init__(self, counters: Counters, bytes_max: int, account: BufferAccount) -> None:
        self._counters = counters
        self._account = account
        self._paused: dict[Channel, int] = {}  # when the pause began (ms)
        self.bytes_max = bytes_max
        self.accepting = True

    @property
    def bytes_max(self) -> int:
        """The budget; a reload may change it."""
        return self._counters.buffer_bytes_max

    @bytes_max.setter
    def bytes_max(self, value: int) -> None:
        self._counters.buffer_bytes_max = self._account.bytes_max = value

    def check(self, connections: Iterable[Connection], closing: Iterable[Connection], now_ms: int) -> None:
        """Measure and act. Connections that are `closing` are only counted, since their remaining bytes are being sent."""
        backlog: _Backlog = []
        unsent_bytes = sum(_unsent(connection.client) + _unsent(connection.broker) for connection in closing)
        for connection in connections:
            if not (_is_empty(connection.client) and _is_empty(connection.broker)):
                unsent_bytes += _measure(connection, backlog)
        self._account.unsent_bytes = unsent_bytes
        held_bytes = unsent_bytes + self._account.reserved_bytes + self._counters.live_page_bytes
        self._counters.buffered_bytes = held_bytes
        self._keep_paused(backlog, held_bytes)
        excess_bytes = held_bytes - RESUME_SHARE * self.bytes_max
        if self._paused and excess_bytes >= 0:
            self._end_untaken(backlog, excess_bytes, now_ms)
        if held_bytes >= PAUSE_SHARE * self.bytes_max:
            self._pause_largest(backlog, excess_bytes, now_ms)
        if self.accepting:
            self.accepting = held_bytes < REFUSE_SHARE * self.bytes_max
        else:
            self.accepting = held_bytes < ACCEPT_SHARE * self.bytes_max
        self._report_pressure(held_bytes)

    def _keep_paused(self, backlog: _Backlog, held_bytes: int) -> None:
        """Resume the sides without a backlog, and all sides when the sum is small."""
        waiting = {channel for _, channel, _ in backlog} if held_bytes >= RESUME_SHARE * self.bytes_max else frozenset()
        for channel in [channel for channel in self._paused if channel not in waiting]:
            del self._paused[channel]
            channel.resume(MEMORY)

    def _end_untaken(self, backlog: _Backlog, excess_bytes: float, now_ms: int) -> None:
        """Close clients that were paused for long and have not read their bytes, at the addresses with the largest backlogs first."""
        for waiting_bytes, channel, connection in _largest_first(backlog):
            if channel is not connection.broker or now_ms - self._paused.get(channel, now_ms) < UNTAKEN_MS:
                continue
            if excess_bytes <= 0:
                return
            excess_bytes -= waiting_bytes
            self._paused.pop(channel, None)
            connection.close(CloseReason.SLOW_READER, f"{waiting_bytes} bytes not read within {UNTAKEN_MS} ms under memory pressure")
            connection.abort_client()

    def _pause_largest(self, backlog: _Backlog, excess_bytes: float, now_ms: int) -> None:
        """Pause the sides with the largest backlogs, as many as hold the excess together."""
        for unsent_bytes, channel, _ in _largest_first(backlog):
            if excess_bytes <= 0:
                return
            excess_bytes -= unsent_bytes
            if channel not in self._paused:
                self._paused[channel] = now_ms
                self._counters.memory_pauses += 1
                channel.pause(MEMORY)

    def _report_pressure(self, held_bytes: int) -> None:
        before = self._counters.memory_pressure
        eased = held_bytes < (RESUME_SHARE if before else PAUSE_SHARE) * self.bytes_max
        now = REFUSING if not self.accepting else NO_PRESSURE if eased else PAUSING
        if now == before:
            return
        self._counters.memory_pressure = now
        log_change = log.warning if now > before else log.info
        log_change("memory_pressure", pressure=now, buffered_bytes=held_bytes, bytes_max=self.bytes_max, paused=len(self._paused))


def _is_empty(channel: Channel) -> bool:
    """Whether a transport has no unsent bytes, as nearly all have; False when that has to be measured."""
    transport = channel.transport
    if transport is None or channel.lost or isinstance(transport, TlsTransport):
        return False
    return not transport.get_write_buffer_size()


def _measure(connection: Connection, backlog: _Backlog) -> int:
    """Return the bytes that the transports of a connection hold, and add its sides with a large backlog to `backlog`."""
    to_client = max(_unsent(connection.client), connection.broker.released_bytes)
    to_broker = max(_unsent(connection.broker), connection.client.released_bytes)
    if not connection.closing:
        if to_client >= BACKLOG_BYTES:
            backlog.append((to_client, connection.broker, connection))
        if to_broker >= BACKLOG_BYTES:
            backlog.append((to_broker, connection.client, connection))
    return to_client + to_broker + _unread(connection.client) + _unread(connection.broker)


def _unsent(channel: Channel) -> int:
    transport = channel.transport
    return 0 if transport is None or channel.lost else transport.get_write_buffer_size()


def _unread(channel: Channel) -> int:
    """Bytes that were read from a socket and are not decrypted."""
    return channel.transport.unread_bytes if isinstance(channel.transport, TlsTransport) else 0


def _largest_first(backlog: _Backlog) -> _Backlog:
    """Return the largest backlogs first, ordered by the sum of their address."""
    of_address: defaultdict[str, int] = defaultdict(int)
    for unsent_bytes, _, connection in backlog:
        of_address[connection.session.buffer.address] += unsent_bytes
    return sorted(backlog, key=lambda entry: (of_address[entry[2].session.buffer.address], entry[0]), reverse=True)
