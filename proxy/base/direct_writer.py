"""Writes to a socket past its event loop, while the event loop has nothing of that socket to send.

uvloop collects the writes of one turn and makes the system calls at its end. A relay has one write for each read, so collecting saves no
system call, and costs time for each write.
"""

from __future__ import annotations

import asyncio
import os

_NO_DESCRIPTOR = -1


class DirectWriter:
    """The writes to one socket of a transport. All writes to it go through this object, so that their order is kept.

    The socket takes what it has room for. The transport keeps the rest, with its limits and its `pause_writing`. A write that fails is
    left to the transport, which then reports the error as it always does.
    """

    __slots__ = ("_descriptor", "_open", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        """Leave every write to `transport`, until `begin_direct_writes`. It closes its socket after its protocol's `connection_lost`."""
        self._transport = transport
        self._open = _NO_DESCRIPTOR  # the socket, while direct writes are permitted ...
        self._descriptor = _NO_DESCRIPTOR  # ... and while the transport has nothing to send

    def begin_direct_writes(self, descriptor: int) -> None:
        """Write to this socket from now on; `end_direct_writes` is called before it is closed."""
        self._open = descriptor

    def write(self, data: bytes | memoryview) -> None:
        """Send as much as the socket takes now; the transport sends the rest."""
        if self._descriptor < 0:
            self._write_behind(data)
            return
        try:
            sent = os.write(self._descriptor, data)
        except OSError:  # it has no room, or has failed
            sent = 0
        if sent != len(data):
            self._descriptor = _NO_DESCRIPTOR
            self._transport.write(memoryview(data)[sent:])

    def writelines(self, pieces: list[bytes]) -> None:
        """Send many bytes in one system call, at the end of this turn of the event loop."""
        self._descriptor = _NO_DESCRIPTOR
        self._transport.writelines(pieces)

    def _write_behind(self, data: bytes | memoryview) -> None:
        """Send behind what the transport keeps."""
        if self._open < 0 or self._transport.get_write_buffer_size():
            self._transport.write(data)
            return
        self._descriptor = self._open
        self.write(data)

    def end_direct_writes(self) -> None:
        """Leave every further write to the transport, because it closes its socket now or later."""
        self._open = self._descriptor = _NO_DESCRIPTOR
