"""An upgrade of a running Sluice refuses no connection and keeps the usage, and a failed upgrade changes nothing."""

import asyncio
import contextlib
import os
import signal
import socket
import stat
from pathlib import Path

from protocol.api_keys import ApiKey
from protocol.messages.metadata import topology_in_steps
from protocol.steps import finished
from tests.support.frames.kafka_frames import api_of
from tests.support.processes.sluice_process import SluiceProcess
from tests.support.processes.sluice_workers import connected, is_alive
from tests.support.processes.successors import replaceable, sluice_upgrade
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import (
    PRODUCE,
    api_versions_request,
    correlation_id_of,
    metadata_request,
    produce_of_size,
    throttle_ms_of,
)
from tests.support.scripted.scripted_sockets import until

VERSION = 7
LARGE_BYTES = 400_000
"""Bytes of a request: far more than the window of a group allows."""
ONE_SUPERVISED = "workers = 1\nsupervised = true"


async def test_an_upgrade_refuses_no_connection(tmp_path: Path) -> None:
    """Clients that connect during an upgrade are all served, and the old version ends after its drain."""
    async with ScriptedBroker() as broker, replaceable(broker, tmp_path) as replaced:
        done = asyncio.Event()
        served = 0

        async def come_and_go() -> None:
            nonlocal served
            while not done.is_set():
                client = await ScriptedClient.connect(replaced.sluice.port)
                assert correlation_id_of(await client.ask(api_versions_request(served))) == served
                client.close()
                served += 1

        coming = asyncio.ensure_future(come_and_go())
        (old,) = replaced.supervisors()
        await replaced.upgrade()
        before = served
        await replaced.until_drained(old)
        await until(lambda: served > before + 10 or coming.done())
        done.set()
        await coming
        assert replaced.sluice.exit_code == 0


async def test_an_upgrade_refuses_no_connection_to_the_admin_port(tmp_path: Path) -> None:
    """Connections to the admin port are accepted all the time, also after an upgrade that fails, and the new version answers there."""
    async with ScriptedBroker() as broker, replaceable(broker, tmp_path) as replaced:
        done = asyncio.Event()
        answers: list[bytes] = []

        async def scrape() -> None:
            while not done.is_set():
                reader, writer = await asyncio.open_connection("127.0.0.1", replaced.sluice.admin_port)
                writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
                with contextlib.suppress(ConnectionResetError):  # a request under way when the old version leaves may get no answer
                    answers.append((await reader.read())[:15])
                writer.close()

        scraping = asyncio.ensure_future(scrape())
        replaced.config.write_text("nonsense = 1\n" + replaced.text)
        assert (await sluice_upgrade("--runtime-dir", str(replaced.runtime_dir))).returncode == 1
        replaced.config.write_text(replaced.text)
        other = socket.create_server(("127.0.0.1", 0))
        replaced.config.write_text(replaced.text + f'[[listener]]\nname = "other"\naddress = "127.0.0.1:{other.getsockname()[1]}"\n')
        assert (await sluice_upgrade("--runtime-dir", str(replaced.runtime_dir))).returncode == 1
        other.close()
        replaced.config.write_text(replaced.text)
        (old,) = replaced.supervisors()
        await replaced.upgrade()
        await replaced.until_drained(old)
        before = len(answers)
        await until(lambda: len(answers) > before + 3 or scraping.done())
        done.set()
        await scraping
        assert set(answers[-3:]) == {b"HTTP/1.0 200 OK"}


async def test_an_upgrade_drains_connections_and_keeps_the_window(tmp_path: Path) -> None:
    """An upgrade closes open connections, and usage from before it counts in the new version."""
    async with ScriptedBroker() as broker, replaceable(broker, tmp_path, head=ONE_SUPERVISED) as replaced:
        (client,) = await connected(replaced.sluice, 1)
        large = await client.ask(produce_of_size(LARGE_BYTES, 7))
        assert throttle_ms_of(PRODUCE, VERSION, large) > 0
        (old,) = replaced.supervisors()
        await replaced.upgrade()
        assert await client.read_to_end() == b""
        (after,) = await connected(replaced.sluice, 1)
        assert throttle_ms_of(PRODUCE, VERSION, await after.ask(produce_of_size(200, 8))) > 0
        await replaced.until_drained(old)
        for one in (client, after):
            one.close()


