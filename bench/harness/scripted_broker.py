"""A broker whose faults a fault row scripts: a thread per connection, plain sockets; it records everything it receives with its time.

ApiVersions and Metadata are always answered without errors, so that Sluice learns the broker's address; Produce and Fetch go to the script.
"""

import contextlib
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.harness.engine import HOST
from bench.harness.frames import API_VERSIONS, METADATA, PRODUCE, Template, answers
from tests.support.ports import free_port

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST
FETCH_RECORD_BYTES = 1_000


@dataclass(frozen=True, slots=True)
class Request:
    """A complete request, length field included."""

    key: int
    version: int
    correlation_id: int
    frame: bytes

    @property
    def is_silent(self) -> bool:
        """Whether this is a Produce before v9 without a transactional id and with acks=0."""
        if self.key != PRODUCE or self.version >= 9:
            return False
        (id_length,) = struct.unpack_from(">h", self.frame, 12)
        return self.frame[14 + max(id_length, 0) :][:4] == b"\xff\xff\0\0"


class BrokerConnection:
    """One connection that the proxy made."""

    def __init__(self, connection: socket.socket, templates: dict[tuple[int, int], Template]) -> None:
        self.socket = connection
        self.received = bytearray()
        self.requests: list[Request] = []
        self.ended_at: float | None = None
        self.ended = threading.Event()
        self._templates = templates

    def good_answer(self, request: Request) -> bytes:
        """Return the answer of a healthy broker."""
        whole = self._templates[request.key, request.version].whole()
        return whole[:4] + struct.pack(">i", request.correlation_id) + whole[8:]

    def answer(self, request: Request) -> None:
        """Answer without errors; a Produce with acks=0 gets no answer."""
        if not request.is_silent:
            self.socket.sendall(self.good_answer(request))

    def reset(self) -> float:
        """Send RST; return the time."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        at = time.monotonic()
        self.close()
        return at

    def close(self) -> float:
        """Send FIN; return the time."""
        at = time.monotonic()
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RD)
        self.socket.close()
        return at

    def next_request(self) -> Request | None:
        """Return the next request, or None when the connection has ended."""
        head = self._exactly(4)
        body = head and self._exactly(int.from_bytes(head, "big"))
        if not body:
            return None
        key, version, correlation_id = struct.unpack_from(">hhi", body)
        return Request(key, version, correlation_id, head + body)

    def _exactly(self, count: int) -> bytes:
        start = len(self.received)
        while len(self.received) < start + count:
            try:
                part = self.socket.recv(min(start + count - len(self.received), 1 << 20))
            except OSError:
                part = b""
            if not part:
                return b""
            self.received += part
        return bytes(self.received[start:])


Script = Callable[[BrokerConnection, Request], None]


class ScriptedBroker:
    """Listens on a port of its own. A context manager.

    Args:
        script: handles Produce and Fetch; None answers them without errors.
        host: the address to listen on and to advertise.
        at_accept: handles a new connection before anything is read; True: it is handled, read nothing.
    """

    def __init__(
        self, script: Script | None = None, at_accept: Callable[[BrokerConnection], bool] | None = None, *, host: str = HOST
    ) -> None:
        self.host = host
        self.port = free_port()
        self.script = script
        self.at_accept = at_accept
        self.connections: list[BrokerConnection] = []
        self.served: queue.Queue[BrokerConnection] = queue.Queue()
        """Connections, in the order of their first Produce or Fetch."""
        self._templates = {(t.key, t.version): t for t in answers(host, self.port, FETCH_RECORD_BYTES)}
        self._listener: socket.socket | None = None

    def __enter__(self) -> "ScriptedBroker":
        self.listen()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop_listening()
        for connection in self.connections:
            connection.close()

    def listen(self) -> float:
        """Begin to listen, again after `stop_listening`; return the time."""
        listener = self._listener = socket.create_server((self.host, self.port), backlog=2_048)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return time.monotonic()

    def stop_listening(self) -> None:
        """Refuse connections from now on."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = BrokerConnection(accepted, self._templates)
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: BrokerConnection) -> None:
        if self.at_accept and self.at_accept(connection):
            return
        with contextlib.suppress(OSError):
            while request := connection.next_request():
                if request.key in (API_VERSIONS, METADATA):
                    connection.answer(request)
                    continue
                connection.requests.append(request)
                if len(connection.requests) == 1:
                    self.served.put(connection)
                (self.script or BrokerConnection.answer)(connection, request)
        connection.ended_at = time.monotonic()
        connection.ended.set()
        with contextlib.suppress(OSError):
            connection.socket.close()
