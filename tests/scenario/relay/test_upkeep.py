"""The prober's reports, uncaught exceptions, accepts from a backlog, and missing file descriptors."""

import asyncio
import socket
from itertools import pairwise

import pytest

from protocol.api_keys import ApiKey
from protocol.messages.api_versions import read_api_keys
from proxy.base.host_port import HostPort
from proxy.net.accept.listener import (
    ACCEPTS_PER_TURN,
    BACKLOG_ACCEPTS_PER_TURN,
    BACKLOG_CONNECTIONS_MIN,
    SINGLE_ACCEPT_TURNS,
    SINGLE_ARRIVALS_MIN,
    Acceptor,
)
from proxy.net.sockets import listen
from proxy.net.upstream import prober
from proxy.net.upstream.connector import Bootstrap
from proxy.net.upstream.own_login import OwnLogin
from proxy.net.upstream.prober import Prober
from tests.support.scripted.descriptors import few_descriptors
from tests.support.scripted.gateway_fixture import open_gateway
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_frames import API_VERSIONS, api_versions_request
from tests.support.scripted.scripted_sockets import HOST, guarded, until

NO_LOGIN = OwnLogin(None, lambda _: None)


class CountedBootstrap(Bootstrap):
    """A bootstrap list that counts reported failures."""

    failures = 0

    def failed(self, address: HostPort) -> None:
        self.failures += 1
        super().failed(address)


async def test_an_upstream_that_stays_silent_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prober reports once that the brokers cannot be reached, and once that they answer again."""
    for name in ("RETRY_MIN_S", "RETRY_MAX_S", "INTERVAL_S"):
        monkeypatch.setattr(prober, name, 0.001)
    changes: list[str | None] = []
    async with ScriptedBroker() as broker:
        bootstrap = CountedBootstrap([HostPort(HOST, broker.port)])
        await broker.stop_listening()
        task = asyncio.create_task(Prober(bootstrap, lambda _: None, lambda: False, changes.append, 5_000, None, NO_LOGIN).run())
        await until(lambda: bootstrap.failures >= 5)
        assert len(changes) == 1
        broker.listen()
        await until(lambda: len(changes) == 2)
        await broker.stop_listening()
        before = bootstrap.failures
        await until(lambda: bootstrap.failures >= before + 5)
        task.cancel()
        await asyncio.wait([task])
    assert [change is None for change in changes] == [False, True, False]


async def test_an_exception_that_no_code_caught_is_counted_once() -> None:
    """An exception in the loop's handler and a crash of a connection each count once as an internal error."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        sluice.expects_internal_errors = True
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(sluice.app.log_exception)
        loop.call_exception_handler({"message": "from a task of ours", "exception": ValueError("x")})
        assert sluice.counters.internal_errors == 1
        client = await sluice.client()
        (connection,) = await sluice.until_connections(1)
        connection.crash(ValueError("y"))
        await client.read_to_end()
        assert sluice.counters.internal_errors == 2
        assert sluice.closes["internal_error"] == 1


async def test_open_files_that_run_out_are_counted_and_the_client_hears_a_no() -> None:
    """Without free descriptors a client is accepted with the spare one and closed; the next one is accepted when one is free."""
    stops: list[int] = []
    accepted: list[socket.socket] = []
    acceptor = Acceptor(listen(HOST, 0), lambda sock, _: accepted.append(sock), lambda: True, lambda: stops.append(1))
    loop = asyncio.get_running_loop()
    with socket.socket() as refused, socket.socket() as welcome:
        refused.setblocking(False)
        welcome.setblocking(False)
        with few_descriptors(0):
            await guarded(loop.sock_connect(refused, (HOST, acceptor.port)))
            assert await guarded(loop.sock_recv(refused, 1)) == b""
        assert (len(stops), accepted) == (1, [])
        await guarded(loop.sock_connect(welcome, (HOST, acceptor.port)))
        await until(lambda: len(accepted) == 1)
    accepted[0].close()
    acceptor.close()


