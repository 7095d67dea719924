"""Kafka frames over a plain blocking socket, for tests that control every byte."""

import socket
import struct
import time
from types import TracebackType
from typing import Self

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
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


def record_batch(value: bytes) -> bytes:
    """Return an uncompressed batch of one record without a key, with the present time: a broker soon deletes records from 1970."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, len(value) + 100)
    builder.append(0, int(time.time() * 1_000), None, value, [])
    return bytes(builder.build())


def produce_frame(topic: str, value: bytes, *, acks: int, client_id: bytes = CLIENT_ID) -> bytes:
    """Return a Produce v7 request with one record for partition 0."""
    batch = record_batch(value)
    name = topic.encode()
    body = struct.pack(">hhi", -1, acks, 30_000) + struct.pack(">ih", 1, len(name)) + name + struct.pack(">iii", 1, 0, len(batch)) + batch
    return request_frame(API_VERSIONS[ApiKey.PRODUCE << 16 | 7], body, client_id=client_id)


class WireConnection:
    """One connection; a context manager."""

    def __init__(self, address: str) -> None:
        self._socket = socket.create_connection(split_address(address), timeout=TIMEOUT_SECONDS)
        self._stream = self._socket.makefile("rb")

    def send(self, data: bytes) -> None:
        """Send these bytes."""
        self._socket.sendall(data)

    def read(self) -> bytes:
        """Return the next whole frame, length included.

        Raises:
            ConnectionError: the peer closed the connection.
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
