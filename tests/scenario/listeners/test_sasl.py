"""Rows E2, E11 and G10 and SASL logins through sockets: tokens are read into a buffer that is overwritten after the login."""

import asyncio
import gc
import logging
import types
from collections.abc import Iterable

import pytest

from proxy.base.host_port import HostPort
from proxy.config.model import Connections, Enforcement, EnforcementMode, Listener
from proxy.net.relay.client_channel import LoginChannel
from quota.entity import ClientQuotaEntity, ClientQuotaType, KafkaPrincipal
from tests.support.frames import sasl_frames
from tests.support.ports import free_bootstrap_port
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway
from tests.support.scripted.scripted_broker import BrokerConnection, ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import Request, correlation_id_of, produce_request
from tests.support.scripted.scripted_sockets import HOST, until
from tests.support.tls import sasl_tokens

CANARY = "canary-8d1f-" + "0" * 20
TOKEN = sasl_tokens.plain("alice", CANARY)
TABLE = {ClientQuotaType.PRODUCE: {ClientQuotaEntity("alice", None): 1e9, ClientQuotaEntity("ANONYMOUS", None): 1e9}}


async def says_yes(connection: BrokerConnection, asked: Request) -> None:
    """Accept every login."""
    if asked.key == 17:
        await connection.send(sasl_frames.handshake_answer(asked.correlation_id))
    elif asked.key == 36:
        await connection.send(sasl_frames.authenticate_answer(asked.correlation_id))
    else:
        await connection.answer(asked)


async def says_no(connection: BrokerConnection, asked: Request) -> None:
    """Refuse every login as a broker does: with an error response and a close."""
    if asked.key == 36:
        await connection.send(sasl_frames.authenticate_answer(asked.correlation_id, error_code=58, message="no"))
        await connection.close()
    else:
        await says_yes(connection, asked)


async def refuses(connection: BrokerConnection, asked: Request) -> None:
    """Refuse every login and keep the connection, so that the client closes first."""
    if asked.key == 36:
        await connection.send(sasl_frames.authenticate_answer(asked.correlation_id, error_code=58, message="no"))
    else:
        await says_yes(connection, asked)


def declared() -> tuple[Listener, ...]:
    """Return a listener that requires a login."""
    return (Listener(address=HostPort(HOST, free_bootstrap_port()), name="test", protocol="SASL_PLAINTEXT"),)


def reachable(roots: Iterable[object]) -> set[int]:
    """Return the ids of all objects reachable from `roots` except code, modules and classes; fail at one that holds the password."""
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, types.FrameType | types.CoroutineType | types.ModuleType | type | types.FunctionType):
            continue
        if type(one).__module__.startswith(("asyncio", "uvloop", "_asyncio", "tests")):
            continue
        seen.add(id(one))
        if isinstance(one, bytes | bytearray | str | memoryview):
            text = one.encode("utf-8", "replace") if isinstance(one, str) else bytes(one)
            assert CANARY.encode() not in text, f"a {type(one).__name__} of {len(text)} bytes holds a secret"
        waiting.extend(gc.get_referents(one))
    return seen


async def logged_in(sluice: RunningGateway, token: bytes = TOKEN) -> ScriptedClient:
    """Return a client that the broker has authenticated."""
    client = await sluice.client()
    await client.ask(sasl_frames.handshake("PLAIN"))
    await client.ask(sasl_frames.authenticate(token))
    return client


@pytest.mark.parametrize("piece", [1, 7, 100_000])
async def test_tokens_are_read_into_a_buffer_that_is_overwritten(piece: int) -> None:
    """A token is read into a buffer that is all zeros after the login."""
    async with ScriptedBroker(says_yes) as broker, open_gateway(broker, listeners=declared(), table=TABLE, serves=False) as sluice:
        client = await sluice.client()
        await client.ask(sasl_frames.handshake("PLAIN"))
        (connection,) = await sluice.until_connections(1)
        login = connection.client._login
        assert isinstance(login, LoginChannel)
        token = sasl_frames.authenticate(TOKEN)
        for at in range(0, len(token), piece):
            await client.send(token[at : at + piece])
        assert correlation_id_of(await client.read_frame()) == 2
        assert broker.connections[0].requests[-1].frame == token
        assert connection.client._login is None
        assert not any(login._buffer)
        assert login._on_its_way == []
        assert connection.session.principal == KafkaPrincipal("User", "alice")
        await client.ask(produce_request(3))
        assert {group.tags["user"] for group in sluice.groups()} == {"alice"}


async def test_long_tokens_pass() -> None:
    """A token of almost 64 KiB is forwarded, and the login succeeds."""
    token = sasl_tokens.plain("alice", CANARY * 1_500)
    async with ScriptedBroker(says_yes) as broker, open_gateway(broker, listeners=declared(), serves=False) as sluice:
        client = await logged_in(sluice, token)
        assert broker.connections[0].requests[-1].frame == sasl_frames.authenticate(token)
        await client.ask(produce_request(3))


