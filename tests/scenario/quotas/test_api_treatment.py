"""Rows D17, D18 and D20: APIs that are forwarded, answered by Sluice or refused, and records that are never read."""

import ast
import pathlib
import struct

import pytest

import protocol
from protocol.api_keys import API_VERSIONS as TABLE
from protocol.api_keys import HIDDEN_KEYS, KNOWN_KEYS, Treatment
from tests.support.scripted.gateway_fixture import open_gateway
from tests.support.scripted.scripted_broker import BrokerConnection, ScriptedBroker
from tests.support.scripted.scripted_frames import (
    API_VERSIONS,
    Request,
    api_versions_answer,
    api_versions_request,
    correlation_id_of,
    framed,
    produce_answer,
    produce_request,
    request,
)
from tests.support.scripted.scripted_sockets import End

ROOT = pathlib.Path(protocol.__file__).parent.parent
UNKNOWN_KEY = 9_999
PASSED_UNREAD = 22  # InitProducerId
UNSUPPORTED_VERSION = 35


async def echo(connection: BrokerConnection, asked: Request) -> None:
    """Answer with the correlation id and the size of the request."""
    await connection.send(framed(struct.pack(">iBi", asked.correlation_id, 0, len(asked.frame))))


async def test_d17_known_but_unread_apis_pass_and_are_counted() -> None:
    """A request of a known API that Sluice does not parse is forwarded unchanged and counted for the client."""
    async with ScriptedBroker(echo) as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        frame = request(PASSED_UNREAD, 1, bytes(40), 3)
        assert await client.ask(frame) == framed(struct.pack(">iBi", 3, 0, len(frame)))
        assert broker.connections[0].received == frame
        assert sluice.app.usages.get("ANONYMOUS", "scripted").requests[PASSED_UNREAD] == 1


async def test_d17_unknown_key_closes() -> None:
    """An unknown API key closes the connection, and no byte of the request reaches the broker."""
    async with ScriptedBroker(echo) as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await client.send(request(UNKNOWN_KEY, 0, b"vendor"))
        assert await client.read_to_end() == b""
        assert await broker.connections[0].until_ended() is End.FIN
        assert broker.connections[0].received == b""
        assert sluice.closes == {"api_unknown": 1}


async def test_d17_unknown_key_may_pass() -> None:
    """With `unknown_apis = "pass"` requests with unknown keys are forwarded unchanged and answered in order."""
    async with ScriptedBroker(echo) as broker, open_gateway(broker, unknown_apis="pass") as sluice:
        client = await sluice.client()
        frame = request(UNKNOWN_KEY, 0, b"vendor", 1)
        await client.send(frame + request(PASSED_UNREAD, 1, bytes(9), 2) + frame)
        assert [correlation_id_of(answer) for answer in await client.read_frames(3)] == [1, 2, 1]
        assert broker.connections[0].requests[0].frame == frame


async def test_d17_unknown_version_of_a_known_key_closes() -> None:
    """An unknown version of a known API closes the connection."""
    async with ScriptedBroker(echo) as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await client.send(request(0, 99, b""))
        assert await client.read_to_end() == b""
        assert len(sluice.closes) == 1
        assert "internal_error" not in sluice.closes


@pytest.mark.parametrize("version", [5, 99, 32_767])
async def test_d17_api_versions_from_the_future(version: int) -> None:
    """An ApiVersions request with an unknown version gets error 35 from Sluice, in order, and the connection stays open."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        await client.send(produce_request(1) + api_versions_request(2, version=version) + produce_request(3))
        first, fallback, third = await client.read_frames(3)
        assert first == produce_answer(9, 1)
        assert third == produce_answer(9, 3)
        correlation_id, error, count = struct.unpack_from(">ihi", fallback, 4)
        assert (correlation_id, error) == (2, UNSUPPORTED_VERSION)
        rows = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", fallback[14:])}
        assert len(rows) == count
        assert rows[API_VERSIONS] == (0, 4)
        assert await client.ask(api_versions_request(4, version=3))
        assert [asked.correlation_id for asked in broker.connections[0].requests] == [1, 3, 4]


@pytest.mark.parametrize("key", sorted(HIDDEN_KEYS))
async def test_d18_inter_broker_apis_are_refused(key: int) -> None:
    """A request of an inter-broker or controller API, in any version, closes the connection without a response."""
    refused = [api for api in TABLE.values() if api.key == key and api.treatment is Treatment.REFUSE]
    assert refused
    async with ScriptedBroker(echo) as broker, open_gateway(broker) as sluice:
        for api in refused:
            client = await sluice.client()
            await client.send(request(key, api.version, bytes(60), flexible=api.request_header_version >= 2))
            assert await client.read_to_end() == b""
        await broker.until_quiet()
        assert all(connection.received == b"" for connection in broker.connections)
        assert sluice.closes == {"api_refused": len(refused)}


async def test_d18_hidden_and_unknown_keys_are_not_advertised() -> None:
    """The ApiVersions response lists no key that Sluice would refuse."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        broker.offered = dict.fromkeys(KNOWN_KEYS, (0, 1)) | {API_VERSIONS: (0, 4), UNKNOWN_KEY: (0, 3)}
        client = await sluice.client()
        answer = await client.ask(api_versions_request(1, version=0))
        offered = {key for key, _, _ in struct.iter_unpack(">hhh", answer[14:])}
        assert offered.isdisjoint(HIDDEN_KEYS | {UNKNOWN_KEY})
        assert {0, 1, 3, 18, 22, 36} <= offered
        assert answer != api_versions_answer(0, 1, broker.offered)


def test_d20_records_are_never_decompressed() -> None:
    """No module of the data path imports a decompressor or a record parser."""
    forbidden = {"zlib", "gzip", "bz2", "lzma", "snappy", "cramjam", "lz4", "zstandard", "kafka", "aiokafka", "kio"}
    for path in [
        *ROOT.glob("protocol/**/*.py"),
        *ROOT.glob("quota/**/*.py"),
        *ROOT.glob("proxy/session/**/*.py"),
        *ROOT.glob("proxy/net/**/*.py"),
    ]:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert forbidden.isdisjoint(name.partition(".")[0] for name in names), path
