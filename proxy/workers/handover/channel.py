"""A connection to the socket of a supervisor: it carries whole messages and file descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from struct import Struct
from typing import Final

import msgspec

from proxy.workers.handover.messages import AnyMessage, ConnectionsChanged, decoded, encoded

MESSAGE_BYTES_MAX: Final = 128 * 1024
DESCRIPTORS_MAX: Final = 128
"""Maximum number of descriptors with one message; the kernel allows 253."""
_PEER: Final = Struct("3i")


class ChannelClosed(Exception):
    """The other process has closed the connection, sent no message in time, or sent a message that cannot be read."""


class Channel:
    """One end of the connection, on the running event loop."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        sock.setblocking(False)

    @property
    def peer(self) -> tuple[int, int]:
        """Process id and user id of the other process, as the kernel reports them."""
        pid, uid, _ = _PEER.unpack(self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        return pid, uid

    async def send(self, message: AnyMessage, descriptors: Sequence[int] = ()) -> None:
        """Send a message with descriptors; this process keeps its own copies of them.

        Raises:
            ChannelClosed: the other process has closed the connection.
        """
        data = encoded(message)
        while True:
            try:
                if descriptors:
                    socket.send_fds(self._sock, [data], descriptors)
                else:
                    self._sock.send(data)
                return
            except BlockingIOError:
                await self._until(self._loop.add_writer, self._loop.remove_writer)
            except OSError as error:
                raise ChannelClosed(error.strerror or str(error)) from None

    async def receive(self, timeout_s: float | None = None) -> tuple[AnyMessage, list[int]]:
        """Return the next message and its descriptors; the caller owns the descriptors and closes them.

        Raises:
            ChannelClosed: no message came within `timeout_s` seconds, or the connection is closed, or the message cannot be read.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._receive()
        except TimeoutError:
            raise ChannelClosed(f"no answer within {timeout_s:g} s") from None

    async def _receive(self) -> tuple[AnyMessage, list[int]]:
        while True:
            try:
                data, descriptors, flags, _ = socket.recv_fds(self._sock, MESSAGE_BYTES_MAX, DESCRIPTORS_MAX)
            except BlockingIOError:
                await self._until(self._loop.add_reader, self._loop.remove_reader)
                continue
            except OSError as error:
                raise ChannelClosed(error.strerror or str(error)) from None
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
            if not data:
                raise ChannelClosed("the other process has ended")
            try:
                if flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
                    raise ChannelClosed("a message was too long, or this process has as many files open as it may")
                return decoded(data), descriptors
            except (ChannelClosed, msgspec.DecodeError) as error:
                for descriptor in descriptors:
                    os.close(descriptor)
                raise ChannelClosed(str(error)) from None

    async def _until(self, add: Callable[..., object], remove: Callable[[int], object]) -> None:
        ready = self._loop.create_future()
        descriptor = self._sock.fileno()
        if descriptor < 0:
            raise ChannelClosed("it was closed here")
        add(descriptor, _wake, ready)
        try:
            await ready
        finally:
            with contextlib.suppress(ValueError, OSError):
                remove(descriptor)

    def close(self) -> None:
        """Close the connection; no task may be waiting for a message."""
        self._sock.close()


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def connected(path: Path) -> Channel | None:
    """Return a channel to the process that listens at `path`; None: no process listens there.

    Raises:
        OSError: the connection fails for another reason, such as missing permission.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.connect(str(path))
    except (FileNotFoundError, ConnectionRefusedError):
        sock.close()
        return None
    except OSError:
        sock.close()
        raise
    return Channel(sock)


async def changes_from(channel: Channel) -> AsyncIterator[ConnectionsChanged]:
    """Yield the changes that another process reports, until it ends or sends what cannot be read."""
    with contextlib.suppress(ChannelClosed):
        while True:
            message, _ = await channel.receive()
            if isinstance(message, ConnectionsChanged):
                yield message
