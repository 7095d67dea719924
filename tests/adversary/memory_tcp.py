"""TCP in memory: two ends with finite buffers, FIN, RST, half-close, and the events that a kernel reports for a socket that is not read.

Bytes arrive in the turn after they were sent. The model has no segments, no window scaling and no timers. It models which side holds how
many bytes, and in which order the proxy learns of bytes, FIN and RST.
"""

import asyncio
import errno
import fcntl
import select
import socket
import termios
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from proxy.net import disconnect_watcher, sockets
from proxy.net.accept import client_listeners
from tests.adversary.virtual_loop import VirtualLoop

RECEIVE_BYTES = 1 << 20
SEND_BYTES = 1 << 20
READ_BYTES = 256 * 1024
FIRST_DESCRIPTOR = 1 << 20

Address = tuple[str, int]


class Kernel:
    """All sockets by descriptor, and all listeners by address."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.sockets: dict[int, MemorySocket] = {}
        self.listeners: dict[Address, Callable[[MemorySocket], None]] = {}
        self._descriptors = FIRST_DESCRIPTOR

    def descriptor(self) -> int:
        """Return a descriptor that no other socket has."""
        self._descriptors += 1
        return self._descriptors

    def pair(self, from_address: Address, to_address: Address) -> "tuple[MemorySocket, MemorySocket]":
        """Return both ends of a new connection: the caller's, and the accepted one."""
        ends = MemorySocket(self, from_address, to_address), MemorySocket(self, to_address, from_address)
        ends[0].peer, ends[1].peer = ends[1], ends[0]
        return ends

    def connect(self, from_address: Address, to_address: Address) -> "MemorySocket":
        """Connect to the listener at this address; return the caller's end.

        Raises:
            ConnectionRefusedError: there is no listener.
        """
        listener = self.listeners.get(to_address)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
        mine, theirs = self.pair(from_address, to_address)
        listener(theirs)
        return mine


