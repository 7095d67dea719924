"""Sluice's own TLS transport against clients of the standard library, over sockets."""

import asyncio
import contextlib
import itertools
import random
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from proxy.config.sections.credentials import TlsFiles, client_context, server_context
from proxy.tls import handshakes
from proxy.tls.handshakes import STEPS_PER_TURN, UNDER_WAY_MAX, HandshakeQueue
from proxy.tls.transport import TlsTransport
from tests.support.tls.certificates import Authority

HANG_S = 60
KERNELS_HOLD_BYTES = 1_000_000
"""A client that sends less can close while the server does not read."""


class UpperProtocol(asyncio.Protocol):
    """A protocol that records what the transport delivers."""

    def __init__(self) -> None:
        self.transport: TlsTransport | None = None
        self.data = bytearray()
        self.eof = asyncio.Event()
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.read = asyncio.Event()
        self.full = 0
        self.stops_at: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.read.set()
        if self.stops_at is not None and len(self.data) >= self.stops_at:
            self.stops_at = None
            assert self.transport
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self.eof.set()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)

    def pause_writing(self) -> None:
        self.full += 1

    def resume_writing(self) -> None:
        self.full -= 1


class TlsServer:
    """A listening TLS server on loopback with the client's TLS context."""

    def __init__(self, authority: Authority, **options: str) -> None:
        issued = authority.issue("server", hosts=("127.0.0.1",))
        self.context = server_context(TlsFiles(issued.certificate, issued.key, ca=authority.file), options.get("auth", "none"), time.time())  # type: ignore[arg-type]
        self.client_context = client_context(TlsFiles(ca=authority.file), verify=True, now_s=time.time())
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=600)
        self._listening.setblocking(False)
        self.port = self._listening.getsockname()[1]
        self.queue = HandshakeQueue(asyncio.get_running_loop())

    async def accept(self) -> TlsTransport:
        """Return the next connection before its handshake."""
        loop = asyncio.get_running_loop()
        sock, _ = await loop.sock_accept(self._listening)
        make: Callable[[ssl.MemoryBIO, ssl.MemoryBIO], ssl.SSLObject] = lambda come, go: self.context.wrap_bio(come, go, server_side=True)  # noqa: E731
        _, tls = await loop.connect_accepted_socket(lambda: TlsTransport(loop, make, self.queue), sock)
        return tls

    async def accept_attached(self) -> UpperProtocol:
        """Return a protocol that is attached to the next connection after its handshake."""
        tls = await self.accept()
        await tls.handshake(HANG_S * 1_000)
        above = UpperProtocol()
        tls.attach(above)
        return above

    def connect_client(self) -> ssl.SSLSocket:
        """Return a blocking TLS connection to this server, for use in a thread."""
        return self.client_context.wrap_socket(socket.create_connection(("127.0.0.1", self.port)), server_hostname="127.0.0.1")

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[TlsServer]:
    """Yield a server whose certificate its clients trust."""
    made = TlsServer(Authority(tmp_path))
    yield made
    made.close()


async def in_thread(act: Callable[[], None]) -> None:
    """Run a blocking function in a thread, with a timeout."""
    async with asyncio.timeout(HANG_S):
        await asyncio.to_thread(act)


async def until(event: "asyncio.Event | asyncio.Future[Exception | None]") -> None:
    """Wait for `event`, with a timeout."""
    async with asyncio.timeout(HANG_S):
        await (event.wait() if isinstance(event, asyncio.Event) else event)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("size", [1, 16_384, 70_000, 3_000_000])
async def test_bytes_both_ways(side: TlsServer, version: ssl.TLSVersion, size: int) -> None:
    """With TLS 1.2 and 1.3 all bytes arrive in both directions."""
    side.client_context.maximum_version = version
    sent, answer = random.Random(size).randbytes(size), random.Random(size + 1).randbytes(size)

    def client() -> None:
        with side.connect_client() as sock:
            sock.sendall(sent)
            got = bytearray()
            while len(got) < size:
                got += sock.recv(65_536)
            assert got == answer

    running = asyncio.create_task(in_thread(client))
    above = await side.accept_attached()
    while len(above.data) < size:
        above.read.clear()
        await until(above.read)
    assert above.data == sent
    assert above.transport
    above.transport.write(answer)
    await running
    await until(above.eof)
    above.transport.close()
    await until(above.lost)


@pytest.mark.parametrize("end", ["close_notify", "fin"])
@pytest.mark.parametrize("size", [4_096, 200_000, 3_000_000])
async def test_d02_nothing_is_lost_of_a_client_that_leaves_while_muted(side: TlsServer, size: int, end: str) -> None:
    """Bytes of a client that closes while reading is paused are all delivered after the pause, followed by EOF."""
    sent = random.Random(size).randbytes(size)
    closed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def client() -> None:
        sock = side.connect_client()
        sock.sendall(sent)
        if end == "close_notify":
            with contextlib.suppress(OSError, ssl.SSLError):
                sock.settimeout(0.2)
                sock.unwrap()
        loop.call_soon_threadsafe(closed.set)
        sock.close()

    running = asyncio.create_task(in_thread(client))
    above = await side.accept_attached()
    above.stops_at = 1
    await until(above.read)
    if size < KERNELS_HOLD_BYTES:
        await until(closed)
    before = len(above.data)
    assert before <= 262_144 + 65_536
    assert not above.eof.is_set() or before == size
    assert above.transport
    above.transport.resume_reading()
    await running
    await until(above.eof)
    assert above.data == sent
    above.transport.close()
    await until(above.lost)


