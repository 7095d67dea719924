"""Kafka frames over a plain blocking socket: what a test wants to say byte by byte."""

import socket
import struct
from types import TracebackType
from typing import Self

from protocol.api_keys import ApiVersion
from tests.support.ports import split_address

TIMEOUT_SECONDS = 15
CLIENT_ID = b"wire"


def request_frame(api: ApiVersion, body: bytes, correlation_id: int = 1, client_id: bytes = CLIENT_ID) -> bytes:
    """Return a whole request frame with the header this version wants."""
    header = struct.pack(">hhi", api.key, api.version, correlation_id)
    if api.request_header_version >= 1:
        header += struct.pack(">h", len(client_id)) + client_id
    if api.request_header_version >= 2:
        header += b"\0"
    return struct.pack(">i", len(header) + len(body)) + header + body


class WireConnection:
    """One connection; a context manager."""

    def __init__(self, address: str) -> None:
        self._socket = socket.create_connection(split_address(address), timeout=TIMEOUT_SECONDS)
        self._stream = self._socket.makefile("rb")

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def read(self) -> bytes:
        """Return the next whole frame, length included.

        Raises:
            ConnectionError: the peer closed instead.
        """
        length = self._stream.read(4)
        if len(length) < 4:
            raise ConnectionError("closed without an answer")
        body = self._stream.read(struct.unpack(">i", length)[0])
        return length + body

    def ask(self, frame: bytes) -> bytes:
        """Send a frame and return the answer to it."""
        self.send(frame)
        return self.read()

    def close(self) -> None:
        """Close both directions."""
        self._stream.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
