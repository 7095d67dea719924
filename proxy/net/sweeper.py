"""What only time tells: slow writers, slow readers, idle connections, clients that left while they were not read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from proxy.net.connection import HALF_CLOSE_MS, Connection
from proxy.net.sockets import TCP_CLOSE, TCP_CLOSE_WAIT, tcp_state, unsent_bytes
from proxy.session.close_reason import CloseReason

LIVELY_MS = 1_000  # who sent something since, and owes nothing, has met every deadline
SLICES = 5  # the kernel is asked about each paused socket once in so many sweeps


@dataclass(slots=True)
class Deadlines:
    """Milliseconds; bytes per second. All configurable, see `[limits]`."""

    first_frame_ms: int = 10_000
    frame_grace_ms: int = 10_000
    frame_bytes_per_second_min: int = 4_096
    undrained_ms: int = 60_000
    idle_ms: int = 600_000


class Progress:
    """What the sweeper remembers of one connection between two sweeps."""

    __slots__ = ("bytes_in", "frames", "since_ms")

    def __init__(self, frames: int, bytes_in: int, since_ms: int) -> None:
        self.frames = frames
        self.bytes_in = bytes_in
        self.since_ms = since_ms


class Sweeper:
    """Looks at every connection once a second."""

    def __init__(self, connections: Callable[[], Iterable[Connection]], deadlines: Deadlines) -> None:
        self._connections = connections
        self.deadlines = deadlines
        self._progress: dict[Connection, Progress] = {}
        self._sweep = 0

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""
        self._progress.pop(connection, None)

    def sweep(self, now_ms: int) -> None:
        """Close what exceeded a deadline, free what left unseen."""
        self._sweep += 1
        for at, connection in enumerate(list(self._connections())):
            client = connection.client
            if connection.closing or client.transport is None:
                continue
            if not connection.guarded:
                connection.guard_broker()
            lively = now_ms - client.read_ms < LIVELY_MS and not client.pauses and not client.write_full_since_ms
            if lively and not connection.session.requests.in_frame and not connection.client_eof_ms:
                continue
            try:
                self._look_at(connection, now_ms, ask_kernel=(at + self._sweep) % SLICES == 0)
            except Exception as error:  # noqa: BLE001 - a bug of ours ends this connection, the others are looked at
                connection.crash(error)

    def _look_at(self, connection: Connection, now_ms: int, *, ask_kernel: bool) -> None:
        reason = self._verdict(connection, now_ms)
        if reason is not None:
            connection.close(reason)
        elif connection.client.pauses and ask_kernel:
            self._look_at_kernel(connection)

    def _verdict(self, connection: Connection, now_ms: int) -> CloseReason | None:
        limits = self.deadlines
        requests = connection.session.requests
        if connection.client_eof_ms:
            return CloseReason.HALF_CLOSE_DEADLINE if now_ms - connection.client_eof_ms > HALF_CLOSE_MS else None
        full_since_ms = connection.client.write_full_since_ms
        if full_since_ms:
            return None if self._drains(connection, now_ms) else CloseReason.SLOW_READER
        if (
            not requests.frames
            and not requests.kept_bytes
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
        """A frame that has begun must come along; time in which we did not read does not count."""
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

    def _drains(self, connection: Connection, now_ms: int) -> bool:
        """Whether a slow reader took anything of late: since its buffer was found full, and then since it last did."""
        transport = connection.client.transport
        assert transport is not None
        waiting = transport.get_write_buffer_size() + unsent_bytes(
            connection.client_sock
        )  # ours moves only when much of the kernel's has gone
        full_since_ms = connection.client.write_full_since_ms
        progress = self._progress.get(connection)
        if progress is None or progress.frames != -1:
            progress = self._progress[connection] = Progress(-1, waiting, full_since_ms)
        if waiting != progress.bytes_in:
            progress.bytes_in, progress.since_ms = waiting, now_ms
        return now_ms - max(progress.since_ms, full_since_ms) <= self.deadlines.undrained_ms

    def _look_at_kernel(self, connection: Connection) -> None:
        """A paused socket does not tell that its client left; the kernel does."""
        state = tcp_state(connection.client_sock)
        if state == TCP_CLOSE:
            connection.close(CloseReason.CLIENT_GONE_WHILE_PAUSED)
        elif state == TCP_CLOSE_WAIT:
            connection.attempt(connection.client_left_while_paused)
