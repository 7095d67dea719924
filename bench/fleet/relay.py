"""TCP relays: a balancer in front of the members, and a link to a broker that carries nothing for a while."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Coroutine, Mapping
from typing import Any, Final, NamedTuple, Self

from bench.harness.engine import HOST

PIECE_BYTES: Final = 65_536


class Address(NamedTuple):
    """The place that a port leads to."""

    host: str
    port: int


class Relay:
    """Listens at ports of 127.0.0.1, each of which leads to another address. An asynchronous context manager.

    Args:
        targets: the address of each port.
    """

    def __init__(self, targets: Mapping[int, Address]) -> None:
        self._targets = dict(targets)
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._carries = asyncio.Event()
        self._carries.set()

    def move(self, targets: Mapping[int, Address]) -> None:
        """Let new connections go to other addresses, and close the open ones."""
        self._targets = dict(targets)
        for connection in self._connections:
            connection.cancel()

    def hold(self) -> None:
        """Carry nothing: connections stay open, new ones are accepted, and all bytes wait."""
        self._carries.clear()

    def carry(self) -> None:
        """Carry again, and first what has waited."""
        self._carries.set()

    async def __aenter__(self) -> Self:
        for port in self._targets:
            self._servers.append(await asyncio.start_server(lambda *streams, port=port: self._serve(port, *streams), HOST, port))
        return self

    async def __aexit__(self, *_error: object) -> None:
        for server in self._servers:
            server.close()
        self.move(self._targets)
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, port: int, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        with contextlib.closing(client_out), contextlib.suppress(OSError, asyncio.CancelledError):
            await self._carries.wait()
            behind_in, behind_out = await asyncio.open_connection(*self._targets[port])
            with contextlib.closing(behind_out):
                await _first_of(self._pump(client_in, behind_out), self._pump(behind_in, client_out))
        self._connections.discard(task)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        target.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := await source.read(PIECE_BYTES):
            await self._carries.wait()
            target.write(data)
            await target.drain()


async def _first_of(*works: Coroutine[Any, Any, None]) -> None:
    """Run these until one of them ends."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