async def test_the_end_of_one_direction_comes_behind_what_was_written(side: TlsServer) -> None:
    """After `write_eof` the client receives all bytes that were written before, then EOF."""
    got: list[bytes] = []

    def client() -> None:
        sock = side.connect_client()
        sock.sendall(b"question")
        while data := sock.recv(100):
            got.append(data)

    running = asyncio.create_task(in_thread(client))
    above = await side.accept_attached()
    while not above.data:
        above.read.clear()
        await until(above.read)
    assert above.transport
    above.transport.write(b"answer")
    above.transport.write_eof()
    await running
    assert b"".join(got) == b"answer"
    above.transport.close()
    await until(above.lost)


async def test_a_reader_that_is_slow_is_felt(side: TlsServer) -> None:
    """The protocol is paused while the write buffer is full, and resumed when the client has read."""
    go = threading.Event()
    size = 30_000_000

    def client() -> None:
        with side.connect_client() as sock:
            go.wait(HANG_S)
            left = size
            while left:
                left -= len(sock.recv(1_000_000))

    running = asyncio.create_task(in_thread(client))
    above = await side.accept_attached()
    assert above.transport
    above.transport.set_write_buffer_limits(262_144, 65_536)
    above.transport.write(bytes(size))
    assert above.full == 1
    assert above.transport.get_write_buffer_size() > 262_144
    go.set()
    await running
    assert above.full == 0
    above.transport.close()
    await until(above.lost)


@pytest.mark.parametrize(
    "first", [b"\x00\x00\x00\x10\x00\x12\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"]
)
async def test_what_is_no_tls_fails_the_handshake(side: TlsServer, first: bytes) -> None:
    """Plain text or an unfinished hello fails the handshake."""

    def client() -> None:
        with socket.create_connection(("127.0.0.1", side.port)) as sock:
            sock.sendall(first)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1_000):
                pass

    running = asyncio.create_task(in_thread(client))
    tls = await side.accept()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await tls.handshake(HANG_S * 1_000)
    await running


async def test_e12_stalled_handshakes_delay_no_client_and_end(side: TlsServer) -> None:
    """Silent clients have no TLS state and are closed at their deadline, and another client is served meanwhile."""
    stalled = [socket.create_connection(("127.0.0.1", side.port)) for _ in range(100)]
    waiting = [await side.accept() for _ in stalled]
    tasks = [asyncio.create_task(tls.handshake(1_500)) for tls in waiting]

    def client() -> None:
        with side.connect_client() as sock:
            sock.sendall(b"here")

    running = asyncio.create_task(in_thread(client))
    above = await side.accept_attached()
    await running
    await until(above.eof)
    assert above.data == b"here"
    assert above.transport
    above.transport.close()
    await until(above.lost)
    assert all(tls.get_extra_info("ssl_object") is None for tls in waiting)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, TimeoutError) for outcome in outcomes)
    for sock in stalled:
        assert await asyncio.to_thread(sock.recv, 1) == b""
        sock.close()


class Counted:
    """A handshake that only records its steps."""

    def __init__(self, number: int, steps: list[int]) -> None:
        self.number = number
        self.steps = steps
        self.is_ended = False

    def continue_handshake(self) -> None:
        self.steps.append(self.number)

    def stalled(self) -> None:
        self.is_ended = True


async def test_handshakes_take_turns() -> None:
    """One turn of the event loop takes at most `STEPS_PER_TURN` handshake steps, the oldest first."""
    queue = HandshakeQueue(asyncio.get_running_loop())
    order: list[int] = []
    for number in range(3 * STEPS_PER_TURN + 1):
        queue.ask(Counted(number, order))
    assert len(order) == STEPS_PER_TURN
    lengths = [len(order)]
    while len(order) < 3 * STEPS_PER_TURN + 1:
        await asyncio.sleep(0)
        lengths.append(len(order))
    assert order == sorted(order)
    assert max(after - before for before, after in itertools.pairwise(lengths)) <= STEPS_PER_TURN


async def test_too_many_that_stall_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond `UNDER_WAY_MAX` handshakes, those that are silent for longest and for `STALLED_S` are ended; active and new ones stay."""
    queue = HandshakeQueue(asyncio.get_running_loop())
    steps: list[int] = []
    silent = [Counted(number, steps) for number in range(UNDER_WAY_MAX)]
    for one in silent:
        queue.ask(one)
    young = [Counted(number, steps) for number in range(9)]
    for one in young:
        queue.ask(one)
    assert not any(one.is_ended for one in silent), "no client was silent for a second"
    monkeypatch.setattr(handshakes, "STALLED_S", -1.0)
    queue.ask(silent[0])
    assert [one.number for one in silent if one.is_ended] == [1, 2], "the first went on"
    for number in range(20):
        queue.ask(Counted(number, steps))
    assert queue.under_way == UNDER_WAY_MAX
    assert not any(one.is_ended for one in young)
    for one in [*silent, *young]:
        queue.done(one)


async def test_rubbish_in_the_middle_ends_the_connection(side: TlsServer) -> None:
    """A record that does not decrypt ends the connection as a reset, after the bytes before it are delivered."""

    def client() -> None:
        raw = socket.create_connection(("127.0.0.1", side.port))
        come, go = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = side.client_context.wrap_bio(come, go, server_hostname="127.0.0.1")
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                raw.sendall(go.read())
                come.write(raw.recv(65_536))
        tls.write(b"before")
        raw.sendall(go.read() + b"\x17\x03\x03\x00\x20" + bytes(32))
        with contextlib.suppress(OSError):
            while raw.recv(1_000):
                pass
        raw.close()

    running = asyncio.create_task(in_thread(client))
    above = await side.accept_attached()
    await until(above.lost)
    assert isinstance(above.lost.result(), ConnectionResetError)
    assert above.data == b"before"
    await running
