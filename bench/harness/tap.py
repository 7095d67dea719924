"""A relay in front of a broker that records answered requests, repeated batches and closed connections.

It takes one request at a time from a connection, as a broker does, so that a client has the same back-pressure; at most one frame more than
without it is in flight.
"""

import asyncio
import contextlib
import hashlib
import struct
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field

from bench.harness.engine import HOST
from bench.harness.frames import FLEXIBLE_SINCE, PRODUCE
from bench.harness.records import BATCH_HEAD_BYTES
from tests.support.ports import free_port

BROKER_RECEIVE_BUFFER_BYTES = 102_400  # Kafka's socket.receive.buffer.bytes


@dataclass
class ClientTrace:
    """The requests of one client-id in the seconds since its first Produce request: clients take time to start."""

    first_at: float = 0.0
    produce_requests: int = 0
    passed_bytes: int = 0
    sent_again: int = 0
    disconnects: int = 0
    seen: set[bytes] = field(default_factory=set)


class Tap:
    """Runs on a thread and loop of its own. A context manager.

    Args:
        seconds: how long the requests of a client are counted.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.port = free_port()
        self.upstream_port = 0
        self.clients: defaultdict[str, ClientTrace] = defaultdict(ClientTrace)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Tap":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def is_over(self, client_id: str) -> bool:
        """Whether a client has had its seconds."""
        trace = self.clients.get(client_id)
        return trace is not None and self._is_over(trace)

    def _is_over(self, trace: ClientTrace) -> bool:
        return time.monotonic() - trace.first_at >= self.seconds

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(asyncio.start_server(self._serve, HOST, self.port, limit=BROKER_RECEIVE_BUFFER_BYTES))
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    async def _serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        producer: ClientTrace | None = None
        try:
            broker_in, broker_out = await asyncio.open_connection(HOST, self.upstream_port, limit=BROKER_RECEIVE_BUFFER_BYTES)
            with contextlib.closing(broker_out):
                while True:
                    request = await _frame(client_in)
                    trace = self._note(request)
                    producer = trace or producer
                    broker_out.write(request)
                    await broker_out.drain()
                    client_out.write(await _frame(broker_in))
                    await client_out.drain()
                    if trace and not self._is_over(trace):
                        trace.produce_requests += 1
                        trace.passed_bytes += len(request)
        except (OSError, asyncio.IncompleteReadError):
            if producer and not self._is_over(producer):
                producer.disconnects += 1
        finally:
            client_out.close()

    def _note(self, request: bytes) -> ClientTrace | None:
        key, version, _, id_length = struct.unpack_from(">hhih", request, 4)
        if key != PRODUCE:
            return None
        trace = self.clients[request[14 : 14 + max(id_length, 0)].decode()]
        trace.first_at = trace.first_at or time.monotonic()
        if self._is_over(trace):
            return trace
        for batch in produced_batches(request, version, 14 + max(id_length, 0)):
            mark = hashlib.blake2b(batch[BATCH_HEAD_BYTES:], digest_size=16).digest()
            trace.sent_again += mark in trace.seen
            trace.seen.add(mark)
        return trace


async def _frame(stream: asyncio.StreamReader) -> bytes:
    head = await stream.readexactly(4)
    return head + await stream.readexactly(int.from_bytes(head, "big"))


def produced_batches(request: bytes, version: int, at: int) -> list[bytes]:
    """Return the record batches of a Produce v3+ request, one per partition; `at` is the offset after the client-id."""
    walk = _Walk(request, at, version >= FLEXIBLE_SINCE[PRODUCE])
    walk.tags()
    walk.string()
    walk.at += 2 + 4
    batches = []
    for _ in range(walk.count()):
        if version >= 13:
            walk.at += 16
        else:
            walk.string()
        for _ in range(walk.count()):
            walk.at += 4
            size = max(walk.count(), 0)
            batches.append(request[walk.at : walk.at + size])
            walk.at += size
            walk.tags()
        walk.tags()
    return batches


class _Walk:
    def __init__(self, data: bytes, at: int, flexible: bool) -> None:
        self.data, self.at, self._flexible = data, at, flexible

    def _uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def count(self) -> int:
        if self._flexible:
            return self._uvarint() - 1
        self.at += 4
        return struct.unpack_from(">i", self.data, self.at - 4)[0]

    def string(self) -> None:
        if self._flexible:
            length = self._uvarint() - 1  # read before the addition: += would use the old position
            self.at += max(length, 0)
            return
        (length,) = struct.unpack_from(">h", self.data, self.at)
        self.at += 2 + max(length, 0)

    def tags(self) -> None:
        for _ in range(self._uvarint() if self._flexible else 0):
            self._uvarint()
            size = self._uvarint()
            self.at += size
