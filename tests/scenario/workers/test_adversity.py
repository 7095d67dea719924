"""Hostile clients and faults with several workers: the budget holds, and no slot, descriptor or process leaks."""

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

from proxy.config.sections.tls import ListenerSni
from tests.support.frames.tls_hellos import host_name, message_of, records, written
from tests.support.ports import free_bootstrap_port
from tests.support.processes.sluice_process import SluiceProcess, write_quotas
from tests.support.processes.sluice_workers import (
    configured,
    connected,
    connections_of_workers,
    page_of,
    served,
    sockets_of,
    stopped,
    until_sockets,
    workers_of,
)
from tests.support.scripted.proxy_headers import v2_header
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import (
    api_versions_request,
    correlation_id_of,
    fetch_request,
    metadata_request,
    produce_of_size,
)
from tests.support.scripted.scripted_sockets import reset, until
from tests.support.tls.tls_fixture import ProxyFixture

REQUEST_BYTES = 150_000
"""A request that fits into the socket's buffers, so that the client's end is seen although nothing is read."""
SMALL_BOUND = 1_000
"""A request exceeds the first window by over two minutes, so that no throttle ends before its test."""
BUDGET_BYTES = 512 * 1024
"""The budget of all workers: each has half, and one client that reads nothing fills as much."""
BOOTSTRAP = "kafka.example.org"
SNI = ListenerSni(bootstrap=BOOTSTRAP, broker="broker-{node_id}.kafka.example.org")
SNI_TABLE = f'[listener.sni]\nbootstrap = "{SNI.bootstrap}"\nbroker = "{SNI.broker}"\n'
PADDING = 0x15
"""A TLS extension of any length. Source: RFC 7685."""


async def test_who_leaves_and_comes_again_gets_one_request_of_all_workers(tmp_path: Path) -> None:
    """After one throttled request no reconnecting client gets a request through at any worker."""
    write_quotas(tmp_path / "quotas.toml", [{"client-id": "<default>", "producer_byte_rate": SMALL_BOUND}])
    tables = '[quotas]\npath = "quotas.toml"\n[enforcement]\nmode = "mute"'
    async with ScriptedBroker() as broker, configured(broker, tmp_path, tables) as sluice:
        for at in range(1, 21):
            client = await ScriptedClient.connect(sluice.port)
            await client.send(produce_of_size(REQUEST_BYTES, at))
            if at == 1:
                await client.read_frame()
            await until_given(sluice, at)
            client.close()
            if at == 1:  # the connections of the other clients stay, because their requests wait
                await until(lambda: len(sluice.events("connection_closed")) == 1)
            else:
                await until_left(sluice, at - 1)
        reached = [one for connection in broker.connections for one in connection.requests]
        assert len(reached) == 1


async def until_left(sluice: SluiceProcess, count: int) -> None:
    """Wait until workers have noticed that the clients of `count` open connections have left, and so passed on their throttles."""
    while True:
        page = await page_of(sluice, "/connections")
        if sum(one["client_closed"] for one in page["connections"]) >= count:
            return


async def until_given(sluice: SluiceProcess, count: int) -> None:
    """Wait until workers have accepted `count` connections, open or closed."""
    while True:
        page = await page_of(sluice, "/connections")
        if page["open"] + len(sluice.events("connection_closed")) >= count:
            return


async def test_connections_that_come_one_by_one_take_turns(tmp_path: Path) -> None:
    """Short connections, one after the other, are spread evenly over the workers."""
    async with ScriptedBroker() as broker, configured(broker, tmp_path) as sluice:
        for at in range(1, 7):
            await served(sluice)
            await until(lambda count=at: len(sluice.events("connection_closed")) == count)
        assert Counter(one["worker"] for one in sluice.events("connection_closed")) == {0: 3, 1: 3}