async def test_an_upgrade_keeps_the_window_of_a_broker_for_the_bootstrap_port(tmp_path: Path) -> None:
    """Usage at the port of a broker counts in the new version for a connection of the bootstrap port, which reaches the same broker."""
    async with ScriptedBroker() as broker, replaceable(broker, tmp_path, head=ONE_SUPERVISED) as replaced:
        (client,) = await connected(replaced.sluice, 1)
        known = finished(topology_in_steps(api_of(ApiKey.METADATA, 12), await client.ask(metadata_request(6))))
        at_broker = await ScriptedClient.connect(known.brokers[0].port)
        assert throttle_ms_of(PRODUCE, VERSION, await at_broker.ask(produce_of_size(LARGE_BYTES, 7))) > 0
        (old,) = replaced.supervisors()
        await replaced.upgrade()
        (after,) = await connected(replaced.sluice, 1)
        assert throttle_ms_of(PRODUCE, VERSION, await after.ask(produce_of_size(200, 8))) > 0
        await replaced.until_drained(old)
        for one in (client, at_broker, after):
            one.close()


async def test_old_and_new_workers_have_one_budget(tmp_path: Path) -> None:
    """While the old version drains, usage of its clients counts for clients of the new version."""
    async with ScriptedBroker() as broker, replaceable(broker, tmp_path) as replaced:
        (old,) = await connected(replaced.sluice, 1)
        await replaced.upgrade()
        (new,) = await connected(replaced.sluice, 1)
        assert throttle_ms_of(PRODUCE, VERSION, await old.ask(produce_of_size(LARGE_BYTES, 7))) > 0
        throttle_ms = 0
        for at in range(8, 1_000):  # usage is shared within 10 ms
            throttle_ms = throttle_ms_of(PRODUCE, VERSION, await new.ask(produce_of_size(200, at)))
            if throttle_ms:
                break
        assert throttle_ms > 0
        for one in (old, new):
            one.close()


async def test_upgrades_follow_each_other(tmp_path: Path) -> None:
    """Two upgrades by command succeed one after the other, and worker numbers are reused."""
    audit = '[audit]\nfile = "audit.jsonl"\n[metering]\ndir = "metering"'
    async with ScriptedBroker() as broker, replaceable(broker, tmp_path, tables=audit) as replaced:
        for _ in range(2):
            old = replaced.supervisors()[-1]
            said = await sluice_upgrade("--config", str(replaced.config))
            assert (said.returncode, said.stderr) == (0, "")
            assert f"process {replaced.supervisors()[-1]} accepts" in said.stdout
            await until(replaced.sluice.is_ready)
            await replaced.until_drained(old)
        numbers = [one["worker"] for one in replaced.sluice.events("worker_ready")]
        assert [sorted(numbers[at : at + 2]) for at in (0, 2, 4)] == [[0, 1], [2, 3], [0, 1]]
        assert replaced.sluice.events("usage_begins_anew") == []
        for client in await connected(replaced.sluice, 2):
            client.close()


async def test_a_new_version_that_cannot_start_changes_nothing(tmp_path: Path) -> None:
    """When the new version has an invalid file or cannot bind a port, the old one continues and one line says why."""
    audit = '[audit]\nfile = "audit.jsonl"'
    async with ScriptedBroker() as broker, replaceable(broker, tmp_path, tables=audit) as replaced:
        (client,) = await connected(replaced.sluice, 1)
        other = socket.create_server(("127.0.0.1", 0))
        taken = f'[[listener]]\nname = "other"\naddress = "127.0.0.1:{other.getsockname()[1]}"\n'
        for text, problem in (("nonsense = 1\n" + replaced.text, "exit code 2"), (replaced.text + taken, "cannot be bound")):
            replaced.config.write_text(text)
            said = await sluice_upgrade("--runtime-dir", str(replaced.runtime_dir))
            assert said.returncode == 1
            assert problem in said.stderr
            assert said.stderr.count("\n") == 1
            await until(replaced.sluice.is_ready)
            assert correlation_id_of(await client.ask(api_versions_request(9))) == 9
            for one in await connected(replaced.sluice, 2):
                one.close()
        assert [problem in one["problem"] for one, problem in zip(replaced.sluice.events("upgrade_failed"), ("exit", "bound"), strict=True)]
        assert replaced.supervisors() == [replaced.sluice.pid]
        replaced.config.write_text(replaced.text)
        client.close()
        other.close()