async def test_g10_nothing_of_a_token_is_left() -> None:
    """No object of Sluice holds the password after a successful, a refused, a pipelined or an unfinished login."""
    async with ScriptedBroker(says_yes) as broker, open_gateway(broker, listeners=declared(), serves=False) as sluice:
        await logged_in(sluice)
        ahead = await sluice.client()
        await ahead.send(sasl_frames.handshake("PLAIN") + sasl_frames.authenticate(TOKEN) + produce_request(3))
        for number in (1, 2, 3):
            assert correlation_id_of(await ahead.read_frame()) == number
        broker.script = says_no
        refused = await sluice.client()
        await refused.ask(sasl_frames.handshake("PLAIN"))
        await refused.ask(sasl_frames.authenticate(TOKEN))
        cut = await sluice.client()
        await cut.ask(sasl_frames.handshake("PLAIN"))
        await cut.send(sasl_frames.authenticate(TOKEN)[:-3])
        cut.close()
        await until(lambda: len(sluice.connections) == 2)
        app = sluice.app
        seen = reachable([app.gateway, app.counters, app.usages, app.scopes, app.data_path.session_settings])
        assert {id(connection.session) for connection in sluice.connections} <= seen


async def says_no_late(connection: BrokerConnection, asked: Request) -> None:
    """Refuse every login with a delay, as brokers do (`connection.failed.authentication.delay.ms`)."""
    if asked.key == 36:
        await asyncio.sleep(0.1)
    await says_no(connection, asked)


async def test_e02_a_storm_of_failed_logins() -> None:
    """Each of 1,000 failed logins gets the broker's own error before the close, is counted, and creates no group."""
    async with ScriptedBroker(says_no_late) as broker, open_gateway(broker, listeners=declared(), table=TABLE, serves=False) as sluice:

        async def tries() -> None:
            for _ in range(10):
                async with await ScriptedClient.connect(sluice.port) as client:
                    await client.ask(sasl_frames.handshake("PLAIN"))
                    answer = await client.ask(sasl_frames.authenticate(TOKEN))
                    assert answer == sasl_frames.authenticate_answer(2, error_code=58, message="no")
                    assert await client.read_to_end() == b""

        await asyncio.gather(*[tries() for _ in range(100)])
        await until(lambda: not sluice.connections)
        assert sluice.counters.logins == {("PLAIN", "failure"): 1_000}
        assert sluice.closes == {"login_failed": 1_000}
        assert not sluice.groups()


@pytest.mark.parametrize("first", ["client", "broker"])
async def test_a_refused_login_is_the_reason_of_the_close(caplog: pytest.LogCaptureFixture, first: str) -> None:
    """Whoever closes after a refused login, the close names the mechanism and the claimed user, and nothing of the password."""
    caplog.set_level(logging.INFO, logger="sluice")
    script = refuses if first == "client" else says_no
    async with ScriptedBroker(script) as broker, open_gateway(broker, listeners=declared(), serves=False) as sluice:
        client = await sluice.client()
        await client.ask(sasl_frames.handshake("PLAIN"))
        await client.ask(sasl_frames.authenticate(TOKEN))
        if first == "broker":
            assert await client.read_to_end() == b""
        client.close()
        await sluice.until_closed("login_failed")
        (fields,) = [record.fields for record in caplog.records if record.message == "connection_closed"]  # type: ignore[attr-defined]
        assert fields["detail"] == "the broker refused PLAIN of user alice"
        assert CANARY not in caplog.text


async def test_a_login_that_succeeds_after_a_refused_one() -> None:
    """A connection whose last login succeeded ends for its own reason."""
    async with ScriptedBroker(refuses) as broker, open_gateway(broker, listeners=declared(), serves=False) as sluice:
        client = await sluice.client()
        await client.ask(sasl_frames.handshake("PLAIN"))
        await client.ask(sasl_frames.authenticate(TOKEN))
        broker.script = says_yes
        await client.ask(sasl_frames.handshake("PLAIN"))
        await client.ask(sasl_frames.authenticate(TOKEN))
        client.close()
        await sluice.until_closed("client_closed")


LATE_S = 5.0
"""How late this process may read what Sluice sent in time: Sluice has 200 ms for it, which tests with a fake clock measure. The throttle
lasts 50 s, so what Sluice forwards only after it is still far too late."""


class Sessions:
    """A broker that announces sessions of 2 s: what it reads `LATE_S` after the end, other than a new login, ends the connection."""

    def __init__(self) -> None:
        self._ends_s = 0.0

    async def __call__(self, connection: BrokerConnection, asked: Request) -> None:
        """Answer one request."""
        now_s = asyncio.get_running_loop().time()
        if asked.key == 36:
            self._ends_s = now_s + 2
            await connection.send(sasl_frames.authenticate_answer(asked.correlation_id, lifetime_ms=2_000))
        elif asked.key != 17 and now_s > self._ends_s + LATE_S > LATE_S:
            await connection.close()
        else:
            await says_yes(connection, asked)


