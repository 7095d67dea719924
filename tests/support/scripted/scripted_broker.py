"""A broker that a test scripts, on the test's own loop; it keeps every byte that it received.

Without a script it answers ApiVersions, Metadata, Produce and Fetch without errors. Sluice's own requests are always answered without
errors, and their connections are not in `connections`.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Self

from proxy.net.upstream.prober import CLIENT_ID as PROBER
from tests.support.scripted.scripted_frames import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    Node,
    Request,
    acks_of,
    api_versions_answer,
    fetch_answer,
    metadata_answer,
    produce_answer,
    read_request,
)
from tests.support.scripted.scripted_sockets import HOST, End, guarded, receive, reset, until

Script = Callable[["BrokerConnection", Request], Awaitable[None]]
"""Handles a request. Answers are sent in the order of the calls; while a script waits, the connection is not read."""


class BrokerConnection:
    """One connection that Sluice made.

    Attributes:
        received: every byte, also of incomplete frames.
        requests: the complete requests, in order.
        ended: how Sluice ended it; None while it is open.
        may_read: when cleared, nothing is read and the TCP window closes.
    """

    def __init__(self, broker: "ScriptedBroker", sock: socket.socket) -> None:
        self.broker = broker
        self.socket = sock
        self.received = bytearray()
        self.requests: list[Request] = []
        self.ended: End | None = None
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.is_prober = False
        self._task: asyncio.Task[None] | None = None

    async def send(self, data: bytes) -> None:
        """Send these bytes; a closed peer is not an error."""
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def answer(self, request: Request) -> None:
        """Answer without errors; nothing for acks=0."""
        data = self.broker.good_answer(request)
        if data:
            await self.send(data)

    async def reset(self) -> None:
        """Send RST."""
        await self._stop()
        reset(self.socket)

    async def close(self) -> None:
        """Send FIN and read no more."""
        await self._stop()
        self.socket.close()

    def half_close(self) -> None:
        """Send FIN and continue to read."""
        self.socket.shutdown(socket.SHUT_WR)

    async def until_ended(self) -> End:
        """Wait until Sluice ended the connection."""
        await until(lambda: self.ended is not None)
        assert self.ended is not None
        return self.ended

    async def until_requests(self, count: int) -> list[Request]:
        """Wait until this many complete requests arrived."""
        await until(lambda: len(self.requests) >= count)
        return self.requests

    def start(self) -> None:
        """Start to serve."""
        self._task = asyncio.get_running_loop().create_task(self._serve())

    async def _stop(self) -> None:
        task = self._task
        if task is not None and task is not asyncio.current_task() and not task.done():
            task.cancel()
            await asyncio.wait([task])

    async def _serve(self) -> None:
        at = 0
        while True:
            await self.may_read.wait()
            data = await receive(self.socket)
            if isinstance(data, End):
                break
            self.received += data
            at = await self._serve_whole_frames(at)
            if self.socket.fileno() < 0:  # the script closed it
                return
        self.ended = data
        if self.broker.closes_after_client or self.is_prober:
            self.socket.close()

    async def _serve_whole_frames(self, at: int) -> int:
        while len(self.received) - at >= 4:
            (size,) = struct.unpack_from(">i", self.received, at)
            if size < 10 or len(self.received) - at < 4 + size:
                break
            request = read_request(bytes(self.received[at : at + 4 + size]))
            at += 4 + size
            if request.client_id == PROBER.encode():
                self.broker.is_probed_by(self)
                await self.answer(request)
                continue
            self.requests.append(request)
            await (self.broker.script or BrokerConnection.answer)(self, request)
            if self.socket.fileno() < 0:
                break
        return at


class ScriptedBroker:
    """Listens on a loopback port; an async context manager.

    Args:
        script: handles a client's request; None answers it without errors.
        node_id: its own node id.
        nodes: the nodes in Metadata; None: itself only.
        records: the records of a Fetch answer.
        receive_bytes: the kernel's receive buffer of accepted sockets, None for the usual one.
        closes_after_client: whether it closes after Sluice has, as brokers do.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        node_id: int = 1,
        nodes: list[Node] | None = None,
        records: bytes = b"f" * 1_000,
        receive_bytes: int | None = None,
        closes_after_client: bool = True,
    ) -> None:
        self.script = script
        self.node_id = node_id
        self.nodes = nodes
        self.records = records
        self.receive_bytes = receive_bytes
        self.closes_after_client = closes_after_client
        self.offered: dict[int, tuple[int, int]] | None = None
        self.accepts = True  # False: connections are dropped at once
        self.port = 0
        self.accepted = 0
        self.connections: list[BrokerConnection] = []
        """Connections of clients, in the order in which they connected."""
        self.probes: list[BrokerConnection] = []
        self._listener: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.listen()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop_listening()
        for connection in [*self.connections, *self.probes]:
            await connection.close()

    @property
    def node(self) -> Node:
        """Its address as a node."""
        return Node(self.node_id, HOST, self.port)

    @property
    def requests(self) -> list[Request]:
        """Return the complete requests of clients, connection by connection."""
        return [request for connection in self.connections for request in connection.requests]

    def listen(self) -> None:
        """Start to listen, again at the same port after `stop_listening`."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.receive_bytes is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_bytes)
        listener.bind((HOST, self.port))
        listener.listen(2_048)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._listener = listener
        self._task = asyncio.get_running_loop().create_task(self._accept(listener))

    async def stop_listening(self) -> None:
        """Refuse new connections; open ones stay."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def connection(self, at: int = 0) -> BrokerConnection:
        """Wait for the connection of client number `at`; return it."""
        await until(lambda: len(self.connections) > at)
        return self.connections[at]

    async def until_quiet(self) -> None:
        """Wait until every connection of a client has ended, and close this side of it."""
        await until(lambda: all(connection.ended or connection.socket.fileno() < 0 for connection in self.connections))
        for connection in self.connections:
            await connection.close()

    def good_answer(self, request: Request) -> bytes:
        """Return the answer of a healthy broker; b"" where there is none.

        Raises:
            AssertionError: this broker does not support the API: the test needs a script.
        """
        key, version, correlation_id = request.key, request.version, request.correlation_id
        if key == API_VERSIONS:
            return api_versions_answer(version, correlation_id, self.offered)
        if key == METADATA:
            return metadata_answer(version, correlation_id, self.nodes or [self.node])
        if key == PRODUCE:
            return b"" if acks_of(request) == 0 else produce_answer(version, correlation_id)
        assert key == FETCH, f"no good answer for API key {key}"
        return fetch_answer(version, correlation_id, self.records)

    def is_probed_by(self, connection: BrokerConnection) -> None:
        """Whether this connection is Sluice's own."""
        if not connection.is_prober:
            connection.is_prober = True
            self.connections.remove(connection)
            self.probes.append(connection)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError:  # no descriptor left, in tests that use all of them
                await asyncio.sleep(0.01)
                continue
            self.accepted += 1
            if not self.accepts:
                reset(sock)
                continue
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = BrokerConnection(self, sock)
            self.connections.append(connection)
            connection.start()


class Hold:
    """A script that holds answers until `release`, after which it holds none."""

    def __init__(self) -> None:
        self._released = asyncio.Event()

    async def __call__(self, connection: BrokerConnection, request: Request) -> None:
        if request.key in (PRODUCE, FETCH) and not self._released.is_set():
            asyncio.get_running_loop().create_task(self._answer_later(connection, request))
            return
        await connection.answer(request)

    def release(self) -> None:
        """Send the held answers."""
        self._released.set()

    async def _answer_later(self, connection: BrokerConnection, request: Request) -> None:
        await guarded(self._released.wait())
        await connection.answer(request)