class MemorySocket:
    """One end of a connection, as its kernel keeps it.

    Attributes:
        inbox: unread bytes from the peer; those beyond `receive_bytes` are in the peer's send buffer.
        fin_in: the peer has sent a FIN, which follows the bytes of `inbox`; fin_out: this end has sent one.
        reset: the connection is reset; the bytes of `inbox` can still be read.
        closed: the program of this end has closed the socket.
        on_change: called a turn after bytes, FIN or RST came, or after there is room again.
    """

    def __init__(self, kernel: Kernel, name: Address, peer_name: Address) -> None:
        self.kernel = kernel
        self.fd = kernel.descriptor()
        kernel.sockets[self.fd] = self
        self.name = name
        self.peer_name = peer_name
        self.peer: MemorySocket = self
        self.inbox: deque[memoryview] = deque()
        self.inbox_bytes = 0
        self.receive_bytes = RECEIVE_BYTES
        self.fin_in = self.fin_out = self.reset = self.closed = False
        self.on_change: Callable[[], None] | None = None
        self.epoll: MemoryEpoll | None = None
        self._reported = False

    # --- what the program sees

    def room(self) -> int:
        """How many bytes `send` accepts."""
        return max(0, self.peer.receive_bytes + SEND_BYTES - self.peer.inbox_bytes)

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Accept as many bytes as there is room for.

        Raises:
            ConnectionResetError: the connection is reset, or this end has sent its FIN.
        """
        if self.reset or self.fin_out or self.closed:
            raise ConnectionResetError(errno.ECONNRESET, "reset")
        if self.peer.closed:  # the peer has closed, and its kernel reports it
            self.break_()
            return len(data)
        taken = min(len(data), self.room())
        if taken:
            is_fixed = isinstance(data, bytes) or (isinstance(data, memoryview) and data.readonly)
            self.peer.inbox.append(memoryview(data)[:taken] if is_fixed else memoryview(bytes(data[:taken])))
            self.peer.inbox_bytes += taken
            self.peer.tell()
        return taken

    def receive(self, bytes_max: int) -> bytes | None:
        """Return bytes, b"" at the FIN, or None when nothing has arrived yet.

        Raises:
            ConnectionResetError: the connection is reset, and all bytes are read.
        """
        if not self.inbox:
            if self.reset:
                raise ConnectionResetError(errno.ECONNRESET, "reset")
            return b"" if self.fin_in else None
        pieces, left = [], bytes_max
        while self.inbox and left:
            piece = self.inbox[0]
            if len(piece) <= left:
                self.inbox.popleft()
            else:
                self.inbox[0], piece = piece[left:], piece[:left]
            pieces.append(piece)
            left -= len(piece)
        was_full = self.peer.room() == 0
        self.inbox_bytes -= bytes_max - left
        if was_full:
            self.peer.tell()
        return b"".join(pieces)

    def shut_down(self) -> None:
        """Send a FIN."""
        if not self.fin_out and not self.reset:
            self.fin_out = True
            self.peer.fin_in = True
            self.peer.tell()

    def close(self) -> None:
        """Close the socket: send a FIN, or an RST when bytes are unread."""
        if self.closed:
            return
        if self.inbox and not self.reset:
            self.abort()
            return
        self.shut_down()
        self.closed = True
        self._forget()

    def abort(self) -> None:
        """Send an RST, as a program with a linger time of 0 does; bytes in the send buffer are dropped."""
        if self.closed:
            return
        self.closed = True
        peer = self.peer
        while peer.inbox_bytes > peer.receive_bytes and peer.inbox:
            peer.inbox_bytes -= len(peer.inbox.pop())
        peer.break_()
        self._forget()

    def break_(self) -> None:
        """Handle an RST from the peer."""
        if not self.reset:
            self.reset = True
            self.tell()

    def _forget(self) -> None:
        self.kernel.sockets.pop(self.fd, None)
        self.on_change = None

    def tell(self) -> None:
        """Notify the waiter in the next turn that bytes, FIN or RST came, or that there is room."""
        if self.epoll is not None:
            self.epoll.changed(self)
        if self.on_change is not None and not self._reported:
            self._reported = True
            self.kernel.loop.call_soon(self._tell)

    def _tell(self) -> None:
        self._reported = False
        if self.on_change is not None:
            self.on_change()

    # --- interface of `socket.socket`

    def fileno(self) -> int:
        """Return the descriptor, or -1 when the socket is closed."""
        return -1 if self.closed else self.fd

    def getsockname(self) -> Address:
        """Return the local address."""
        return self.name

    def getpeername(self) -> Address:
        """Return the peer's address."""
        return self.peer_name

    def setblocking(self, _flag: bool) -> None:
        """Do nothing: the socket never blocks."""

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Apply a size of the receive buffer; ignore all other options."""
        if (level, option) == (socket.SOL_SOCKET, socket.SO_RCVBUF):
            self.receive_bytes = value


class MemoryEpoll:
    """`select.epoll` as far as `DisconnectWatcher` uses it: one-shot events of FIN and RST."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._fd = kernel.descriptor()
        self._wanted: dict[int, int] = {}
        self._ready: dict[int, int] = {}

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def register(self, fd: int, events: int) -> None:
        """Watch a socket."""
        sock = self._kernel.sockets[fd]
        sock.epoll = self
        self._wanted[fd] = events
        self.changed(sock)

    modify = register

    def unregister(self, fd: int) -> None:
        """Stop watching a socket.

        Raises:
            OSError: the socket is closed.
        """
        self._wanted.pop(fd, None)
        self._ready.pop(fd, None)
        sock = self._kernel.sockets.get(fd)
        if sock is None:
            raise OSError(errno.EBADF, "bad descriptor")
        sock.epoll = None

    def changed(self, sock: MemorySocket) -> None:
        """Handle a change of a socket's state: report an event if one is awaited."""
        wanted = self._wanted.get(sock.fd)
        if wanted is None:
            return
        events = select.EPOLLRDHUP & wanted if sock.fin_in else 0
        if sock.reset:
            events |= select.EPOLLERR | select.EPOLLHUP
        elif sock.fin_in and sock.fin_out:
            events |= select.EPOLLHUP
        if events:
            del self._wanted[sock.fd]  # one-shot
            self._ready[sock.fd] = events
            self._kernel.loop.wake_reader(self._fd)

    def poll(self, _timeout: float, events_max: int) -> list[tuple[int, int]]:
        """Return the events that are ready."""
        found = list(self._ready.items())[:events_max]
        for fd, _ in found:
            del self._ready[fd]
        if self._ready:
            self._kernel.loop.wake_reader(self._fd)
        return found

    def close(self) -> None:
        """Stop watching all sockets."""


