"""The memory rows: idle connections, slow readers of large answers, and the longest stall of the loop at 1,000 connections."""

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass

from bench.harness.arms import Arm, Starter, start_pump, start_sluice
from bench.harness.engine import HOST, Engine, rss_bytes
from bench.harness.frames import api_versions_request, fetch_request, produce_request

KIB, MIB = 1 << 10, 1 << 20
IDLE_CONNECTIONS = 1_000
READERS, READER_BYTES_PER_SECOND, READER_ANSWER_BYTES = 50, KIB, 55 * MIB
STALL_CONNECTIONS, STALL_RATE = 1_000, 2_000.0


@dataclass
class MemoryRow:
    """A figure and its goal; `figure` is None where it could not be read."""

    name: str
    proxy: str
    figure: float | None
    unit: str
    goal: float

    @property
    def verdict(self) -> str:
        if self.figure is None:
            return "not available"
        return "ok" if self.figure <= self.goal else "miss"


def memory_lines(rows: list[MemoryRow]) -> list[str]:
    """Return the memory table in Markdown; only Sluice is judged."""
    lines = ["| memory and more | proxy | figure | goal | |", "|---|---|--:|--:|---|"]
    for row in rows:
        figure = "-" if row.figure is None else f"{row.figure:.2f} {row.unit}"
        judged = (f"<= {row.goal:g} {row.unit}", row.verdict) if row.proxy == "sluice" else ("", "")
        lines.append(f"| {row.name} | {row.proxy} | {figure} | {judged[0]} | {judged[1]} |")
    return lines


def idle(engine: Engine, *, quick: bool) -> list[MemoryRow]:
    """Measure resident memory per connection that asked for ApiVersions once and sends no more."""
    count = IDLE_CONNECTIONS // 4 if quick else IDLE_CONNECTIONS
    return [
        MemoryRow(f"idle connection ({count:,} of them)", *figure, "KiB", 24) for figure in _both(engine, 1, lambda arm: _idle(arm, count))
    ]


def _both(engine: Engine, fetch_record_bytes: int, measure: Callable[[Arm], float | None]) -> list[tuple[str, float | None]]:
    figures = []
    starters: list[Starter] = [start_pump, start_sluice]
    for start in starters:
        stub, port = engine.stub(fetch_record_bytes)
        try:
            arm = start(port, engine.folder)
            try:
                figures.append((arm.name, measure(arm)))
            finally:
                arm.stop()
        finally:
            stub.stop()
    return figures


def _idle(arm: Arm, count: int) -> float:
    request = api_versions_request(3).whole()
    with ExitStack() as stack:
        for _ in range(20):  # one-time memory of the first connections
            ask(stack, arm.port, request)
        before = rss_bytes(arm.pids())
        for _ in range(count):
            ask(stack, arm.port, request)
        time.sleep(1)
        return (rss_bytes(arm.pids()) - before) / count / KIB


def ask(stack: ExitStack, port: int, request: bytes) -> None:
    """Connect, send one request and read its answer; the connection closes with `stack`."""
    connection = stack.enter_context(socket.create_connection((HOST, port), 10))
    connection.sendall(request)
    left = int.from_bytes(_exactly(connection, 4), "big")
    _exactly(connection, left)


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            raise OSError("closed in the middle of an answer")
        parts += part
    return bytes(parts)


def closed(engine: Engine, *, quick: bool) -> list[MemoryRow]:
    """Measure the memory that remains of connections that asked once and closed."""
    seconds = 4 if quick else 15
    rows = []
    for start in (start_pump, start_sluice):
        stub, port = engine.stub(1)
        arm = start(port, engine.folder)
        try:
            before = rss_bytes(arm.pids())
            load = engine.load(api_versions_request(3), arm.port, conns=8, churn=True)
            time.sleep(seconds)
            count = load.done()
            load.stop()
            time.sleep(1)
            grown = (rss_bytes(arm.pids()) - before) / MIB
        finally:
            arm.stop()
            stub.stop()
        rows.append(MemoryRow(f"growth after connections that came and went ({count:,} of them)", arm.name, grown, "MiB", 32))
    return rows


def slow_readers(engine: Engine, *, quick: bool) -> list[MemoryRow]:
    """Measure resident memory per client that reads 1 KiB/s of an answer of 55 MiB."""
    seconds = 4 if quick else 15
    title = f"slow reader of 55 MiB answers ({READERS} at 1 KiB/s, {seconds} s)"
    figures = _both(engine, READER_ANSWER_BYTES, lambda arm: asyncio.run(_slow_readers(arm, seconds)))
    return [MemoryRow(title, *figure, "MiB", 0.6) for figure in figures]


async def _slow_readers(arm: Arm, seconds: int) -> float:
    request = fetch_request(11).whole()
    loop = asyncio.get_running_loop()
    before = rss_bytes(arm.pids())
    async with AsyncExitStack() as stack:
        readers = []
        for _ in range(READERS):
            reader = socket.socket()
            stack.callback(reader.close)
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
            reader.setblocking(False)
            await loop.sock_connect(reader, (HOST, arm.port))
            await loop.sock_sendall(reader, request)
            readers.append(reader)
        highest = 0
        for _ in range(seconds):
            await asyncio.sleep(1)
            for reader in readers:
                await loop.sock_recv(reader, READER_BYTES_PER_SECOND)
            highest = max(highest, rss_bytes(arm.pids()))
    return (highest - before) / READERS / MIB


LAG_METRICS = ("kafka_sluice_loop_lag_seconds_max", "kafka_sluice_loop_lag_max_seconds", "kafka_sluice_loop_lag_seconds")


def loop_stall(engine: Engine, *, quick: bool) -> list[MemoryRow]:
    """Return the longest stall of the loop under 1,000 connections, as the proxy itself measures it."""
    stub, port = engine.stub(1)
    try:
        arm = start_sluice(port, engine.folder)
        try:
            figure = _loop_stall(engine, arm, 4 if quick else 15)
        finally:
            arm.stop()
    finally:
        stub.stop()
    title = f"longest loop stall ({STALL_CONNECTIONS:,} connections, {STALL_RATE:,.0f} requests/s)"
    return [MemoryRow(title, "sluice", figure, "ms", 50)]


def _loop_stall(engine: Engine, arm: Arm, seconds: int) -> float | None:
    load = engine.load(produce_request(7, filler=200), arm.port, conns=STALL_CONNECTIONS, rate=STALL_RATE)
    highest: float | None = None
    try:
        for _ in range(seconds):
            time.sleep(1)
            seen = next((value for value in map(arm.metric, LAG_METRICS) if value is not None), None)
            highest = seen if highest is None else max(highest, seen or 0.0)
    finally:
        load.stop()
    return None if highest is None else highest * 1_000


MEMORY_ROWS: dict[str, Callable[..., list[MemoryRow]]] = {
    "memory-idle": idle,
    "memory-closed": closed,
    "memory-slow-readers": slow_readers,
    "loop-stall": loop_stall,
}
