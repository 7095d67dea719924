"""Shared by scripted client and broker: raw sockets on the running loop, uvloop or stock asyncio, with a time limit."""

import asyncio
import contextlib
import enum
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import TypeVar

HOST = "127.0.0.1"
HANG_S = 30.0
"""Far above any wait of a test: a test that reaches it hangs."""
RECEIVE_BYTES = 256 * 1024
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends RST."""

T = TypeVar("T")


class End(enum.Enum):
    """How the other side ended a connection."""

    FIN = "fin"
    RESET = "reset"


async def guarded(awaited: Awaitable[T]) -> T:
    """Wait, at most for the time limit."""
    async with asyncio.timeout(HANG_S):
        return await awaited


async def until(condition: Callable[[], bool]) -> None:
    """Poll until a condition holds."""
    async with asyncio.timeout(HANG_S):
        while not condition():  # noqa: ASYNC110 - the state of sockets and of other tasks has no event
            await asyncio.sleep(0.005)


async def for_a_while(seconds: float, condition: Callable[[], bool]) -> None:
    """Assert that a condition holds for a while: for tests that expect nothing to happen."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        assert condition()
        await asyncio.sleep(0.005)


def reset(sock: socket.socket) -> None:
    """Close with RST."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    sock.close()


async def receive(sock: socket.socket, count: int = RECEIVE_BYTES) -> bytes | End:
    """Return some bytes, or how the other side ended."""
    try:
        data = await asyncio.get_running_loop().sock_recv(sock, count)
    except ConnectionError:
        return End.RESET
    return data or End.FIN
