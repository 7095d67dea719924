"""A Sluice of several processes before a scripted broker: all workers share one budget."""

import asyncio
import os
import signal
from pathlib import Path

from tests.support.patience import stop_process
from tests.support.processes.sluice_process import SluiceProcess, write_quotas
from tests.support.processes.sluice_workers import BOUND, connected, connections_of_workers, page_of, running, workers_of
from tests.support.scripted.scripted_broker import BrokerConnection, ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import (
    PRODUCE,
    Request,
    api_versions_request,
    correlation_id_of,
    produce_of_size,
    throttle_ms_of,
)
from tests.support.scripted.scripted_sockets import until

VERSION = 7
LARGE_BYTES = 40 * BOUND
"""Bytes of a request: far more than the window of a group allows."""


async def test_connections_are_spread_evenly(tmp_path: Path) -> None:
    """Connections are spread evenly over the workers."""
    async with ScriptedBroker() as broker, running(broker, tmp_path, workers=3) as sluice:
        clients = await connected(sluice, 9)
        spread = await asyncio.to_thread(connections_of_workers, sluice)
        assert sorted(spread.values()) == [3, 3, 3]
        for client in clients:
            client.close()


async def test_workers_have_one_budget(tmp_path: Path) -> None:
    """Usage of a client at one worker throttles the next client at another worker."""
    async with ScriptedBroker() as broker, running(broker, tmp_path) as sluice:
        first, second = await connected(sluice, 2)
        large = await first.ask(produce_of_size(LARGE_BYTES, 7))
        assert throttle_ms_of(PRODUCE, VERSION, large) > 0
        throttle_ms = 0
        for at in range(8, 1_000):  # usage is shared within 10 ms
            small = await second.ask(produce_of_size(200, at))
            throttle_ms = throttle_ms_of(PRODUCE, VERSION, small)
            if throttle_ms:
                break
        assert throttle_ms > 0
        first.close()
        second.close()


async def test_a_worker_that_dies_takes_its_connections_and_no_others(tmp_path: Path) -> None:
    """When a worker dies, only its connections end, its usage still counts, its throttled client waits on, and a new worker is started."""
    async with ScriptedBroker() as broker, running(broker, tmp_path) as sluice:
        first, second = await connected(sluice, 2)
        assert throttle_ms_of(PRODUCE, VERSION, await second.ask(produce_of_size(200, 6))) == 0
        assert throttle_ms_of(PRODUCE, VERSION, await first.ask(produce_of_size(LARGE_BYTES, 7))) > 0
        dead, alive = workers_of(sluice)
        await asyncio.sleep(0.05)  # usage is shared within 10 ms
        os.kill(dead, signal.SIGKILL)
        assert await first.read_to_end() == b""
        assert correlation_id_of(await second.ask(api_versions_request(9))) == 9
        await until(lambda: len(sluice.events("worker_ready")) == 3)
        assert alive in workers_of(sluice)
        assert throttle_ms_of(PRODUCE, VERSION, await second.ask(produce_of_size(200, 10))) > 0
        (third,) = await connected(sluice, 1)
        waiting = asyncio.ensure_future(third.ask(produce_of_size(200, 11)))
        while sum(one["throttled_until_ms"] > 0 for one in (await page_of(sluice, "/connections"))["connections"]) < 2:
            assert not waiting.done()
        assert sorted(request.correlation_id for request in broker.requests if request.key == PRODUCE) == [6, 7, 10]
        waiting.cancel()
        assert await asyncio.to_thread(sluice.metric, "kafka_sluice_closes_total", reason="worker_died") == 1
        for client in (first, second, third):
            client.close()


async def test_limits_of_connections_hold_over_all_workers(tmp_path: Path) -> None:
    """`max_connections_per_ip` counts the connections at all workers together."""
    config = tmp_path / "sluice.toml"
    async with ScriptedBroker() as broker:
        port = SluiceProcess("", config=config).port
        config.write_text(
            f'workers = 2\n[upstream]\nbootstrap = ["127.0.0.1:{broker.port}"]\n[[listener]]\naddress = "127.0.0.1:{port}"\n'
            "[connections]\nmax_connections_per_ip = 3\n"
        )
        sluice = SluiceProcess("", config=config, port=port, name="workers")
        await asyncio.to_thread(sluice.start)
        try:
            clients = await connected(sluice, 3)
            refused = await ScriptedClient.connect(sluice.port)
            assert await refused.read_to_end() == b""
            clients.pop().close()
            await until(lambda: bool(sluice.events("connection_closed")))
            clients += await connected(sluice, 1)
            for client in clients:
                client.close()
        finally:
            await asyncio.to_thread(sluice.__exit__, None, None, None)


async def test_another_quota_holds_in_every_worker(tmp_path: Path) -> None:
    """A change of the quota file applies in all workers without closing a connection."""
    async with ScriptedBroker() as broker, running(broker, tmp_path) as sluice:
        clients = await connected(sluice, 2)
        write_quotas(tmp_path / "quotas.toml", [{"client-id": "<default>", "producer_byte_rate": 1}])
        await until(lambda: len(sluice.events("quotas_loaded")) == 2)
        await asyncio.gather(*(until_throttled(client) for client in clients))
        for client in clients:
            client.close()


