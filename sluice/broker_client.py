"""One connection to a broker for a program's own requests, one at a time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from protocol.api_keys import ApiKey
from protocol.errors import BadResponseError
from protocol.messages import api_versions
from protocol.sasl.exchange import LoginSteps
from sluice.connect_errors import other_protocol

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024


class BrokerClient:
    """Sends requests to a broker; each waits for the response to the one before it.

    Args:
        client_id: the client-id of the requests made here.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str) -> None:
        self._reader = reader
        self._writer = writer
        self._client_id = client_id

    @property
    def own_host(self) -> str:
        """The local address of the connection, which the broker sees."""
        return str(self._writer.get_extra_info("sockname")[0])

    async def ask(self, frame: bytes) -> bytes:
        """Send a whole request, return the whole response.

        Raises:
            OSError, asyncio.IncompleteReadError: the connection was closed.
            BadResponseError: the response is invalid.
        """
        self._writer.write(frame)
        length = await self._reader.readexactly(4)
        size = int.from_bytes(length, "big", signed=True)
        if not 4 <= size <= ANSWER_BYTES_MAX:
            raise BadResponseError(other_protocol(length) or f"a response of {size} bytes")
        answer = length + await self._reader.readexactly(size)
        if answer[4:8] != frame[8:12]:
            raise BadResponseError("a response to another request")
        return answer

    async def versions(self) -> dict[int, tuple[int, int]]:
        """Return the lowest and highest version of each API of the broker. Needs no login.

        Raises:
            OSError, asyncio.IncompleteReadError, BadResponseError: as `ask`.
        """
        answer = await self.ask(api_versions.request_v0(1, self._client_id))
        return {key: (low, high) for key, low, high in api_versions.read_api_keys(0, answer)}

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


def version_of(ranges: dict[int, tuple[int, int]], key: ApiKey, ours: tuple[int, ...]) -> int | None:
    """Return the first of `ours` that the broker has too."""
    low, high = ranges.get(key, (0, -1))
    return next((version for version in ours if low <= version <= high), None)


async def run_login(client: BrokerClient, steps: LoginSteps) -> int:
    """Perform a login on a new connection; return the lifetime of its session in ms, 0 without an end.

    Raises:
        OSError, asyncio.IncompleteReadError: the connection was closed.
        TokenRefusedError: the broker refused.
        ProtocolError: a response is invalid.
    """
    frame: bytes | int = next(steps)
    while isinstance(frame, bytes):
        frame = await asyncio.to_thread(_step, steps, await client.ask(frame))  # SCRAM computes for some milliseconds
    return frame


def _step(steps: LoginSteps, answer: bytes) -> bytes | int:
    """Return the next request, or the session lifetime at the end of the login."""
    try:
        return steps.send(answer)
    except StopIteration as done:
        return int(done.value)
