"""Writes past the event loop, on both event loops, through real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from proxy.base.direct_writer import DirectWriter

PIECE = bytes(range(256)) * 256  # 64 KiB
SECONDS_MAX = 20


class Side(asyncio.Protocol):
    """Notes what the event loop reports."""

    def __init__(self) -> None:
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.is_paused = False

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


class Wire:
    """A transport with its writer, and the socket of the other side."""

    def __init__(self, transport: asyncio.Transport, side: Side, other: socket.socket) -> None:
        self.transport, self.side, self.other = transport, side, other
        self.writer = DirectWriter(transport)

    def begin(self) -> None:
        self.writer.begin_direct_writes(self.transport.get_extra_info("socket").fileno())

    async def read(self, count: int) -> bytes:
        loop, received = asyncio.get_running_loop(), bytearray()
        while len(received) < count:
            piece = await loop.sock_recv(self.other, 1 << 20)
            if not piece:
                break
            received += piece
        return bytes(received)


@pytest.fixture(params=[uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[Wire], Awaitable[None]]], None]:
    async def with_wire(test: Callable[[Wire], Awaitable[None]]) -> None:
        ours, other = socket.socketpair()
        other.setblocking(False)
        side = Side()
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(lambda: side, ours)
        try:
            async with asyncio.timeout(SECONDS_MAX):
                await test(Wire(transport, side, other))
        finally:
            transport.abort()
            other.close()
            await asyncio.sleep(0)

    def run_test(test: Callable[[Wire], Awaitable[None]]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(with_wire(test))

    return run_test


def test_a_direct_write_is_sent_before_the_event_loop_turns(run: Callable[..., None]) -> None:
    async def test(wire: Wire) -> None:
        wire.begin()
        wire.writer.write(b"now")
        assert wire.other.recv(100) == b"now"

    run(test)


def test_bytes_arrive_in_order_when_the_socket_was_full(run: Callable[..., None]) -> None:
    async def test(wire: Wire) -> None:
        sent = []
        for number in range(200):
            if number == 1:
                wire.begin()
            piece = number.to_bytes(4) + PIECE
            sent.append(piece)
            wire.writer.write(memoryview(piece) if number % 2 else piece)
        assert wire.transport.get_write_buffer_size() > 0
        assert wire.side.is_paused
        expected = b"".join(sent)
        assert await wire.read(len(expected)) == expected
        await asyncio.sleep(0)
        assert not wire.side.is_paused
        wire.writer.write(b"direct again")
        assert wire.other.recv(100) == b"direct again"

    run(test)


def test_lines_and_writes_keep_their_order(run: Callable[..., None]) -> None:
    async def test(wire: Wire) -> None:
        wire.begin()
        wire.writer.write(b"a")
        wire.writer.writelines([b"b", b"c"])
        wire.writer.write(b"d")
        assert await wire.read(4) == b"abcd"

    run(test)


def test_a_failed_write_is_reported_by_the_transport(run: Callable[..., None]) -> None:
    async def test(wire: Wire) -> None:
        wire.transport.pause_reading()
        wire.begin()
        wire.other.close()
        wire.writer.write(b"nobody reads this")
        wire.writer.write(b"nor this")
        assert isinstance(await wire.side.lost, BrokenPipeError)

    run(test)


def test_after_the_end_no_byte_goes_to_the_descriptor(run: Callable[..., None]) -> None:
    async def test(wire: Wire) -> None:
        wire.begin()
        wire.writer.write(b"before")
        wire.writer.end_direct_writes()
        wire.transport.close()
        wire.writer.write(b"after")
        assert await wire.read(100) == b"before"

    run(test)