async def until_throttled(client: ScriptedClient) -> None:
    """Send requests until a response has a throttle time."""
    for at in range(7, 1_000):
        if throttle_ms_of(PRODUCE, VERSION, await client.ask(produce_of_size(200, at))):
            return
    raise AssertionError("no answer was throttled")


async def test_a_reload_is_obeyed_by_all_or_by_none(tmp_path: Path) -> None:
    """An invalid file is rejected, and a valid one applies in every worker."""
    config = tmp_path / "sluice.toml"
    async with ScriptedBroker() as broker:
        port = SluiceProcess("", config=config).port
        text = f'workers = 2\n[upstream]\nbootstrap = ["127.0.0.1:{broker.port}"]\n[[listener]]\naddress = "127.0.0.1:{port}"\n'
        config.write_text(text)
        sluice = SluiceProcess("", config=config, port=port, name="workers")
        await asyncio.to_thread(sluice.start)
        try:
            clients = await connected(sluice, 2)
            config.write_text(text + "nonsense = 1\n")
            sluice.send(signal.SIGHUP)
            await until(lambda: bool(sluice.events("config_rejected")))
            config.write_text(text + "[limits]\nidle_ms = 1\n")
            sluice.send(signal.SIGHUP)
            await until(lambda: bool(sluice.events("config_reloaded")))
            for client in clients:
                assert await client.read_to_end() == b""  # the new idle limit closes the connections of both workers
            await until(lambda: [one["reason"] for one in sluice.events("connection_closed")] == ["idle", "idle"])
        finally:
            await asyncio.to_thread(sluice.__exit__, None, None, None)


async def test_a_new_worker_obeys_the_configuration_in_force(tmp_path: Path) -> None:
    """A worker that replaces a dead one starts although the file on disk is invalid and has not been loaded."""
    config = tmp_path / "sluice.toml"
    async with ScriptedBroker() as broker:
        port = SluiceProcess("", config=config).port
        config.write_text(f'workers = 2\n[upstream]\nbootstrap = ["127.0.0.1:{broker.port}"]\n[[listener]]\naddress = "127.0.0.1:{port}"\n')
        sluice = SluiceProcess("", config=config, port=port, name="workers")
        await asyncio.to_thread(sluice.start)
        try:
            config.write_text("nonsense = 1\n")
            os.kill(workers_of(sluice)[0], signal.SIGKILL)
            await until(lambda: len(sluice.events("worker_ready")) == 3)
            for client in await connected(sluice, 2):
                client.close()
        finally:
            await asyncio.to_thread(sluice.__exit__, None, None, None)


async def test_a_stopped_worker_stops_no_other_client(tmp_path: Path) -> None:
    """While one worker is stopped, the other serves old and new clients and applies a change of quotas."""
    async with ScriptedBroker() as broker, running(broker, tmp_path) as sluice:
        _, second = clients = await connected(sluice, 2)
        stopped, _ = workers_of(sluice)
        stop_process(stopped)
        try:
            await asyncio.sleep(1.5)  # a worker signals every 100 ms and gets no connection after a second of silence
            for client in await connected(sluice, 4):
                client.close()
            write_quotas(tmp_path / "quotas.toml", [{"client-id": "<default>", "producer_byte_rate": 1}])
            await until_throttled(second)
        finally:
            os.kill(stopped, signal.SIGCONT)
        assert correlation_id_of(await clients[0].ask(api_versions_request(9))) == 9
        for client in clients:
            client.close()


async def test_a_signal_to_all_processes_drains_once(tmp_path: Path) -> None:
    """A SIGTERM to all processes at once loses no response in flight."""
    may_answer = asyncio.Event()

    async def answer_late(connection: BrokerConnection, request: Request) -> None:
        if request.key == PRODUCE:
            await may_answer.wait()
        await connection.answer(request)

    async with ScriptedBroker(answer_late) as broker, running(broker, tmp_path) as sluice:
        clients = await connected(sluice, 2)
        asked = [asyncio.ensure_future(client.ask(produce_of_size(200, 7))) for client in clients]
        await until(lambda: sum(request.key == PRODUCE for request in broker.requests) == 2)
        os.killpg(sluice.pid, signal.SIGTERM)
        await until(lambda: len(sluice.events("draining")) == 3)
        may_answer.set()
        assert [correlation_id_of(answer) for answer in await asyncio.gather(*asked)] == [7, 7]
        assert await asyncio.to_thread(sluice.wait) == 0
        assert sluice.events("worker_died") == []


async def test_each_process_prints_its_profile(tmp_path: Path) -> None:
    """With --profile each process prints at its end its name, its stages and the number of requests that it forwarded."""
    async with ScriptedBroker() as broker, running(broker, tmp_path, arguments=["--profile"]) as sluice:
        for client in await connected(sluice, 4):
            client.close()
        assert await asyncio.to_thread(sluice.stop) == 0
        lines = [line for line in sluice.output().splitlines() if not line.startswith("{")]
        names = [at for at, line in enumerate(lines) if line in ("supervisor", "worker 0", "worker 1")]
        assert sorted(lines[at] for at in names) == ["supervisor", "worker 0", "worker 1"]
        assert all(lines[at + 1].startswith("stage ") for at in names)
        requests = [int(line.split()[0]) for line in lines if "Python calls cost" in line]
        assert len(requests) == 3
        assert sum(requests) >= 4
