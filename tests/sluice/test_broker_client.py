"""Which bytes a connection to a broker accepts as an answer."""

import asyncio

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import BadResponseError
from sluice.broker_client import ANSWER_BYTES_MAX, BrokerClient, version_of

REQUEST = bytes.fromhex("0000000a 0012 0000 00000007 0000")


async def asked(answer: bytes) -> bytes:
    """Send `REQUEST` to a broker that answers with these bytes and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(len(REQUEST)) == REQUEST
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        client = BrokerClient(*await asyncio.open_connection(*server.sockets[0].getsockname()), "test")
        try:
            return await client.ask(REQUEST)
        finally:
            await client.close()


async def test_an_answer_comes_with_its_length() -> None:
    """The frame is returned whole, without the bytes after it."""
    answer = bytes.fromhex("00000006 00000007 0000")
    assert await asked(answer + b"more") == answer


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (bytes.fromhex("00000006 00000008 0000"), "a response to another request"),
        (bytes.fromhex("00000003 000000"), "a response of 3 bytes"),
        (bytes.fromhex("ffffffff"), "a response of -1 bytes"),
        ((ANSWER_BYTES_MAX + 1).to_bytes(4, "big"), f"a response of {ANSWER_BYTES_MAX + 1} bytes"),
    ],
)
async def test_what_is_no_answer_is_refused(answer: bytes, problem: str) -> None:
    """A wrong correlation id or an invalid length is refused, and no further bytes are read."""
    with pytest.raises(BadResponseError, match=f"^{problem}$"):
        await asked(answer)


async def test_a_broker_that_closes_gave_no_answer() -> None:
    """A partial frame before the close is no answer."""
    with pytest.raises(asyncio.IncompleteReadError):
        await asked(bytes.fromhex("00000006 0000"))


def test_the_first_common_version_is_taken() -> None:
    """The first version in the caller's order that the broker supports is used, and an API that the broker lacks has none."""
    assert version_of({ApiKey.METADATA: (1, 8)}, ApiKey.METADATA, (9, 4, 1)) == 4
    assert version_of({ApiKey.METADATA: (10, 12)}, ApiKey.METADATA, (9, 4, 1)) is None
    assert version_of({}, ApiKey.METADATA, (9, 4, 1)) is None