@pytest.mark.parametrize("mode", ["delay", "mute"])
async def test_e11_megabytes_pass_in_time_for_a_renewal(mode: EnforcementMode) -> None:
    """All requests of a throttled client reach the broker before its session expires, followed by its reauthentication."""
    table = {ClientQuotaType.PRODUCE: {ClientQuotaEntity("alice", None): 200_000.0}}
    settings = {"table": table, "clean": False, "enforcement": Enforcement(mode=mode)}  # responses are held for seconds
    async with ScriptedBroker(Sessions()) as broker, open_gateway(broker, listeners=declared(), **settings) as sluice:
        client = await logged_in(sluice)
        await client.send(produce_request(10, b"r" * 5_000_000))
        await broker.connections[0].until_requests(3)
        sending = asyncio.ensure_future(client.send(b"".join(produce_request(number, b"r" * 1_000_000) for number in range(11, 16))))
        await until(lambda: sluice.connections[0].session.throttle.is_throttled)
        assert len(broker.connections[0].requests) == 3
        await sending
        await client.send(sasl_frames.handshake("PLAIN", correlation_id=20))
        requests = await broker.connections[0].until_requests(9)
        assert [request.correlation_id for request in requests[2:]] == [10, 11, 12, 13, 14, 15, 20]
        assert not sluice.closes


async def refused(connection: BrokerConnection, asked: Request) -> None:
    """Refuse every login: with an error response, or after a SASL handshake v0 with a close by the test."""
    await (says_no(connection, asked) if asked.key != 17 or asked.version else no_bare_token(connection, asked))


async def no_bare_token(connection: BrokerConnection, asked: Request) -> None:
    """Accept a SASL handshake v0; the test closes the connection itself."""
    await connection.send(sasl_frames.handshake_answer(asked.correlation_id))


async def fails(sluice: RunningGateway, broker: ScriptedBroker, version: int, source: str) -> None:
    """Log in with a token that the broker refuses."""
    client = await sluice.client(source=source)
    await client.ask(sasl_frames.handshake("PLAIN", version=version))
    if version:
        await client.ask(sasl_frames.authenticate(TOKEN))
    else:
        await client.send(sasl_frames.bare(TOKEN))
        seen = broker.connections[-1]
        await until(lambda: seen.received.endswith(TOKEN))
        await seen.close()
    await client.read_to_end()
    client.close()


@pytest.mark.parametrize("version", [0, 1])
async def test_e02_who_fails_too_often_is_kept_out(version: int) -> None:
    """After `max_failed_logins_per_ip` failures new connections of an address are refused; other addresses and open connections are not."""
    limits = Connections(max_failed_logins_per_ip=5)
    async with (
        ScriptedBroker(says_yes) as broker,
        open_gateway(broker, listeners=declared(), serves=False, connections=limits) as sluice,
    ):
        there = await logged_in(sluice)
        broker.script = refused
        for number in range(5):
            await fails(sluice, broker, version, HOST)
            await until(lambda number=number: sluice.counters.logins[("PLAIN", "failure")] == number + 1)
        assert sluice.app.state.admission().failing_ips == 1
        met = broker.accepted
        for _ in range(20):
            turned_away = await sluice.client()
            assert await turned_away.read_to_end() == b""
        assert sluice.closes["failed_logins"] == 20
        assert broker.accepted == met
        await fails(sluice, broker, version, "127.0.0.9")
        broker.script = None
        await there.ask(produce_request(3))
        broker.script = None


async def test_who_does_not_log_in_in_time_is_let_go() -> None:
    """On a listener that requires a login, a client that has not logged in within `login_ms` is closed."""
    async with ScriptedBroker(says_yes) as broker, open_gateway(broker, listeners=declared(), serves=False) as sluice:
        idle = await sluice.client()
        await idle.ask(sasl_frames.handshake("PLAIN"))
        done = await logged_in(sluice)
        await sluice.until_connections(2)
        sluice.sweep(29_000)
        assert len(sluice.connections) == 2
        sluice.sweep(31_000)
        assert sluice.closes == {"login_deadline": 1}
        await done.ask(produce_request(3))


async def test_a_login_that_has_begun_ends_in_time_on_an_open_listener_too() -> None:
    """Where no login is required, `login_ms` applies only to a first login that has begun and is not complete."""
    async with ScriptedBroker(says_yes) as broker, open_gateway(broker) as sluice:
        slow = await sluice.client()
        await slow.ask(sasl_frames.handshake("PLAIN"))
        await slow.send(sasl_frames.authenticate(TOKEN)[:-1])
        again = await logged_in(sluice)
        await again.ask(sasl_frames.handshake("PLAIN", correlation_id=9))
        open_one = await sluice.client()
        await open_one.ask(produce_request(3))
        await sluice.until_connections(3)
        sluice.sweep(31_000)
        assert sluice.closes == {"login_deadline": 1}
        assert broker.connections[0].requests[-1].key == 17
