"""Faults of workers and of their supervisor: the other processes continue, and a lost worker is replaced."""

import asyncio
import os
import resource
import signal
from pathlib import Path

from tests.support.processes.sluice_workers import configured, connected, connections_of_workers, is_alive, stopped, workers_of
from tests.support.scripted.scripted_broker import BrokerConnection, ScriptedBroker
from tests.support.scripted.scripted_frames import Request, api_versions_request, correlation_id_of
from tests.support.scripted.scripted_sockets import until

SILENT_S = 1.2
"""Longer than a worker may be silent."""


async def test_a_worker_begins_with_the_configuration_that_holds(tmp_path: Path) -> None:
    """A worker that replaces a dead one starts with the configuration in force, not with a rejected or unloaded file."""
    async with ScriptedBroker() as broker, configured(broker, tmp_path) as sluice:
        config = tmp_path / "sluice.toml"
        obeyed = config.read_text()
        for number, later in enumerate(("nonsense = 1\n", "[limits]\nidle_ms = 1\n"), 3):
            config.write_text(obeyed + later)
            os.kill(workers_of(sluice)[0], signal.SIGKILL)
            await until(lambda count=number: len(sluice.events("worker_ready")) == count)
        clients = await connected(sluice, 4)
        assert sorted((await asyncio.to_thread(connections_of_workers, sluice)).values()) == [2, 2]
        sluice.send(signal.SIGHUP)
        for client in clients:
            assert await client.read_to_end() == b""  # the file now applies in both workers


async def test_reloads_in_quick_succession_are_obeyed_by_all(tmp_path: Path) -> None:
    """After quick reloads the last file applies in every process."""
    async with ScriptedBroker() as broker, configured(broker, tmp_path) as sluice:
        clients = await connected(sluice, 2)
        config = tmp_path / "sluice.toml"
        config.write_text(config.read_text() + "[limits]\nidle_ms = 1\n")
        async with stopped(*workers_of(sluice)):
            sluice.send(signal.SIGHUP)
            await asyncio.sleep(0.1)  # two SIGHUP that are pending at once arrive as one
            sluice.send(signal.SIGHUP)
            await asyncio.sleep(0.1)
        for client in clients:
            assert await client.read_to_end() == b""


async def test_a_signal_to_the_whole_service_lets_answers_through(tmp_path: Path) -> None:
    """After SIGTERM to all processes a request in flight is answered before they end."""
    goes_on = asyncio.Event()

    async def answer_late(connection: BrokerConnection, request: Request) -> None:
        await goes_on.wait()
        await connection.answer(request)

    async with ScriptedBroker() as broker, configured(broker, tmp_path) as sluice:
        clients = await connected(sluice, 2)
        pids = workers_of(sluice)
        broker.script = answer_late
        for client in clients:
            await client.send(api_versions_request(7))
        await until(lambda: sum(len(one.requests) for one in broker.connections) == 4)
        os.killpg(sluice.pid, signal.SIGHUP)
        await until(lambda: bool(sluice.events("config_reloaded")))
        os.killpg(sluice.pid, signal.SIGTERM)
        await until(lambda: bool(sluice.events("draining")))
        goes_on.set()
        for client in clients:
            assert correlation_id_of(await client.read_frame()) == 7
            client.close()
        await until(lambda: not any(is_alive(pid) for pid in pids) and sluice.exit_code == 0)


async def test_a_stopped_worker_is_given_no_connection(tmp_path: Path) -> None:
    """A stopped worker gets no new connection, and gets them again when it continues."""
    async with ScriptedBroker() as broker, configured(broker, tmp_path) as sluice:
        first, _ = workers_of(sluice)
        async with stopped(first):
            await asyncio.sleep(SILENT_S)
            clients = await connected(sluice, 4)
        await asyncio.sleep(SILENT_S)
        clients += await connected(sluice, 4)
        assert sorted((await asyncio.to_thread(connections_of_workers, sluice)).values()) == [4, 4]
        for client in clients:
            client.close()


async def test_a_worker_comes_back_when_the_system_has_descriptors_again(tmp_path: Path) -> None:
    """A supervisor that lacks descriptors for a worker starts it later and leaks none."""
    async with ScriptedBroker() as broker, configured(broker, tmp_path) as sluice:
        descriptors = Path(f"/proc/{sluice.pid}/fd")
        before = count_of(descriptors)
        limits = resource.prlimit(sluice.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(sluice.pid, resource.RLIMIT_NOFILE, (0, limits[1]))
        os.kill(workers_of(sluice)[0], signal.SIGKILL)
        await until(lambda: bool(sluice.events("worker_not_started")))
        resource.prlimit(sluice.pid, resource.RLIMIT_NOFILE, limits)
        await until(lambda: len(sluice.events("worker_ready")) == 3)
        for client in await connected(sluice, 2):
            client.close()
        await until(lambda: count_of(descriptors) <= before)


def count_of(folder: Path) -> int:
    """Return the number of entries of a folder."""
    return len(os.listdir(folder))
