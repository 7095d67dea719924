"""A bare byte pump: the cost of any relay on uvloop that does not read the bytes.

Two asyncio protocols per connection, flow control both ways, nothing else. It is the unit that the cost bench counts in.

    python -m bench.harness.pump LISTEN_PORT UPSTREAM_PORT [PEM [ours]]  both on 127.0.0.1; ends with its standard input;
                                                                 with a certificate and its key it ends TLS, by uvloop's own or by Sluice's
"""

import asyncio
import ssl
import sys
import threading

import uvloop

from proxy.tls.handshakes import HandshakeQueue
from proxy.tls.transport import TlsTransport

HOST = "127.0.0.1"
BACKLOG = 4_096
HANDSHAKE_MS = 10_000


class Side(asyncio.Protocol):
    """One socket of a pair: its bytes are written to its peer; while the peer's buffer is full it does not read."""

    __slots__ = ("peer", "transport")

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer: Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.peer.transport.write(data)

    def pause_writing(self) -> None:
        self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        self.peer.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.close()


class Accepted(asyncio.Protocol):
    """An accepted socket until the upstream connection is established; then it hands over to a `Side`.

    uvloop starts reading after connection_made even when paused there, so early bytes are kept.
    """

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._early: list[bytes] = []
        self._client = Side()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._client.transport = transport
        asyncio.get_running_loop().create_task(self._connect())

    def data_received(self, data: bytes) -> None:
        self._early.append(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._client.connection_lost(error)

    async def _connect(self) -> None:
        client = self._client
        try:
            await asyncio.get_running_loop().create_connection(self._upstream_side, HOST, self._upstream_port)
        except OSError:
            client.transport.close()
            return
        client.transport.set_protocol(client)
        client.peer.transport.writelines(self._early)
        if client.transport.is_closing():
            client.peer.transport.close()

    def _upstream_side(self) -> Side:
        upstream = self._client.peer = Side()
        upstream.peer = self._client
        return upstream


class OursAccepted(TlsTransport):
    """An accepted socket with Sluice's TLS until the upstream connection is established.

    Nothing is decrypted before, so there are no early bytes.
    """

    __slots__ = ("_tasks", "_upstream_port")

    def __init__(self, upstream_port: int, tls: ssl.SSLContext, queue: HandshakeQueue) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop, lambda incoming, outgoing: tls.wrap_bio(incoming, outgoing, server_side=True), queue)
        self._upstream_port = upstream_port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        client, upstream = Side(), Side()
        client.peer, upstream.peer = upstream, client
        try:
            await self.handshake(HANDSHAKE_MS)
            await asyncio.get_running_loop().create_connection(lambda: upstream, HOST, self._upstream_port)
        except OSError:
            self.close()
            return
        self.attach(client)


async def pump(listen_port: int, upstream_port: int, tls: ssl.SSLContext | None, *, ours: bool) -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    if ours:
        queue = HandshakeQueue(loop)
        server = await loop.create_server(lambda: OursAccepted(upstream_port, tls, queue), HOST, listen_port, backlog=BACKLOG)
    else:
        server = await loop.create_server(lambda: Accepted(upstream_port), HOST, listen_port, backlog=BACKLOG, ssl=tls)
    print("ready", flush=True)
    await stdin_ended()
    server.close()


async def stdin_ended() -> None:
    """Wait in a thread until the parent closes our standard input; it uses no CPU while it waits."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def wait() -> None:
        sys.stdin.buffer.read()
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait, daemon=True).start()
    await ended.wait()


if __name__ == "__main__":
    _tls = None
    if len(sys.argv) > 3:
        _tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _tls.load_cert_chain(sys.argv[3])
        _tls.num_tickets = 0
    uvloop.run(pump(int(sys.argv[1]), int(sys.argv[2]), _tls, ours=sys.argv[4:] == ["ours"]))
