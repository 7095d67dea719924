"""The stream of messages between the supervisor and one worker."""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Final, cast

from proxy.telemetry import log
from proxy.workers.messaging.messages import Answer, AnyMessage, Asked, Request, decoded, encoded

LENGTH: Final = Struct(">I")
MESSAGE_BYTES_MAX: Final = 1 << 30
READ_BYTES: Final = 256 * 1024
UNSENT_BYTES_MAX: Final = 256 * 1024 * 1024
"""Maximum number of unsent bytes; above it the other process counts as lost."""

Answers = Callable[[Request], Awaitable[bytes]]


class LinkLost(Exception):
    """The other process has ended, or did not answer in time."""


class Link(asyncio.Protocol):
    """Sends and receives messages; responses are matched to requests by number.

    Args:
        on_message: called with every message that is neither a request nor a response.
        answers: returns the body of a response.
        on_lost: called once when the other process has ended.
    """

    def __init__(self, on_message: Callable[[AnyMessage], None], answers: Answers, on_lost: Callable[[], None]) -> None:
        self._on_message = on_message
        self._answers = answers
        self._on_lost = on_lost
        self._transport: asyncio.WriteTransport | None = None
        self._unread = bytearray()
        self._is_reading = False
        self._numbers = 0
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._answering: set[asyncio.Task[None]] = set()

    @classmethod
    async def over(
        cls, sock: socket.socket, on_message: Callable[[AnyMessage], None], answers: Answers, on_lost: Callable[[], None]
    ) -> Link:
        """Return a link over a connected socket; the link owns the socket."""
        _, link = await asyncio.get_running_loop().create_unix_connection(lambda: cls(on_message, answers, on_lost), sock=sock)
        return link

    @property
    def is_open(self) -> bool:
        """Whether the connection to the other process is open."""
        return self._transport is not None

    def send(self, message: AnyMessage) -> None:
        """Send a message; does nothing when the other process has ended."""
        transport = self._transport
        if transport is None:
            return
        if transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            log.error("worker_link_full", limit_key="worker_link_full", unsent_bytes=transport.get_write_buffer_size())
            transport.abort()
            return
        data = encoded(message)
        transport.write(LENGTH.pack(len(data)) + data)

    async def ask(self, what: Asked, timeout_s: float) -> bytes:
        """Send a request and return the encoded body of the response.

        Raises:
            LinkLost: no response came within `timeout_s` seconds, or the request failed.
        """
        if self._transport is None:
            raise LinkLost("the other process has ended")
        self._numbers += 1
        number = self._numbers
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        self.send(Request(number, what))
        try:
            async with asyncio.timeout(timeout_s):
                return await waiting
        except TimeoutError:
            raise LinkLost(f"no answer within {timeout_s:g} s") from None
        finally:
            del self._waiting[number]

    def read_ahead(self, wait_s: float) -> bool:
        """Process messages that the event loop has not read yet; wait at most `wait_s` seconds for the first bytes.

        Returns:
            Whether bytes arrived. The result is False while a message is being processed, and after the other process has ended.
        """
        transport = self._transport
        if transport is None or transport.is_closing() or self._is_reading:
            return False
        descriptor = transport.get_extra_info("socket").fileno()
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        data = os.read(descriptor, READ_BYTES) if waiting.poll(wait_s * 1_000) else b""
        if data:
            self.data_received(data)
        return bool(data)

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Process the messages that are complete."""
        self._is_reading = True
        try:
            self._take_in(data)
        finally:
            self._is_reading = False

    def connection_lost(self, _error: Exception | None) -> None:
        """Fail open requests and call `on_lost`: the other process has ended."""
        self._transport = None
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(LinkLost("the other process has ended"))
        self._on_lost()

    # --- internals

    def _take_in(self, data: bytes) -> None:
        unread = self._unread
        unread += data
        at = 0
        while len(unread) - at >= LENGTH.size:
            (size,) = LENGTH.unpack_from(unread, at)
            end = at + LENGTH.size + size
            if end > len(unread):
                break
            self._received(decoded(bytes(unread[at + LENGTH.size : end])))
            at = end
        del unread[:at]

    def _received(self, message: AnyMessage) -> None:
        if isinstance(message, Request):
            task = asyncio.ensure_future(self._answer(message))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        elif isinstance(message, Answer):
            waiting = self._waiting.get(message.number)
            if waiting is None or waiting.done():
                return
            if message.body is None:
                waiting.set_exception(LinkLost(message.problem))
            else:
                waiting.set_result(message.body)
        else:
            self._on_message(message)

    async def _answer(self, request: Request) -> None:
        try:
            answer = Answer(request.number, await self._answers(request))
        except Exception as error:  # noqa: BLE001 - the response carries the problem; this process continues
            log.error("worker_request_failed", limit_key="worker_request_failed", exception=error)
            answer = Answer(request.number, None, f"{type(error).__name__}: {error}")
        self.send(answer)