class MemoryTransport(asyncio.Transport):
    """A transport over a socket in memory: it reads unless paused, keeps what the kernel does not accept, and calls `pause_writing`."""

    def __init__(self, loop: VirtualLoop, sock: MemorySocket, protocol: asyncio.BaseProtocol) -> None:
        super().__init__({"socket": sock, "peername": sock.peer_name, "sockname": sock.name})
        self._loop = loop
        self._sock = sock
        self._protocol = protocol
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._high, self._low = 64 * 1024, 16 * 1024
        self._writing_paused = False
        self._reading = False
        self._read_eof = False
        self._eof_wanted = False
        self._closing = False
        self._lost = False
        self._read_due = False

    def begin(self) -> None:
        """Start reading."""
        self._sock.on_change = self._changed
        self.resume_reading()

    def _changed(self) -> None:
        if self._unsent:
            self._flush()
        self._want_read()

    # --- reading

    def _want_read(self) -> None:
        sock = self._sock
        is_due = bool(sock.inbox) or sock.reset or (sock.fin_in and not self._read_eof)
        if self._reading and is_due and not (self._closing or self._read_due):
            self._read_due = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._read_due = False
        if not self._reading or self._closing:
            return
        protocol = self._protocol
        try:
            if isinstance(protocol, asyncio.BufferedProtocol):
                room = protocol.get_buffer(-1)
                data = self._sock.receive(len(room))
                if data:
                    room[: len(data)] = data
            else:
                data = self._sock.receive(READ_BYTES)
        except ConnectionResetError as error:
            self._break(error)
            return
        if data is None:
            return
        if not data:
            if not self._read_eof:
                self._read_eof = True
                if not cast("asyncio.Protocol", protocol).eof_received():
                    self.close()
        elif isinstance(protocol, asyncio.BufferedProtocol):
            protocol.buffer_updated(len(data))
        else:
            cast("asyncio.Protocol", protocol).data_received(data)
        self._want_read()

    def is_reading(self) -> bool:
        """Whether the transport reads."""
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        """Stop reading; bytes stay in the kernel."""
        self._reading = False

    def resume_reading(self) -> None:
        """Start reading again."""
        self._reading = True
        self._want_read()

    # --- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send what the kernel accepts now, and keep the rest."""
        if self._lost or self._closing:
            return
        assert not self._eof_wanted, "bytes behind a FIN"
        if not data:
            return
        self._unsent.append(memoryview(data))
        self._unsent_bytes += len(data)
        if len(self._unsent) == 1:
            self._flush()
        if self._unsent_bytes > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def _flush(self) -> None:
        if self._lost:
            return
        try:
            while self._unsent:
                piece = self._unsent[0]
                sent = self._sock.send(piece)
                self._unsent_bytes -= sent
                if sent < len(piece):
                    self._unsent[0] = memoryview(bytes(piece[sent:]))
                    break
                self._unsent.popleft()
        except ConnectionResetError as error:
            self._break(error)
            return
        if self._writing_paused and self._unsent_bytes <= self._low:
            self._writing_paused = False
            self._protocol.resume_writing()
        if not self._unsent:
            if self._eof_wanted:
                self._sock.shut_down()
            if self._closing:
                self._end_soon(None)

    def write_eof(self) -> None:
        """Send a FIN after the bytes that are written."""
        if not self._eof_wanted:
            self._eof_wanted = True
            if not self._unsent:
                self._sock.shut_down()

    def can_write_eof(self) -> bool:
        """Return True."""
        return True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limit above which the protocol is asked to pause."""
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low
        if self._unsent_bytes > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes the kernel has not accepted."""
        return self._unsent_bytes

    # --- closing

    def is_closing(self) -> bool:
        """Whether closing has begun."""
        return self._closing

    def close(self) -> None:
        """Close the transport after all bytes are sent."""
        if self._closing:
            return
        self._closing = True
        if not self._unsent:
            self._end_soon(None)

    def abort(self) -> None:
        """Close the transport now."""
        self._break(None)

    def _break(self, error: Exception | None) -> None:
        self._closing = True
        self._unsent.clear()
        self._unsent_bytes = 0
        self._end_soon(error)

    def _end_soon(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._loop.call_soon(self._end, error)

    def _end(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._sock.close()
            self._unsent_bytes = 0

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the protocol."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        return self._protocol


class MemoryAcceptor:
    """A listening port: a `proxy.net.accept.listener.Acceptor` without an accept queue in the kernel."""

    def __init__(self, sock: Any, on_accept: Callable[[Any, Address], None], may_accept: Callable[[], bool], _exhausted: Any) -> None:
        self._kernel: Kernel = sock.kernel
        self._address: Address = sock.address
        self.port = self._address[1]
        self._on_accept = on_accept
        self._may_accept = may_accept
        self._stopped = False
        self._queue: deque[MemorySocket] = deque()
        self._retry: asyncio.TimerHandle | None = None
        self._kernel.listeners[self._address] = self._arrived

    def _arrived(self, sock: MemorySocket) -> None:
        self._queue.append(sock)
        self._kernel.loop.call_soon(self._accept)

    def _accept(self) -> None:
        self._retry = None
        while self._queue and not self._stopped:
            if not self._may_accept():
                self._retry = self._kernel.loop.call_later(0.1, self._accept)
                return
            sock = self._queue.popleft()
            self._on_accept(sock, sock.peer_name)

    def stop(self) -> None:
        """Stop accepting connections."""
        self._stopped = True

    def go_on(self) -> None:
        """Accept connections again."""
        self._stopped = False
        self._kernel.loop.call_soon(self._accept)

    def close(self) -> None:
        """Close the listening port."""
        self._kernel.listeners.pop(self._address, None)


class KernelLoop(VirtualLoop):
    """The event loop together with the sockets that its transports use."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = Kernel(self)
        self._ports = 40_000

    async def create_connection(self, protocol_factory: Callable[[], Any], host: Any = None, port: Any = None, **_: Any) -> Any:
        """Connect to a broker."""
        self._ports += 1
        sock = self.kernel.connect(("10.0.0.1", self._ports), (host, port))
        return await self._meet(protocol_factory, sock)

    async def connect_accepted_socket(self, protocol_factory: Callable[[], Any], sock: Any, **_: Any) -> Any:
        """Return a transport for an accepted socket."""
        return await self._meet(protocol_factory, sock)

    async def _meet(self, protocol_factory: Callable[[], Any], sock: MemorySocket) -> Any:
        protocol = protocol_factory()
        transport = MemoryTransport(self, sock, protocol)
        protocol.connection_made(transport)
        transport.begin()
        return transport, protocol


class _OptionsOf:
    """What `socket.socket(family, kind, protocol, fd)` returns: a view of an existing socket."""

    def __init__(self, kernel: Kernel, fd: int) -> None:
        sock = kernel.sockets.get(fd)
        if sock is None:
            raise OSError(errno.EBADF, "bad descriptor")
        self._sock = sock

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self._sock.setsockopt(level, option, value)

    def getsockopt(self, _level: int, _option: int, size: int) -> bytes:
        return bytes(size)  # TCP_INFO: a round trip of 0, acknowledged just now

    def detach(self) -> None:
        pass


@contextmanager
def kernel_in_memory(kernel: Kernel) -> Iterator[None]:
    """Replace the functions with which the proxy calls the kernel by those of this one, for the length of a block."""

    def ioctl(fd: int, request: int, _argument: bytes) -> bytes:
        sock = kernel.sockets.get(fd)
        if sock is None:
            raise OSError(errno.EBADF, "bad descriptor")
        waiting = sock.peer.inbox_bytes if request == termios.TIOCOUTQ else sock.inbox_bytes
        return int(max(0, waiting)).to_bytes(4, "little")

    constants = {name: getattr(socket, name) for name in dir(socket) if name.isupper()}
    fake_socket = SimpleNamespace(**constants, socket=lambda _family, _kind, _protocol, fd: _OptionsOf(kernel, fd))
    events = {name: getattr(select, name) for name in dir(select) if name.startswith("EPOLL")}
    with ExitStack() as stack:
        for module, name, value in (
            (sockets, "socket", fake_socket),
            (sockets, "fcntl", SimpleNamespace(ioctl=ioctl)),
            (disconnect_watcher, "select", SimpleNamespace(**events, epoll=lambda: MemoryEpoll(kernel))),
            (client_listeners, "Acceptor", MemoryAcceptor),
            (client_listeners, "listen", lambda host, port: SimpleNamespace(kernel=kernel, address=(host, port))),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield


assert fcntl.ioctl  # the name that is patched
