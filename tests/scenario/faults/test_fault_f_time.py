"""Clients that try to use a broker's time without a charge, by requests that the broker refuses or by requests before the login."""

import struct
from typing import Any

import pytest

from protocol.api_keys import ApiKey
from tests.support.frames import sasl_frames
from tests.support.frames.kafka_frames import api_of, throttle_ms
from tests.support.frames.kafka_frames import request as request_of
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway, quotas
from tests.support.scripted.scripted_broker import BrokerConnection, ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import API_VERSIONS, METADATA, Request, api_versions_request, metadata_request
from tests.support.scripted.scripted_sockets import until

pytestmark = pytest.mark.long

TINY = 1e-6
"""Percent: any request exceeds this quota and is throttled for one window."""
WINDOW_MS = 1_000
VERSION = 12
ILLEGAL_SASL_STATE, INVALID_SESSION_TIMEOUT = 34, 26
HANDSHAKE, AUTHENTICATE = 17, 36


async def without_sasl(connection: BrokerConnection, asked: Request) -> None:
    """Act as a broker without SASL, which refuses a login and any JoinGroup with an error response."""
    if asked.key == HANDSHAKE:
        await connection.send(sasl_frames.handshake_answer(asked.correlation_id, error_code=ILLEGAL_SASL_STATE))
    elif asked.key == AUTHENTICATE:
        await connection.send(sasl_frames.authenticate_answer(asked.correlation_id, error_code=ILLEGAL_SASL_STATE))
    elif asked.key == ApiKey.JOIN_GROUP:
        body = struct.pack(">ih", asked.correlation_id, INVALID_SESSION_TIMEOUT) + struct.pack(">i", -1) + bytes(2 * 3 + 4)
        await connection.send(struct.pack(">i", len(body)) + body)
    else:
        await connection.answer(asked)


async def with_sasl(connection: BrokerConnection, asked: Request) -> None:
    """Act as a broker that accepts every login."""
    if asked.key == HANDSHAKE:
        await connection.send(sasl_frames.handshake_answer(asked.correlation_id))
    elif asked.key == AUTHENTICATE:
        await connection.send(sasl_frames.authenticate_answer(asked.correlation_id))
    else:
        await connection.answer(asked)


def join(correlation_id: int, session_timeout_ms: int) -> bytes:
    """Return the first fields of a JoinGroup v1, which are all that Sluice reads."""
    return request_of(api_of(ApiKey.JOIN_GROUP, 1), b"\x00\x01g" + struct.pack(">i", session_timeout_ms), correlation_id)


async def reported(client: ScriptedClient, correlation_id: int) -> int:
    """Send a Metadata request and return the throttle time in its response."""
    return throttle_ms(await client.ask(metadata_request(correlation_id, version=VERSION)), METADATA, VERSION)


async def versions_reported(client: ScriptedClient, correlation_id: int) -> int:
    """Send an ApiVersions request and return the throttle time in its response."""
    return throttle_ms(await client.ask(api_versions_request(correlation_id)), API_VERSIONS, 3)


def waiting(sluice: RunningGateway) -> int:
    """Return the number of connections that are not read because of a throttle."""
    return sum("throttle" in connection.client.paused_for for connection in sluice.connections)


@pytest.mark.parametrize("session_timeout_ms", [0, -1, 2])
async def test_a_join_group_frees_nothing_behind_it(session_timeout_ms: int) -> None:
    """A JoinGroup is charged and throttled whatever its session timeout is, and so is the request after it."""
    async with ScriptedBroker(without_sasl) as broker, open_gateway(broker, mode="mute", table=quotas(request=TINY)) as sluice:
        client = await sluice.client()
        await client.ask(join(1, session_timeout_ms))
        assert waiting(sluice) == 1
        assert await reported(client, 2) == WINDOW_MS
        assert waiting(sluice) == 1
        assert sluice.counters.throttles["Request"].sum_ms == 2 * WINDOW_MS


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(sasl_frames.handshake("PLAIN", version=0), id="handshake-v0"),
        pytest.param(sasl_frames.handshake("PLAIN"), id="handshake-v1"),
        pytest.param(sasl_frames.authenticate(b"x"), id="token"),
    ],
)
async def test_a_refused_login_is_a_request_like_any_other(asked: bytes) -> None:
    """A login message that a broker without SASL refuses is charged and throttled like any other request."""
    settings: dict[str, Any] = {"mode": "mute", "table": quotas(request=TINY), "serves": False}
    async with ScriptedBroker(without_sasl) as broker, open_gateway(broker, **settings) as sluice:
        client = await sluice.client()
        await client.ask(asked)
        assert waiting(sluice) == 1
        await client.send(asked * 3)
        await client.read_frame()
        await until(lambda: waiting(sluice) == 1)
        assert len(broker.requests) == 2
        assert sluice.counters.throttles["Request"].sum_ms == 2 * WINDOW_MS


async def test_a_refused_login_releases_no_other_client() -> None:
    """A login that a broker without SASL refuses does not exempt the ApiVersions requests of other clients from the quota."""
    async with ScriptedBroker(without_sasl) as broker, open_gateway(broker, mode="mute", table=quotas(request=TINY)) as sluice:
        attacker, other = await sluice.client(), await sluice.client()
        await attacker.ask(sasl_frames.handshake("PLAIN"))
        assert await versions_reported(other, 1) == WINDOW_MS


async def test_the_way_in_is_free_and_no_further() -> None:
    """Where the broker accepts logins, the login and two ApiVersions before it are not charged; every other request is."""
    async with ScriptedBroker(with_sasl) as broker, open_gateway(broker, mode="mute", table=quotas(request=TINY)) as sluice:
        first, honest, flood = [await sluice.client() for _ in range(3)]
        for frame in (sasl_frames.handshake("GSSAPI"), sasl_frames.authenticate(b"x")):
            await first.ask(frame)
        assert [await versions_reported(honest, number) for number in (1, 2)] == [0, 0]
        for frame in (sasl_frames.handshake("GSSAPI"), sasl_frames.authenticate(b"x")):
            await honest.ask(frame)
        assert waiting(sluice) == 0
        assert await reported(honest, 5) == WINDOW_MS
        assert [await versions_reported(flood, number) for number in range(3)] == [0, 0, WINDOW_MS]
        await flood.send(b"".join(api_versions_request(number) for number in range(4, 8)))
        await flood.read_frame()
        await until(lambda: waiting(sluice) >= 1)
        assert len(broker.connections[2].requests) <= 5
