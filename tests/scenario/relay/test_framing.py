"""Rows D1, D9, D10 and D11: unfinished frames, invalid lengths, other protocols, and malformed headers."""

import logging
import struct

import pytest

from protocol.limits import MAX_HEADER_BYTES, MAX_REQUEST_BYTES
from proxy.net.connection import Connection
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_client import ClosedByPeerError
from tests.support.scripted.scripted_frames import (
    FETCH,
    PRODUCE,
    api_versions_request,
    fetch_request,
    framed,
    metadata_request,
    produce_request,
    request,
    split_frames,
    uvarint,
)
from tests.support.scripted.scripted_sockets import End, until

STREAM = produce_request(1, b"one" * 11, version=9) + metadata_request(2) + produce_request(3, b"three" * 7, version=3)
CUTS_AT_ONCE = 50
INT32_MAX = 2**31 - 1


# --- D1


@pytest.mark.parametrize("leaves", ["closes", "half-closes"])
async def test_d01_disconnect_mid_frame(leaves: str) -> None:
    """Wherever a client's stream ends, the broker receives a prefix of it with all whole frames, then FIN."""
    whole_frames, _ = split_frames(STREAM)
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        cuts = list(range(1, len(STREAM) + 1))
        for first in range(0, len(cuts), CUTS_AT_ONCE):
            some = cuts[first : first + CUTS_AT_ONCE]
            for cut in some:
                client = await sluice.client()
                await client.send(STREAM[:cut])
                await broker.connection(len(broker.connections))
                client.close() if leaves == "closes" else client.half_close()
            await broker.until_quiet()
        assert len(broker.connections) == len(cuts)
        for cut, connection in zip(cuts, broker.connections, strict=True):
            whole, _ = split_frames(STREAM[:cut])
            assert STREAM.startswith(bytes(connection.received))
            assert [asked.frame for asked in connection.requests] == whole_frames[: len(whole)]
            assert connection.ended is End.FIN
    assert sum(sluice.closes.values()) == len(cuts) + 1


async def test_d01_whole_frames_before_a_broken_one_still_count() -> None:
    """Frames before an invalid one reach the broker, although all arrived in one segment."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        for bad in (struct.pack(">i", -1), request(999, 0, b"", 3), framed(struct.pack(">hhih", PRODUCE, 9, 3, 32_767) + bytes(10))):
            client = await sluice.client()
            await client.send(produce_request(1) + produce_request(2) + bad)
            await client.read_to_end()
            connection = broker.connections[-1]
            assert await connection.until_ended() is End.FIN
            assert bytes(connection.received) == produce_request(1) + produce_request(2)


# --- D9


async def until_kept(connection: Connection, count: int) -> None:
    """Wait until Sluice holds `count` bytes that it has not forwarded."""
    await until(lambda: connection.session.requests.pending.kept_bytes == count)


@pytest.mark.parametrize("size", [pytest.param(size, id=str(size)) for size in (-INT32_MAX - 1, -1, 0, MAX_REQUEST_BYTES + 1, INT32_MAX)])
@pytest.mark.parametrize("in_pieces", [False, True], ids=["at-once", "byte-by-byte"])
async def test_d09_length_that_no_frame_may_have(size: int, *, in_pieces: bool) -> None:
    """An invalid length closes the connection at its fourth byte, and nothing is forwarded."""
    tries = 3 if in_pieces else 25
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        for _ in range(tries):
            client = await sluice.client()
            length = struct.pack(">i", size)
            if in_pieces:
                (connection,) = await sluice.until_connections(1)
                for at in range(3):
                    await client.send(length[at : at + 1])
                    await until_kept(connection, at + 1)
                await client.send(length[3:])
            else:
                await client.send(length)
            assert await client.read_to_end() == b""
            assert client.ended is End.FIN
            await until(lambda: not sluice.connections)
        await broker.until_quiet()
        assert sluice.closes == {"frame_size": tries}
        assert all(connection.received == b"" for connection in broker.connections)


async def test_d09_largest_frame_begins_to_pass() -> None:
    """A frame of exactly the size limit is forwarded before its body is complete."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        frame = produce_request(1, bytes(1_000), version=7)
        await client.send(struct.pack(">i", MAX_REQUEST_BYTES) + frame[4:])
        connection = await broker.connection()
        await until(lambda: len(connection.received) == len(frame))
        assert sluice.closes == {}