async def accepted_by_turn(accepted: list[socket.socket], total: int) -> list[int]:
    """Wait until `total` connections are accepted; return the number for each turn of the loop that accepted any."""
    counts = [len(accepted)]

    def in_each_turn() -> None:
        counts.append(len(accepted))
        if len(accepted) < total:
            asyncio.get_running_loop().call_soon(in_each_turn)

    in_each_turn()
    await until(lambda: len(accepted) == total)
    return [after - before for before, after in pairwise(counts) if after > before]


async def test_a_long_backlog_is_accepted_a_few_at_a_time() -> None:
    """While more than 128 connections wait in the kernel's queue, a turn of the event loop accepts 8 of them."""
    accepted: list[socket.socket] = []
    listening = listen(HOST, 0)
    crowd = [socket.create_connection(listening.getsockname()) for _ in range(BACKLOG_CONNECTIONS_MIN + 3 * ACCEPTS_PER_TURN)]
    acceptor = Acceptor(listening, lambda sock, _: accepted.append(sock), lambda: True, lambda: None)
    took = await accepted_by_turn(accepted, len(crowd))
    backlog_turns = took[1 : took.index(ACCEPTS_PER_TURN, 1)]
    assert took[0] == ACCEPTS_PER_TURN
    assert set(backlog_turns) == {BACKLOG_ACCEPTS_PER_TURN}
    left = len(crowd) - sum(took[: 1 + len(backlog_turns)])
    assert BACKLOG_CONNECTIONS_MIN - BACKLOG_ACCEPTS_PER_TURN < left <= BACKLOG_CONNECTIONS_MIN
    acceptor.close()
    for sock in (*crowd, *accepted):
        sock.close()


async def test_a_backlog_behind_lone_connections_is_accepted_soon() -> None:
    """After connections that arrived alone, some turns accept one each, and then one turn accepts all that wait."""
    accepted: list[socket.socket] = []
    acceptor = Acceptor(listen(HOST, 0), lambda sock, _: accepted.append(sock), lambda: True, lambda: None)
    clients: list[socket.socket] = []
    for number in range(1, SINGLE_ARRIVALS_MIN + 1):
        clients.append(socket.create_connection((HOST, acceptor.port)))
        await until(lambda: len(accepted) == number)  # noqa: B023 - awaited here
    clients += [socket.create_connection((HOST, acceptor.port)) for _ in range(SINGLE_ACCEPT_TURNS + ACCEPTS_PER_TURN)]
    took = await accepted_by_turn(accepted, len(clients))
    assert took == [1] * SINGLE_ACCEPT_TURNS + [ACCEPTS_PER_TURN]
    acceptor.close()
    for sock in (*clients, *accepted):
        sock.close()


async def test_a_turn_accepts_all_that_arrived_together_after_a_lone_connection() -> None:
    """After one lone connection, a turn accepts all connections that arrived together."""
    accepted: list[socket.socket] = []
    acceptor = Acceptor(listen(HOST, 0), lambda sock, _: accepted.append(sock), lambda: True, lambda: None)
    clients = [socket.create_connection((HOST, acceptor.port))]
    await until(lambda: len(accepted) == 1)
    clients += [socket.create_connection((HOST, acceptor.port)) for _ in range(SINGLE_ACCEPT_TURNS)]
    took = await accepted_by_turn(accepted, len(clients))
    assert took == [SINGLE_ACCEPT_TURNS]
    acceptor.close()
    for sock in (*clients, *accepted):
        sock.close()


async def test_a_reload_changes_which_apis_are_offered() -> None:
    """After a reload to `unknown_apis = "pass"` a new connection is offered the broker's unknown APIs."""
    vendors = 9_999
    own = {API_VERSIONS, ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS}
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        broker.offered = {API_VERSIONS: (0, 3), vendors: (0, 0)}
        for unknown_apis, offered in (("close", own), ("pass", {*own, vendors})):
            await sluice.reload(unknown_apis=unknown_apis)
            client = await sluice.client()
            answer = await client.ask(api_versions_request(1, version=0))
            assert {key for key, *_ in read_api_keys(0, answer)} == offered
