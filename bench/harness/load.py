"""The load generator: a closed loop, a paced load, or connection churn, each connection with one request template.

`bench/harness/peer.c` does the same faster and is used where a C compiler is; this one is used elsewhere.

    python -m bench.harness.load TEMPLATES PORT CONNS DEPTH RATE CHURN COUNTER [CA]
        RATE   requests per second in all, 0 = as fast as the answers come (closed loop)
        CHURN  1 = connect, one request, close; with a RATE so many connections a second, CONNS at most at a time, each of which
               asks the first template and then, in turn, one of the others
        COUNTER  a file of 8 bytes that holds the number of answers so far (mapped, little endian)
        CA     speak TLS, and trust these authorities
"""

import asyncio
import itertools
import mmap
import ssl
import struct
import sys
from pathlib import Path

import uvloop

from bench.harness.frames import Template
from bench.harness.pump import HOST, stdin_ended
from bench.harness.wire import FrameHeads, read_templates

HEAD_BYTES = 8  # length, correlation id
PACE_SECONDS = 0.001


class Counter:
    """Answers received so far, readable by the parent at any time."""

    def __init__(self, path: str) -> None:
        with Path(path).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)
        self.value = 0

    def add(self, count: int) -> None:
        self.value += count
        struct.pack_into("<q", self._map, 0, self.value)


class LoadConnection(asyncio.Protocol):
    """One connection with `depth` requests in flight; the answers must come in the order of the requests."""

    def __init__(self, template: Template, counter: Counter, *, refill: bool) -> None:
        frame = template.whole()
        self._before, self._after = frame[:8], frame[12:]
        self._counter = counter
        self._refill = refill
        self._frames = FrameHeads(HEAD_BYTES)
        self._next_correlation = self._next_answer = 0
        self.in_flight = 0
        self.first_answer = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def send(self, count: int) -> None:
        """Send `count` requests in one write."""
        parts = []
        for _ in range(count):
            parts += (self._before, self._next_correlation.to_bytes(4, "big"), self._after)
            self._next_correlation += 1
        self.in_flight += count
        self.transport.write(b"".join(parts))

    def data_received(self, data: bytes) -> None:
        heads, ended = self._frames.heads(data)
        for head in heads:
            if int.from_bytes(head[4:8], "big") != self._next_answer:
                sys.exit("answer out of order")
            self._next_answer += 1
        if not ended:
            return
        self.in_flight -= ended
        self._counter.add(ended)
        if self._refill:
            self.send(ended)
        if not self.first_answer.done():
            self.first_answer.set_result(None)


async def closed_loop(connections: list[LoadConnection], depth: int) -> None:
    for connection in connections:
        connection.send(depth)


async def paced(connections: list[LoadConnection], depth: int, rate: float) -> None:
    """Spread `rate` requests per second evenly over the connections."""
    loop = asyncio.get_running_loop()
    start, sent = loop.time(), 0
    while True:
        await asyncio.sleep(PACE_SECONDS)
        due = int((loop.time() - start) * rate)
        for turn in range(sent, due):
            connection = connections[turn % len(connections)]
            if connection.in_flight < depth:
                connection.send(1)
        sent = due


async def churn(make: object, port: int, tls: ssl.SSLContext | None) -> None:
    """Connect, send one request, close; without end."""
    loop = asyncio.get_running_loop()
    while True:
        transport, connection = await loop.create_connection(make, HOST, port, ssl=tls)
        connection.send(1)
        await connection.first_answer
        transport.close()


async def visit(port: int, templates: list[Template], counter: Counter, free: asyncio.Semaphore) -> None:
    """Connect, send the requests one after the other, close."""
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
        for template in templates:
            writer.write(template.whole())
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        writer.close()
        counter.add(1)
    finally:
        free.release()


async def paced_churn(port: int, templates: list[Template], conns: int, rate: float, counter: Counter) -> None:
    """Make `rate` connections a second."""
    first, others = templates[:1], itertools.cycle(templates[1:] or [None])
    loop, free, visits = asyncio.get_running_loop(), asyncio.Semaphore(conns), set()
    start, begun = loop.time(), 0
    while True:
        await asyncio.sleep(PACE_SECONDS)
        due = int((loop.time() - start) * rate)
        for _ in range(due - begun):
            if free.locked():
                continue
            await free.acquire()
            task = loop.create_task(visit(port, [*first, *filter(None, [next(others)])], counter, free))
            visits.add(task)
            task.add_done_callback(visits.discard)
        begun = due


async def run(
    templates: list[Template],
    port: int,
    conns: int,
    depth: int,
    rate: float,
    is_churn: bool,
    counter: Counter,
    tls: ssl.SSLContext | None,
) -> None:
    """Generate load until standard input ends."""
    loop = asyncio.get_running_loop()
    turns = itertools.cycle(templates)

    def make() -> LoadConnection:
        return LoadConnection(next(turns), counter, refill=not is_churn and not rate)

    if is_churn and rate:
        tasks = [loop.create_task(paced_churn(port, templates, conns, rate, counter))]
    elif is_churn:
        tasks = [loop.create_task(churn(make, port, tls)) for _ in range(conns)]
    else:
        connections = [(await loop.create_connection(make, HOST, port, ssl=tls))[1] for _ in range(conns)]
        tasks = [loop.create_task(paced(connections, depth, rate) if rate else closed_loop(connections, depth))]
    print("ready", flush=True)
    await stdin_ended()
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    _template, _port, _conns, _depth, _rate, _churn, _counter, *_ca = sys.argv[1:]
    _tls = ssl.create_default_context(cafile=_ca[0]) if _ca else None
    uvloop.run(run(read_templates(_template), int(_port), int(_conns), int(_depth), float(_rate), _churn == "1", Counter(_counter), _tls))
