"""Clients that always have more to send or to fetch: one request in flight per connection, over raw sockets.

They ignore throttle_time_ms unless configured otherwise, as librdkafka and aiokafka do: then only the broker or the proxy limits them.
"""

import asyncio
import random
import struct
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.harness.engine import HOST
from bench.harness.frames import fetch_request, produce_request
from bench.harness.records import record_batch, whole_batches

PRODUCE_VERSION, FETCH_VERSION = 7, 11
Sample = tuple[float, int, int]


@dataclass
class Passed:
    """What passed: (seconds since the start, bytes, announced throttle ms) of each answer."""

    start: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)
    disconnects: int = 0

    def note(self, size: int, throttle_ms: int) -> None:
        self.samples.append((time.monotonic() - self.start, size, throttle_ms))

    def rate(self, after: float, until: float) -> float:
        """Return the bytes per second between two times."""
        return sum(size for at, size, _ in self.samples if after <= at < until) / (until - after)

    @property
    def throttle_ms_max(self) -> int:
        """Return the longest throttle time that was announced to a client."""
        return max((ms for _, _, ms in self.samples), default=0)


@dataclass(frozen=True)
class Place:
    """The address and the identity of a client; it connects from `source`, or from the address that the system chooses."""

    port: int
    client_id: str
    topic: str
    request_bytes: int
    obeys_throttle: bool = False
    host: str = HOST
    source: str | None = None


async def saturate(kind: str, place: Place, connections: int, seconds: float) -> Passed:
    """Run `connections` producers or fetchers of one client-id for `seconds`."""
    async with saturating(kind, place, connections) as passed:
        await asyncio.sleep(seconds)
    return passed


@asynccontextmanager
async def saturating(kind: str, place: Place, connections: int, *, within_s: float = 0.0) -> AsyncIterator[Passed]:
    """Run `connections` producers or fetchers of one client-id inside the block. They begin at random times within `within_s`."""
    passed = Passed()
    one: Callable[[Place, Passed], Coroutine[Any, Any, None]] = {"produce": _producer, "fetch": _fetcher}[kind]
    tasks = [asyncio.create_task(_again(one, place, passed, random.uniform(0.0, within_s))) for _ in range(connections)]
    try:
        yield passed
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        if not isinstance(outcome, asyncio.CancelledError):
            raise outcome


async def _again(one: Callable[[Place, Passed], Coroutine[Any, Any, None]], place: Place, passed: Passed, pause_s: float) -> None:
    await asyncio.sleep(pause_s)
    while True:
        try:
            await one(place, passed)
        except OSError:
            passed.disconnects += 1
            await asyncio.sleep(0.1)


class Wire:
    """One connection: a request, its answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._correlation = 0

    @classmethod
    async def open(cls, port: int, host: str = HOST, source: str | None = None) -> "Wire":
        local = None if source is None else (source, 0)
        return cls(*await asyncio.open_connection(host, port, limit=1 << 20, local_addr=local))

    async def ask(self, frame: bytes) -> bytes:
        """Send a request frame and return the answer's bytes after its length.

        Raises:
            OSError: the connection ended.
        """
        self._correlation += 1
        self._writer.writelines((frame[:8], self._correlation.to_bytes(4, "big"), frame[12:]))
        await self._writer.drain()
        try:
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            answer = await self._reader.readexactly(size)
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError("closed instead of an answer") from error
        assert int.from_bytes(answer[:4], "big") == self._correlation
        return answer

    def close(self) -> None:
        self._writer.close()


async def _producer(place: Place, passed: Passed) -> None:
    wire = await Wire.open(place.port, place.host, place.source)
    frame = produce_frame(place)
    try:
        while True:
            answer = await wire.ask(frame)
            (error,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(place.topic) + 4 + 4)
            assert error == 0, f"Produce was answered with error {error}"
            await _note(place, passed, len(frame) - 4, *struct.unpack(">i", answer[-4:]))
    finally:
        wire.close()


def produce_frame(place: Place) -> bytes:
    """Return a Produce request of one batch; `request_bytes` is the value of its one record."""
    batch = record_batch(bytes(place.request_bytes))
    return produce_request(PRODUCE_VERSION, batch, client_id=place.client_id, topic=place.topic).whole()


async def _fetcher(place: Place, passed: Passed) -> None:
    wire, offset = await Wire.open(place.port, place.host, place.source), 0
    try:
        while True:
            request = fetch_request(
                FETCH_VERSION,
                offset=offset,
                max_bytes=place.request_bytes,
                partition_max_bytes=place.request_bytes,
                client_id=place.client_id,
                topic=place.topic,
            )
            answer = await wire.ask(request.whole())
            throttle_ms, records = read_fetch_answer(answer)
            if records is not None:
                batches = whole_batches(records)
                offset = batches[-1][2] if batches else 0
            await _note(place, passed, len(answer), throttle_ms)
    finally:
        wire.close()


def read_fetch_answer(answer: bytes) -> tuple[int, memoryview | None]:
    """Return (throttle_time_ms, records) of a Fetch v11 answer for one partition; a throttle may have removed all records."""
    throttle_ms, error, _, topics = struct.unpack_from(">ihii", answer, 4)
    assert error == 0, f"Fetch was answered with error {error}"
    if not topics:
        return throttle_ms, None
    (name_length,) = struct.unpack_from(">h", answer, 18)
    at = 20 + name_length + 4
    _, error = struct.unpack_from(">ih", answer, at)
    assert error == 0, f"a partition was answered with error {error}"
    at += 4 + 2 + 3 * 8
    (aborted,) = struct.unpack_from(">i", answer, at)
    at += 4 + max(aborted, 0) * 16 + 4
    (size,) = struct.unpack_from(">i", answer, at)
    return throttle_ms, memoryview(answer)[at + 4 : at + 4 + max(size, 0)]


async def _note(place: Place, passed: Passed, size: int, throttle_ms: int) -> None:
    passed.note(size, throttle_ms)
    if place.obeys_throttle and throttle_ms > 0:
        await asyncio.sleep(throttle_ms / 1_000)


async def preload(port: int, topic: str, batches: int, batch_bytes: int) -> None:
    """Fill a topic for the fetchers."""
    wire = await Wire.open(port)
    frame = produce_frame(Place(port, "preload", topic, batch_bytes))
    for _ in range(batches):
        await wire.ask(frame)
    wire.close()