async def test_silent_connections_keep_no_client_out_and_leave_nothing(tmp_path: Path) -> None:
    """A client is served beside 300 silent connections, and their sockets are closed when they leave."""
    async with ScriptedBroker() as broker, configured(broker, tmp_path) as sluice:
        await served(sluice)
        pids = [sluice.pid, *workers_of(sluice)]
        await until(lambda: len(sluice.events("connection_closed")) == 1)
        before = [sockets_of(pid) for pid in pids]
        silent = [await ScriptedClient.connect(sluice.port) for _ in range(300)]
        await served(sluice)
        for client in silent:
            client.close()
        await until_sockets(pids, before)


async def test_a_client_that_leaves_on_its_way_to_a_worker_gives_its_slot_back(tmp_path: Path) -> None:
    """Clients that leave before a stopped worker accepts them no longer count when the worker continues."""
    limit = "[connections]\nmax_connections = 8"
    async with ScriptedBroker() as broker, configured(broker, tmp_path, limit) as sluice:
        pids = workers_of(sluice)
        for leave in (ScriptedClient.close, lambda client: reset(client.socket)):
            async with stopped(*pids):
                for client in [await ScriptedClient.connect(sluice.port) for _ in range(8)]:
                    leave(client)
        clients = await connected(sluice, 8)
        assert sorted((await asyncio.to_thread(connections_of_workers, sluice)).values()) == [4, 4]
        for client in clients:
            client.close()


async def test_connections_of_a_worker_that_dies_make_room(tmp_path: Path) -> None:
    """When a worker dies, its connections, accepted or not, no longer count for `max_connections`."""
    limit = "[connections]\nmax_connections = 4"
    async with ScriptedBroker() as broker, configured(broker, tmp_path, limit) as sluice:
        clients = await connected(sluice, 4)
        waiting = [await ScriptedClient.connect(sluice.port) for _ in range(2)]
        os.kill(workers_of(sluice)[0], signal.SIGKILL)
        for client in waiting:
            assert correlation_id_of(await client.ask(api_versions_request(9))) == 9
        await until(lambda: len(sluice.events("worker_ready")) == 3)
        for client in (*clients, *waiting):
            client.close()
        pids = workers_of(sluice)
        async with stopped(*pids):
            lost = [await ScriptedClient.connect(sluice.port) for _ in range(4)]
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
        for client in lost:
            await client.read_to_end()
        await until(lambda: len(sluice.events("worker_ready")) == 5)
        for client in await connected(sluice, 4):
            client.close()


async def test_a_protected_listener_makes_room_at_the_worker_that_has_others(tmp_path: Path) -> None:
    """At `max_connections` a client of the protected listener closes one of another listener at any worker."""
    limit = '[connections]\nmax_connections = 4\nprotected_listener = "inner"'
    inner_port = free_bootstrap_port()
    inner = f'[[listener]]\nname = "inner"\naddress = "127.0.0.1:{inner_port}"\n'
    async with ScriptedBroker() as broker, configured(broker, tmp_path, limit, listener=inner) as sluice:
        clients = []
        for at, port in enumerate((inner_port, sluice.port, inner_port, inner_port, inner_port)):
            clients.append(await ScriptedClient.connect(port))
            assert correlation_id_of(await clients[-1].ask(api_versions_request(at))) == at
        assert await clients[1].read_to_end() == b""
        for client in clients:
            client.close()


async def test_a_worker_without_memory_is_given_no_connection(tmp_path: Path) -> None:
    """While the buffers of one worker are full, new connections go to the other worker."""
    limit = f"[limits]\nprocess_buffer_bytes_max = {BUDGET_BYTES}"
    async with ScriptedBroker(records=bytes(32 * BUDGET_BYTES)) as broker, configured(broker, tmp_path, limit) as sluice:
        slow = await ScriptedClient.connect(sluice.port, receive_bytes=4_096)
        await slow.send(fetch_request(1))
        await until(lambda: any(one["buffered_bytes"] >= 0.95 * one["bytes_max"] for one in sluice.events("memory_pressure")))
        await asyncio.sleep(0.3)  # workers report every 0.1 s whether their buffers are full
        clients = await connected(sluice, 4)
        spread = await asyncio.to_thread(connections_of_workers, sluice)
        assert sorted(spread.values()) == [1, 4]
        for client in (slow, *clients):
            client.close()


