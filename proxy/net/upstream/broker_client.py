"""A connection to a broker for Sluice's own questions, one at a time: no client's bytes pass here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from protocol.api_keys import ApiKey
from protocol.errors import BadResponseError
from protocol.messages import api_versions
from proxy.base.host_port import HostPort
from proxy.tls.brokers import TlsBrokers

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
CLIENT_ID: Final = "sluice"


class BrokerClient:
    """Asks a broker; the next question waits for the answer to the one before it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def own_host(self) -> str:
        """The address that the broker sees."""
        return str(self._writer.get_extra_info("sockname")[0])

    async def ask(self, frame: bytes) -> bytes:
        """Send a whole request, return the whole answer.

        Raises:
            OSError, asyncio.IncompleteReadError: the connection is gone.
            BadResponseError: what came is no answer.
        """
        self._writer.write(frame)
        length = await self._reader.readexactly(4)
        size = int.from_bytes(length, "big", signed=True)
        if not 4 <= size <= ANSWER_BYTES_MAX:
            raise BadResponseError(f"answer of {size} bytes")
        answer = length + await self._reader.readexactly(size)
        if answer[4:8] != frame[8:12]:
            raise BadResponseError("an answer to another question")
        return answer

    async def versions(self) -> dict[int, tuple[int, int]]:
        """Return the lowest and highest version of each API that the broker has. Needs no login.

        Raises:
            OSError, asyncio.IncompleteReadError, BadResponseError: as `ask`.
        """
        answer = await self.ask(api_versions.request_v0(1, CLIENT_ID))
        return {key: (low, high) for key, low, high in api_versions.read_api_keys(0, answer)}

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


def version_of(ranges: dict[int, tuple[int, int]], key: ApiKey, ours: tuple[int, ...]) -> int | None:
    """Return the first of `ours` that the broker has too."""
    low, high = ranges.get(key, (0, -1))
    return next((version for version in ours if low <= version <= high), None)


@contextlib.asynccontextmanager
async def own_connection(address: HostPort, tls: TlsBrokers | None) -> AsyncIterator[BrokerClient]:
    """Connect, and hang up behind the block.

    Raises:
        OSError: refused, unresolvable, or TLS failed.
    """
    if tls is None:
        streams = await asyncio.open_connection(address.host, address.port)
    else:
        name = tls.server_name(address)
        streams = await asyncio.open_connection(address.host, address.port, ssl=tls.keeper.context, server_hostname=name)
    connection = BrokerClient(*streams)
    try:
        yield connection
    finally:
        await connection.close()
