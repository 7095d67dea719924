"""Deadlines of connections: slow writers, slow readers, idle connections, and clients that disconnect while they are not read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from proxy.base.clock import now_ms as clock_ms
from proxy.base.close_reason import CloseReason
from proxy.net.connection import Connection
from proxy.net.relay.flow import Channel
from proxy.net.sockets import silent_ms, unsent_bytes

ACTIVE_MS = 1_000  # a client that has sent something since, and has no pending frame, met every deadline
COUNTS_MS = 10_000  # a client that does not take responses, behind which a fetch counts for its group: others wait for that
HUNG_MS = 5_000  # a broker that accepted nothing for this time will not accept what a departed client left
BROKER_SILENT_MS = 50_000  # its host acknowledged nothing for this time; an idle one is probed after 30 s, then every 10
ASK_KERNEL_AFTER_MS = 40_000  # of no answer from the broker
SLICES = 5  # the kernel is asked about each such broker once in this number of sweeps


@dataclass(slots=True)
class Deadlines:
    """Time limits in ms, and rates in bytes per second, as configured in `[limits]`."""

    tls_handshake_ms: int = 10_000
    first_frame_ms: int = 10_000
    login_ms: int = 30_000
    frame_grace_ms: int = 10_000
    frame_bytes_per_second_min: int = 4_096
    undrained_ms: int = 60_000
    idle_ms: int = 600_000
    departed_ms: int = 60_000


class Progress:
    """The state of one connection between two sweeps."""

    __slots__ = ("bytes_in", "frames", "since_ms")

    def __init__(self, frames: int, bytes_in: int, since_ms: int) -> None:
        self.frames = frames
        self.bytes_in = bytes_in
        self.since_ms = since_ms


class Backlog:
    """The unsent bytes of one side, and since when their number has not changed."""

    __slots__ = ("since_ms", "waiting_bytes")

    def __init__(self, waiting_bytes: int, since_ms: int) -> None:
        self.waiting_bytes = waiting_bytes
        self.since_ms = since_ms


class ConnectionDeadlines:
    """Checks every connection once a second; a disconnect of a client that is not read is reported at once."""

    def __init__(self, connections: Callable[[], Iterable[Connection]], deadlines: Deadlines, watch: Callable[[Connection], None]) -> None:
        self._connections = connections
        self._watch = watch
        self.deadlines = deadlines
        self._progress: dict[Connection, Progress] = {}
        self._backlogs: dict[Channel, Backlog] = {}
        self._sweep = 0

    def forget(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._progress.pop(connection, None)
        self._backlogs.pop(connection.client, None)
        self._backlogs.pop(connection.broker, None)

    def client_left(self, connection: Connection, was_reset: bool) -> None:
        """The kernel reports a disconnect; for a client that is read, its channel does."""
        if connection.closing or not connection.client.pauses:
            return
        if was_reset:
            connection.close(CloseReason.CLIENT_GONE_WHILE_PAUSED)
            return
        connection.attempt(connection.client_left_while_paused)
        if not connection.closing and self._is_left_to_a_hung_broker(connection, clock_ms()):
            connection.close(CloseReason.CLIENT_GONE_WHILE_PAUSED)

    def sweep(self, now_ms: int) -> None:
        """Close connections that exceeded a deadline, and watch those whose disconnect would not be seen."""
        self._sweep += 1
        for at, connection in enumerate(list(self._connections())):
            client = connection.client
            if connection.closing or client.transport is None:
                continue
            if not connection.lasts:
                connection.has_lasted()
            timed = connection.session.fetch_admission.timed
            if timed is not None:
                timed.lapse(now_ms)
            if connection.session.login.pending and now_ms - connection.accepted_ms > self.deadlines.login_ms:
                connection.close(CloseReason.LOGIN_DEADLINE)
                continue
            lively = now_ms - client.read_ms < ACTIVE_MS and not client.pauses and not client.write_full_since_ms
            if lively and not connection.session.requests.in_frame and connection.departure is None:
                continue
            try:
                self._check(connection, now_ms, ask_kernel=(at + self._sweep) % SLICES == 0)
            except Exception as error:  # noqa: BLE001 - a bug of ours ends this connection, the others are looked at
                connection.crash(error)

    def _check(self, connection: Connection, now_ms: int, *, ask_kernel: bool) -> None:
        reason = self._verdict(connection, now_ms)
        if reason is None and ask_kernel and _broker_is_silent(connection, now_ms):
            reason = CloseReason.BROKER_SILENT
        if reason is not None:
            connection.close(reason)
        elif connection.client.pauses:
            self._watch(connection)

    def _verdict(self, connection: Connection, now_ms: int) -> CloseReason | None:
        limits = self.deadlines
        requests = connection.session.requests
        if self._is_left_to_a_hung_broker(connection, now_ms):
            return CloseReason.CLIENT_GONE_WHILE_PAUSED
        if connection.departure is not None:
            return None  # has its own deadline
        if connection.client.write_full_since_ms:
            untaken_ms = self._untaken_ms(connection.client, now_ms)
            full_ms = now_ms - connection.client.write_full_since_ms
            is_waited_for = full_ms > COUNTS_MS and connection.session.fetch_admission.counts_for_others
            return CloseReason.SLOW_READER if untaken_ms > limits.undrained_ms or is_waited_for else None
        if (
            not requests.frames
            and not requests.pending.kept_bytes
            and not connection.client.pauses
            and now_ms - connection.accepted_ms > limits.first_frame_ms
        ):
            return CloseReason.FIRST_FRAME_DEADLINE
        if requests.in_frame and not connection.client.pauses:
            return self._slow_frame(connection, now_ms)
        self._progress.pop(connection, None)
        last_ms = max(connection.client.read_ms, connection.broker.read_ms, connection.accepted_ms)
        if now_ms - last_ms > limits.idle_ms and not connection.session.in_flight:
            return CloseReason.IDLE
        return None

    def _slow_frame(self, connection: Connection, now_ms: int) -> CloseReason | None:
        """Return a close reason for a frame that arrives too slowly; time in which reading was paused does not count."""
        limits = self.deadlines
        bytes_in, frames = connection.client.bytes_in, connection.session.requests.frames
        progress = self._progress.get(connection)
        if progress is None or progress.frames != frames:
            self._progress[connection] = Progress(frames, bytes_in, now_ms)
            return None
        elapsed_ms = now_ms - progress.since_ms
        if elapsed_ms <= limits.frame_grace_ms:
            return None
        if (bytes_in - progress.bytes_in) * 1000 >= limits.frame_bytes_per_second_min * elapsed_ms:
            return None
        return CloseReason.SLOW_FRAME

    def _is_left_to_a_hung_broker(self, connection: Connection, now_ms: int) -> bool:
        """Whether the client has left bytes that its broker does not accept; a broker that accepts some gets them all."""
        if not connection.broker.write_full_since_ms:
            return False
        return self._untaken_ms(connection.broker, now_ms) > HUNG_MS and connection.departure is not None

    def _untaken_ms(self, channel: Channel, now_ms: int) -> int:
        """Return for how long a side whose buffer is full has accepted nothing, since it was first observed."""
        assert channel.transport is not None
        waiting_bytes = channel.transport.get_write_buffer_size() + unsent_bytes(channel.fileno())  # the buffer shrinks in large steps only
        full_since_ms = channel.write_full_since_ms
        taking = self._backlogs.get(channel)
        if taking is None:
            taking = self._backlogs[channel] = Backlog(waiting_bytes, full_since_ms)
        elif taking.waiting_bytes != waiting_bytes:
            taking.waiting_bytes, taking.since_ms = waiting_bytes, now_ms
        return now_ms - max(taking.since_ms, full_since_ms)


def _broker_is_silent(connection: Connection, now_ms: int) -> bool:
    """Whether the broker's host is unreachable; the host of a broker that merely hangs still acknowledges."""
    if now_ms - max(connection.broker.read_ms, connection.accepted_ms) <= ASK_KERNEL_AFTER_MS:
        return False
    return silent_ms(connection.broker.fileno()) > BROKER_SILENT_MS
