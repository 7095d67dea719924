"""A small TCP load balancer: it forwards connections, each with a PROXY header of its client in front."""

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

Header = Callable[[tuple[str, int]], bytes]


class ProxyRelay:
    """Listens on `host` at the ports of its backend and connects to it from `source`, in a thread of its own inside the block.

    Attributes:
        clients: the addresses of the clients.
    """

    def __init__(self, host: str, ports: range, behind: str, source: str, header: Header) -> None:
        self.clients: list[tuple[str, int]] = []
        self._host, self._ports, self._behind, self._source = host, ports, behind, source
        self._header = header
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy-relay")

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        for port in self._ports:
            await asyncio.start_server(lambda reader, writer, port=port: self._hand_on(reader, writer, port), self._host, port)

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        client = writer.get_extra_info("peername")[:2]
        self.clients.append(client)
        behind_reader, behind = await asyncio.open_connection(self._behind, port, local_addr=(self._source, 0))
        behind.write(self._header(client))
        await asyncio.gather(_pump(reader, behind), _pump(behind_reader, writer), return_exceptions=True)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
    finally:
        target.close()