async def test_a_load_balancer_names_the_client_to_workers(tmp_path: Path) -> None:
    """Limits and the list of connections use the client's address from the PROXY header."""
    behind = 'proxy_protocol_from = ["127.9.0.0/16"]\n'
    limit = "[connections]\nmax_connections_per_ip = 2"
    async with ScriptedBroker() as broker, configured(broker, tmp_path, limit, listener=behind) as sluice:
        clients = [await ScriptedClient.connect(sluice.port, source="127.9.9.9") for _ in range(6)]
        for at, client in enumerate(clients):
            header = v2_header((f"192.0.2.{at // 2}", 5_000 + at))
            await client.send(header + api_versions_request(at))
            assert correlation_id_of(await client.read_frame()) == at
        page = await page_of(sluice, "/connections")
        assert sorted(one["peer"] for one in page["connections"]) == [f"192.0.2.{at // 2}:{5_000 + at}" for at in range(6)]
        third = await ScriptedClient.connect(sluice.port, source="127.9.9.9")
        await third.send(v2_header(("192.0.2.1", 9)) + api_versions_request(9))
        assert await third.read_to_end() == b""
        for client in clients:
            client.close()


@contextlib.asynccontextmanager
async def by_tls(folder: Path, broker: ScriptedBroker, sni: str = "") -> AsyncIterator[tuple[SluiceProcess, ProxyFixture]]:
    """Run a Sluice whose clients use TLS."""
    proxy = ProxyFixture(folder, BOOTSTRAP, "*.kafka.example.org")
    tls = f'[listener.tls]\ncertificate = "{proxy.server.certificate}"\nkey = "{proxy.server.key}"\n'
    async with configured(broker, folder, listener=tls + sni) as sluice:
        yield sluice, proxy


async def test_workers_speak_tls(tmp_path: Path) -> None:
    """Each worker serves its clients by TLS."""
    async with ScriptedBroker() as broker, by_tls(tmp_path, broker) as (sluice, proxy):
        clients = [await proxy.connect(sluice.port) for _ in range(4)]
        for at, client in enumerate(clients):
            assert correlation_id_of(await client.ask(api_versions_request(at))) == at
        assert sorted((await asyncio.to_thread(connections_of_workers, sluice)).values()) == [2, 2]
        for client in clients:
            await client.close()


async def test_a_host_name_leads_to_its_broker_by_any_worker(tmp_path: Path) -> None:
    """With SNI, which the supervisor reads, each worker serves clients of the bootstrap name and of a broker's name."""
    async with ScriptedBroker() as broker, by_tls(tmp_path, broker, SNI_TABLE) as (sluice, proxy):
        clients = [await proxy.connect(sluice.port, name=BOOTSTRAP) for _ in range(2)]
        for at, client in enumerate(clients):
            assert correlation_id_of(await client.ask(metadata_request(at))) == at
        clients += [await proxy.connect(sluice.port, name=SNI.broker.format(node_id=broker.node_id)) for _ in range(2)]
        for at, client in enumerate(clients):
            assert correlation_id_of(await client.ask(api_versions_request(7 + at))) == 7 + at
        for client in clients:
            await client.close()


async def test_a_long_hello_leaves_nothing(tmp_path: Path) -> None:
    """A hello of the largest size gets a TLS alert from its worker and leaves no descriptor open."""
    async with ScriptedBroker() as broker, by_tls(tmp_path, broker, SNI_TABLE) as (sluice, proxy):
        client = await proxy.connect(sluice.port, name=BOOTSTRAP)
        await client.close()
        await until(lambda: len(sluice.events("connection_closed")) == 1)
        pids = workers_of(sluice)
        before = [sockets_of(pid) for pid in pids]
        for _ in range(4):
            long = await ScriptedClient.connect(sluice.port)
            await long.send(long_hello())
            assert (await long.read_to_end())[:1] == b"\x15"
            long.close()
        await until_sockets(pids, before)


def long_hello() -> bytes:
    """Return a hello of almost 64 KiB, which takes more than 64 KiB with its record headers."""
    message = message_of(written(host_name(BOOTSTRAP.encode()), (PADDING, bytes(65_400))))
    return records(message, *[512] * 127)