async def test_d09_a_request_that_is_answered_here_is_not_kept_beyond_a_header() -> None:
    """An ApiVersions request of an unknown version that is longer than `MAX_HEADER_BYTES` closes the connection."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        frame = api_versions_request(1, version=99)
        await client.send(struct.pack(">i", MAX_HEADER_BYTES + 1) + frame[4:])
        assert await client.read_to_end() == b""
        assert sluice.closes == {"frame_size": 1}


async def test_d09_length_below_a_header() -> None:
    """A length below the smallest request header closes the connection before the body arrives."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        for size in range(1, 8):
            client = await sluice.client()
            await client.send(struct.pack(">i", size))
            assert await client.read_to_end() == b""
        assert sluice.closes == {"bad_header": 7}


# --- D10

TLS_CLIENT_HELLO = bytes.fromhex("16030102000100 01fc0303") + bytes(range(200))
NOT_KAFKA = [
    pytest.param(b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n", "not_kafka_http", id="http-get"),
    pytest.param(b"POST /topics HTTP/1.1\r\n\r\n", "not_kafka_http", id="http-post"),
    pytest.param(b"HEAD / HTTP/1.0\r\n\r\n", "not_kafka_http", id="http-head"),
    pytest.param(b"OPTIONS / HTTP/1.0\r\n\r\n", "not_kafka_http", id="http-options"),
    pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "not_kafka_http", id="http-2"),
    pytest.param(TLS_CLIENT_HELLO, "not_kafka_tls", id="tls"),
    pytest.param(b"PROXY TCP4 10.0.0.1 10.0.0.2 5000 9092\r\n", "not_kafka_proxy_header", id="proxy-v1"),
    pytest.param(b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12), "not_kafka_proxy_header", id="proxy-v2"),
    pytest.param(b"SSH-2.0-OpenSSH_9.7\r\n", "frame_size", id="ssh"),
    pytest.param(b"AMQP\x00\x00\x09\x01", "frame_size", id="amqp"),
    pytest.param(bytes(64), "frame_size", id="zeros"),
    pytest.param(b"*1\r\n$4\r\nPING\r\n", "frame_size", id="redis"),
    pytest.param(b"STATS\r\n", "frame_size", id="memcached"),
    pytest.param(struct.pack(">iii", 8, 80_877_103, 0), "api_unknown", id="postgres"),
    pytest.param(bytes.fromhex("0000001fdeadbeef") + bytes(31), "api_unknown", id="garbage-with-a-likely-length"),
]


