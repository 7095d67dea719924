"""Socket options of both sides, and the kernel's information on a connection that is not read."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import sys
import termios
from struct import Struct, error

KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_COUNT = 30, 10, 3
USER_TIMEOUT_MS = 120_000  # shorter ones abort a live broker whose window is closed
SMALL_RECEIVE_BYTES = 64 * 1024  # less gives a window below one segment of the loopback interface: its sender then waits 200 ms each time
USUAL_RECEIVE_BYTES = 208 * 1024  # the kernel's usual ceiling for a size set by hand
SO_BUF_LOCK, UNLOCKED = 72, 0  # Linux 5.15; not in the socket module
BACKLOG = 1_024
UINT32 = Struct("=I")
TCP_INFO_BYTES, UNACKED_AT, LAST_ACK_RECEIVED_AT, MIN_RTT_AT = 152, 24, 56, 148  # struct tcp_info, Linux 4.6; the last one in microseconds


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket on an address or a host name's first address.

    Raises:
        OSError: it cannot be bound.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host in ("::", "") else 1)
        # accepted sockets inherit these; `ConnectionDeadlines` limits slow clients
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def set_broker_options(fd: int) -> None:
    """Notice a broker that vanished: keep-alive for the idle, a user timeout for the unacknowledged."""
    _set_options(
        fd,
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_COUNT),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS),
    )


def shrink_receive_buffer(fd: int) -> None:
    """Make the kernel's receive buffer small, so that unread bytes stay with the sender."""
    _set_options(fd, (socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_RECEIVE_BYTES))


def restore_receive_buffer(fd: int) -> None:
    """Restore the usual receive buffer.

    Setting a larger buffer is not enough: the window stays clamped, and the kernel no longer sizes a buffer that was set
    explicitly. So the clamp is lifted, then automatic sizing is restored (where the kernel supports it).
    """
    _set_options(
        fd,
        (socket.SOL_SOCKET, socket.SO_RCVBUF, USUAL_RECEIVE_BYTES),
        (socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, USUAL_RECEIVE_BYTES),
        (socket.SOL_SOCKET, SO_BUF_LOCK, UNLOCKED),
    )


def _set_options(fd: int, *options: tuple[int, int, int]) -> None:
    """Set options of a transport's descriptor, without the socket object that uvloop would create. A closed one is ignored."""
    if fd < 0:
        return
    with contextlib.suppress(OSError):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fd)  # the family does not matter for setting options
        try:
            for level, option, value in options:
                sock.setsockopt(level, option, value)
        finally:
            sock.detach()


def silent_ms(fd: int) -> int:
    """Milliseconds since the other side's kernel last acknowledged anything, whatever its process does; 0 when unknown."""
    return _tcp_info(fd, LAST_ACK_RECEIVED_AT)


def min_rtt_ns(fd: int) -> int:
    """The smallest recent round-trip time that the kernel measured on a connection; 0 when unknown."""
    return _tcp_info(fd, MIN_RTT_AT) * 1_000


def queued_connections(listening: socket.socket) -> int:
    """Number of connections that wait to be accepted; 0 when unknown."""
    return _tcp_info(listening.fileno(), UNACKED_AT)  # the kernel's field has this meaning for a listening socket


def _tcp_info(fd: int, at: int) -> int:
    if fd < 0:
        return 0
    try:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fd)
        try:
            return UINT32.unpack_from(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES), at)[0]  # type: ignore[no-any-return]
        finally:
            sock.detach()
    except (OSError, error):
        return 0


def unsent_bytes(fd: int) -> int:
    """Bytes that the kernel has not sent, or the other side has not acknowledged; 0 when unknown."""
    try:
        return int.from_bytes(fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except (OSError, ValueError):
        return 0
