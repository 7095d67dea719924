"""A broker that has one prepared answer per API and version: ApiVersions, Metadata, Produce, Fetch.

It is cheap, so that the bench measures the proxy. `bench/harness/peer.c` does the same faster and is used where a C compiler is installed.

    python -m bench.harness.stub_broker TEMPLATES PORT            on 127.0.0.1; prints "ready", ends when its standard input ends
"""

import asyncio
import sys

import uvloop

from bench.harness.frames import Template
from bench.harness.pump import BACKLOG, HOST, stdin_ended
from bench.harness.wire import FrameHeads, read_templates

HEAD_BYTES = 12  # length, api key, version, correlation id
PIECE_BYTES = 1 << 20


class StubBroker(asyncio.Protocol):
    """One connection. Small answers are written at once, larger ones piece by piece as the socket accepts them."""

    def __init__(self, whole: dict[bytes, bytes], templates: dict[bytes, Template]) -> None:
        self._whole = whole
        self._templates = templates
        self._frames = FrameHeads(HEAD_BYTES)
        self._waiting: list[bytes] = []
        self._writable = asyncio.Event()
        self._writable.set()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        heads, _ = self._frames.heads(data)
        if self._task is None and all(head[4:8] in self._whole for head in heads):
            answers = [part for head in heads for part in self._small(head)]
            self._transport.write(b"".join(answers))
            return
        self._waiting += heads
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._answer_slowly())

    def _small(self, head: bytes) -> tuple[bytes, bytes, bytes]:
        answer = self._whole[head[4:8]]
        return answer[:4], head[8:12], answer[8:]

    async def _answer_slowly(self) -> None:
        while self._waiting:
            head = self._waiting.pop(0)
            template = self._templates[head[4:8]]
            await self._write(template.prefix[:4] + head[8:12] + template.prefix[8:])
            left = template.filler
            while left:
                step = min(left, PIECE_BYTES)
                await self._write(ZEROS if step == PIECE_BYTES else bytes(step))
                left -= step
            await self._write(template.suffix)
        self._task = None

    async def _write(self, data: bytes) -> None:
        await self._writable.wait()
        self._transport.write(data)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()


ZEROS = bytes(PIECE_BYTES)


async def serve(templates: list[Template], port: int) -> None:
    """Answer until standard input ends."""
    by_head = {t.key.to_bytes(2, "big") + t.version.to_bytes(2, "big"): t for t in templates}
    whole = {head: t.whole() for head, t in by_head.items() if t.size <= 64 << 10}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: StubBroker(whole, by_head), HOST, port, backlog=BACKLOG)
    print("ready", flush=True)
    await stdin_ended()
    server.close()


if __name__ == "__main__":
    uvloop.run(serve(read_templates(sys.argv[1]), int(sys.argv[2])))