@pytest.mark.parametrize(("corpus", "reason"), NOT_KAFKA)
async def test_d10_what_is_not_kafka(corpus: bytes, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    """Another protocol is closed without a response and logged once with its reason, and no byte of it reaches a broker."""
    caplog.set_level(logging.INFO, logger="sluice")
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await client.send(corpus)
        assert await client.read_to_end() == b""
        assert sluice.closes == {reason: 1}
        assert (await broker.connection()).received == b""
        lines = [record for record in caplog.records if record.message == "connection_closed"]
        assert len(lines) == 1


# --- D11


def flexible_produce(header_tags: bytes) -> bytes:
    """Return a Produce with these bytes as the tagged fields of its header."""
    return produce_request(1, header_tags=header_tags)


def tag(number: int, size: int) -> bytes:
    """Return one tagged field of zeros."""
    return uvarint(number) + uvarint(size) + bytes(size)


def tags(*fields: bytes) -> bytes:
    """Return a section of tagged fields."""
    return uvarint(len(fields)) + b"".join(fields)


async def closes_for(sluice: RunningGateway, frame: bytes) -> dict[str, int]:
    """Send a frame on a new connection and return the reasons of the close."""
    client = await sluice.client()
    before = dict(sluice.closes)
    await client.send(frame)
    assert await client.read_to_end() == b""
    return {reason: count - before.get(reason, 0) for reason, count in sluice.closes.items() if count > before.get(reason, 0)}


@pytest.mark.parametrize(
    "header_tags",
    [
        pytest.param(uvarint(2**31), id="2^31-fields"),
        pytest.param(uvarint(2**31 - 1) + bytes(100), id="2^31-1-fields-with-bytes-behind"),
        pytest.param(b"\x01\x00" + uvarint(2**31) + bytes(50), id="field-of-2^31-bytes"),
        pytest.param(b"\xff\xff\xff\xff\x1f" + bytes(50), id="varint-above-32-bits"),
        pytest.param(b"\xff\xff\xff\xff\xff\x01" + bytes(50), id="six-byte-varint"),
        pytest.param(b"\x80\x80\x80\x80\x80\x80\x80\x00", id="varint-without-end"),
        pytest.param(tags(*[tag(at, 1) for at in range(65)]), id="65-fields"),
        pytest.param(tags(tag(0, 64 * 1024 + 1)), id="field-above-64-KiB"),
        pytest.param(tags(tag(0, 60_000), tag(1, 60_000), tag(2, 60_000)), id="header-above-160-KiB"),
    ],
)
async def test_d11_hostile_header_tags(header_tags: bytes) -> None:
    """Tagged fields beyond their limits close the connection, and no byte of the frame is forwarded."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        assert await closes_for(sluice, flexible_produce(header_tags)) == {"bad_header": 1}
        await broker.until_quiet()
        assert broker.connections[0].received == b""


@pytest.mark.parametrize(
    "header_tags",
    [
        pytest.param(tags(*[tag(at, 1) for at in range(64)]), id="64-fields"),
        pytest.param(tags(tag(0, 64 * 1024)), id="field-of-64-KiB"),
        pytest.param(tags(tag(7, 3), tag(7, 3)), id="the-same-field-twice"),
        pytest.param(tags(tag(9, 3), tag(2, 3)), id="fields-out-of-order"),
    ],
)
async def test_d11_header_tags_within_bounds_pass_as_they_are(header_tags: bytes) -> None:
    """Unknown tagged fields within the limits are forwarded unchanged."""
    frame = flexible_produce(header_tags)
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await client.send(frame)
        connection = await broker.connection()
        await connection.until_requests(1)
        assert bytes(connection.received) == frame


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(framed(struct.pack(">hhih", PRODUCE, 9, 1, 20_000) + b"c" * 50), id="client-id-beyond-the-frame"),
        pytest.param(framed(struct.pack(">hhih", FETCH, 4, 1, -2)), id="client-id-of-minus-two-bytes"),
        pytest.param(framed(struct.pack(">hhi", PRODUCE, 3, 1)), id="frame-ends-before-the-client-id"),
    ],
)
async def test_d11_header_that_does_not_fit_its_frame(frame: bytes) -> None:
    """A header that is longer than its frame closes the connection."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        assert await closes_for(sluice, frame) == {"bad_header": 1}


async def test_d11_nothing_is_answered_to_a_broken_header() -> None:
    """A malformed header closes the connection without a response."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await client.ask(api_versions_request(1))
        await client.ask(fetch_request(2))
        await client.send(flexible_produce(uvarint(2**31)))
        with pytest.raises(ClosedByPeerError) as closed:
            await client.read_frame()
        assert (closed.value.end, closed.value.left_over) == (End.FIN, b"")
