"""Clients that try to exhaust the proxy's memory: each attack runs in a child process until its standard input ends.

python -m bench.exhaustion.attacks ATTACK PORT
"""

import asyncio
import resource
import struct
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

import uvloop

from bench.harness.engine import HOST
from bench.harness.frames import api_versions_request, metadata_request, produce_request
from bench.harness.pump import stdin_ended
from protocol.api_keys import API_VERSIONS, Treatment

KIB, MIB = 1 << 10, 1 << 20
ALTER_CLIENT_QUOTAS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 49, 17, 36
LARGE_METADATA_VERSION = 7
TOKEN_BYTES = 64 * KIB - 64
HEAD_FIELDS, HEAD_FIELD_BYTES = 3, 52 * KIB
NAME_BYTES = 32_000
PAUSE_S = 0.05

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def _request(key: int, version: int, rest: bytes, *, client_id: bytes = b"x") -> bytes:
    body = struct.pack(">hhih", key, version, 1, len(client_id)) + client_id + rest
    return struct.pack(">i", len(body)) + body


async def unfinished_frames(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A quota request of 4 MiB without its last byte."""
    writer.write(_request(ALTER_CLIENT_QUOTAS, 0, bytes(4 * MIB - 64))[:-1])
    await writer.drain()


async def unfinished_tokens(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The largest token allowed before a login, without its last byte."""
    writer.write(_request(SASL_HANDSHAKE, 1, b"\0\5PLAIN"))
    await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    writer.write(_request(SASL_AUTHENTICATE, 1, struct.pack(">i", TOKEN_BYTES) + bytes(TOKEN_BYTES))[:-1])
    await writer.drain()


async def unread_metadata(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """50 MB of Metadata that the client does not read."""
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(metadata_request(LARGE_METADATA_VERSION).whole())
    await writer.drain()


async def long_heads(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """64 API versions, each with a tagged header of 156 KiB."""
    tags = bytes([HEAD_FIELDS]) + b"".join(bytes([tag]) + b"\x80\xa0\x03" + bytes(HEAD_FIELD_BYTES) for tag in range(HEAD_FIELDS))
    flexible = [api for api in API_VERSIONS.values() if api.request_header_version == 2 and api.treatment is Treatment.PASS and api.key > 8]
    for api in flexible[:64]:
        writer.write(_request(api.key, api.version, tags + bytes(16)))
        await writer.drain()


async def long_names(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Client-ids of 32 kB, one after the other."""
    number = 0
    while True:
        for _ in range(20):
            number += 1
            writer.write(produce_request(7, filler=10, client_id=f"{number:08}" + "n" * NAME_BYTES).whole())
        await writer.drain()
        for _ in range(20):
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


ATTACKS: dict[str, tuple[int, Talk]] = {
    "unfinished-frames": (600, unfinished_frames),
    "unfinished-tokens": (1_500, unfinished_tokens),
    "unread-metadata": (40, unread_metadata),
    "long-heads": (50, long_heads),
    "long-names": (1, long_names),
}
"""Attacks with their number of connections."""


async def _again_and_again(talk: Talk, port: int) -> None:
    """Reconnect whenever the connection closes."""
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(api_versions_request(0).whole())
                await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                await talk(reader, writer)
                while not writer.transport.is_closing() and not reader.at_eof():  # noqa: ASYNC110 - nothing is read that could tell
                    await asyncio.sleep(PAUSE_S)
            finally:
                writer.transport.abort()
        await asyncio.sleep(PAUSE_S)


async def _attack(name: str, port: int) -> None:
    count, talk = ATTACKS[name]
    tasks = [asyncio.create_task(_again_and_again(talk, port)) for _ in range(count)]
    print("ready", flush=True)
    await stdin_ended()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    uvloop.run(_attack(sys.argv[1], int(sys.argv[2])))