async def test_a_second_supervisor_is_refused(tmp_path: Path) -> None:
    """A second Sluice with the same runtime folder exits with a message, and only the owner can access the folder."""
    async with ScriptedBroker() as broker, replaceable(broker, tmp_path) as replaced:
        second = SluiceProcess("", config=replaced.config, port=replaced.sluice.port, name="second")
        message = ""
        try:
            await asyncio.to_thread(second.start)
        except Exception as error:  # noqa: BLE001 - its message is checked
            message = str(error)
        assert "sluice upgrade puts a new one in its place" in message
        assert stat.S_IMODE(replaced.runtime_dir.stat().st_mode) == 0o700
        assert stat.S_IMODE((replaced.runtime_dir / "supervisor.sock").stat().st_mode) == 0o600


async def test_without_a_supervisor_an_upgrade_is_refused(tmp_path: Path) -> None:
    """Without a supervisor an upgrade by signal or by command is refused, and the process continues."""
    config = tmp_path / "sluice.toml"
    async with ScriptedBroker() as broker:
        sluice = SluiceProcess("", config=config, name="single")
        config.write_text(f'[upstream]\nbootstrap = ["127.0.0.1:{broker.port}"]\n[[listener]]\naddress = "127.0.0.1:{sluice.port}"\n')
        await asyncio.to_thread(sluice.start)
        try:
            sluice.send(signal.SIGUSR2)
            await until(lambda: bool(sluice.events("upgrade_refused")))
            said = await sluice_upgrade("--config", str(config))
            assert said.returncode == 2
            assert "supervised = true" in said.stderr
            for client in await connected(sluice, 1):
                client.close()
        finally:
            await asyncio.to_thread(sluice.__exit__, None, None, None)


async def test_a_new_supervisor_takes_the_ports_of_one_that_was_killed(tmp_path: Path) -> None:
    """After a killed supervisor is replaced, open connections continue, a waiting client is served, and usage still counts."""
    async with ScriptedBroker() as broker, replaceable(broker, tmp_path) as replaced:
        first, second = await connected(replaced.sluice, 2)
        assert throttle_ms_of(PRODUCE, VERSION, await first.ask(produce_of_size(LARGE_BYTES, 7))) > 0
        old_workers = replaced.workers()
        await asyncio.to_thread(replaced.sluice.kill)
        await until(lambda: len(replaced.sluice.events("supervisor_lost")) == 2)
        between = await ScriptedClient.connect(replaced.sluice.port)
        await between.send(api_versions_request(8))
        await asyncio.to_thread(replaced.sluice.start)
        assert correlation_id_of(await between.read_frame()) == 8
        assert correlation_id_of(await second.ask(api_versions_request(9))) == 9
        assert throttle_ms_of(PRODUCE, VERSION, await between.ask(produce_of_size(200, 10))) > 0
        for client in (first, second, between):
            client.close()
        await until(lambda: not any(is_alive(pid) for pid in old_workers))


async def test_a_supervisor_that_is_killed_during_its_drain_leaves_no_process(tmp_path: Path) -> None:
    """When a draining supervisor is killed, the new version continues and the old workers end with their connections."""
    async with ScriptedBroker() as broker, replaceable(broker, tmp_path) as replaced:
        (client,) = await connected(replaced.sluice, 1)
        old_workers = replaced.workers()
        await replaced.upgrade()
        await asyncio.to_thread(replaced.sluice.kill)
        for one in await connected(replaced.sluice, 2):
            one.close()
        client.close()
        await until(lambda: not any(is_alive(pid) for pid in old_workers))
        os.kill(replaced.supervisors()[-1], 0)
