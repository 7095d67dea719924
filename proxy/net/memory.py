"""The byte budget of the process: who pauses, and when nobody new is accepted, once all buffers together grow too large.

Every connection is bounded by itself (`flow.WRITE_HIGH_BYTES` and the limits of the sessions); this bounds their sum. It is looked at
once a second, so a request pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from proxy import log
from proxy.counters import Counters
from proxy.net.connection import Connection
from proxy.net.flow import MEMORY, WRITE_LOW_BYTES, Channel

PAUSE_SHARE, RESUME_SHARE = 0.90, 0.80  # the sides with the largest backlogs are not read above the one, until below the other
REFUSE_SHARE, ACCEPT_SHARE = 0.95, 0.90  # the same for accepting

NO_PRESSURE, PAUSING, REFUSING = 0, 1, 2

_Backlog = list[tuple[int, Channel]]


class BufferBudget:
    """Adds up what all connections hold, and acts on the sum.

    A side is paused for what the other side has not taken, never for a frame that has to be whole before it may leave: to stop in the
    middle of one would keep its bytes for ever. A side whose backlog is gone is read again, whatever the sum is.
    """

    def __init__(self, counters: Counters, bytes_max: int) -> None:
        self._counters = counters
        self._paused: dict[Channel, None] = {}
        self.bytes_max = bytes_max
        self.accepting = True

    @property
    def bytes_max(self) -> int:
        """The budget; a reload may change it."""
        return self._counters.buffer_bytes_max

    @bytes_max.setter
    def bytes_max(self, value: int) -> None:
        self._counters.buffer_bytes_max = value

    def look(self, connections: Iterable[Connection], closing: Iterable[Connection] = ()) -> None:
        """Measure and act. Those that are `closing` only count: what is left of them is being sent."""
        backlog: _Backlog = []
        held_bytes = sum(_unsent(connection.client) + _unsent(connection.broker) for connection in closing)
        for connection in connections:
            held_bytes += _measure(connection, backlog)
        self._counters.buffered_bytes = held_bytes
        self._keep_paused(backlog, held_bytes)
        if held_bytes >= PAUSE_SHARE * self.bytes_max:
            self._pause_largest(backlog, held_bytes - RESUME_SHARE * self.bytes_max)
        if self.accepting:
            self.accepting = held_bytes < REFUSE_SHARE * self.bytes_max
        else:
            self.accepting = held_bytes < ACCEPT_SHARE * self.bytes_max
        self._tell(held_bytes)

    def _keep_paused(self, backlog: _Backlog, held_bytes: int) -> None:
        """Read again from who has nothing to wait for any more; from everyone when the sum is small."""
        waiting = {channel for _, channel in backlog} if held_bytes >= RESUME_SHARE * self.bytes_max else frozenset()
        for channel in [channel for channel in self._paused if channel not in waiting]:
            del self._paused[channel]
            channel.resume(MEMORY)

    def _pause_largest(self, backlog: _Backlog, excess_bytes: float) -> None:
        """Stop reading where most waits, as many sides as hold the excess together."""
        for unsent_bytes, channel in sorted(backlog, key=_size, reverse=True):
            if excess_bytes <= 0:
                return
            excess_bytes -= unsent_bytes
            if channel not in self._paused:
                self._paused[channel] = None
                self._counters.memory_pauses += 1
                channel.pause(MEMORY)

    def _tell(self, held_bytes: int) -> None:
        before = self._counters.memory_pressure
        eased = held_bytes < (RESUME_SHARE if before else PAUSE_SHARE) * self.bytes_max
        now = REFUSING if not self.accepting else NO_PRESSURE if eased else PAUSING
        if now == before:
            return
        self._counters.memory_pressure = now
        say = log.warning if now > before else log.info
        say("memory_pressure", level=now, buffered_bytes=held_bytes, bytes_max=self.bytes_max, paused=len(self._paused))


def _measure(connection: Connection, backlog: _Backlog) -> int:
    """Return the bytes that a connection holds; add its sides with a backlog worth a pause."""
    session = connection.session
    to_client, to_broker = max(_unsent(connection.client), connection.broker.given_away_bytes), _unsent(connection.broker)
    if not connection.closing:
        if to_client >= WRITE_LOW_BYTES:
            backlog.append((to_client, connection.broker))
        if to_broker >= WRITE_LOW_BYTES:
            backlog.append((to_broker, connection.client))
    return to_client + to_broker + session.requests.kept_bytes + session.responses.held_bytes


def _unsent(channel: Channel) -> int:
    transport = channel.transport
    return 0 if transport is None or channel.lost else transport.get_write_buffer_size()


def _size(entry: tuple[int, Channel]) -> int:
    return entry[0]
