"""An upgrade keeps the rates of new connections, and limits of open connections count those of both versions."""

import asyncio
import os
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from metering_format.places import CONTINUED
from pipeline.manifest import find_manifests
from pipeline.validation.local import validate
from pipeline.validation.text import lines_of
from tests.support.processes.sluice_workers import connected, is_alive
from tests.support.processes.successors import Replaced, replaceable
from tests.support.scripted.scripted_broker import Hold, ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import api_versions_request, produce_of_size
from tests.support.scripted.scripted_sockets import until

WINDOW_S = 30
WINDOWS = f"window_num = 2\nwindow_size_seconds = {WINDOW_S}"
"""Two samples: connections at a rate of 1 per second may come 30 at once, and count for 60 s."""
ONE_PER_SECOND = "[connections]\nmax_connection_creation_rate = 1"
ONE_PER_ADDRESS = "[connections]\nmax_connections_per_ip = 1"
SLOW_DRAIN = "[limits]\ndrain_ms = 60000"


async def until_waited(replaced: Replaced) -> None:
    """Wait until the present supervisor has delayed a connection."""
    while not await asyncio.to_thread(replaced.sluice.metric, "kafka_sluice_accepts_waited_total"):  # noqa: ASYNC110 - of another process
        await asyncio.sleep(0.01)


def refusals(replaced: Replaced) -> int:
    """Return how many connections were refused because of the limit of their address."""
    return sum(one["reason"] == "max_connections_per_ip" for one in replaced.sluice.events("connection_refused"))


async def until_served(replaced: Replaced) -> None:
    """Wait until a new client is served."""
    while not await is_served(replaced):  # noqa: ASYNC110 - of another process
        await asyncio.sleep(0.01)


async def until_refused(replaced: Replaced) -> None:
    """Wait until a new client is refused; before, the present supervisor may not know the connection that counts."""
    while await is_served(replaced):  # noqa: ASYNC110 - of another process
        await asyncio.sleep(0.01)


async def is_served(replaced: Replaced) -> bool:
    """Connect a client; return whether it is served."""
    async with await ScriptedClient.connect(replaced.sluice.port) as client:
        try:
            await client.ask(api_versions_request(1))
        except ConnectionError:
            return False
    return True


async def test_a_rate_that_is_used_up_stays_used_up(tmp_path: Path) -> None:
    """When the rate of new connections is used up before an upgrade, connections after it are delayed."""
    async with ScriptedBroker() as broker, replaceable(broker, tmp_path, tables=ONE_PER_SECOND, windows=WINDOWS) as replaced:
        clients = await connected(replaced.sluice, WINDOW_S)
        assert await asyncio.to_thread(replaced.sluice.metric, "kafka_sluice_accepts_waited_total") == 0
        await replaced.upgrade()
        clients += [await ScriptedClient.connect(replaced.sluice.port) for _ in range(WINDOW_S // 2)]
        async with asyncio.timeout(30):
            await until_waited(replaced)
        for client in clients:
            client.close()


@pytest.mark.parametrize("is_killed", [False, True])
async def test_connections_of_the_old_version_hold_their_places(tmp_path: Path, is_killed: bool) -> None:
    """The connection of an old worker counts against the limit of its address until it ends, also when the old supervisor is killed."""
    hold = Hold()
    async with (
        ScriptedBroker(hold) as broker,
        replaceable(broker, tmp_path, tables=f"{ONE_PER_ADDRESS}\n{SLOW_DRAIN}") as replaced,
    ):
        client = await ScriptedClient.connect(replaced.sluice.port)
        await client.send(produce_of_size(200, 7))
        await (await broker.connection()).until_requests(1)
        (old,) = replaced.supervisors()
        old_workers = replaced.workers()
        await replaced.upgrade()
        assert not await is_served(replaced)
        await until(lambda: refusals(replaced) == 1)
        if is_killed:
            await asyncio.to_thread(replaced.sluice.kill)
            await until_refused(replaced)
        hold.release()
        await client.read_frame()
        if not is_killed:
            assert await client.read_to_end() == b""
            await replaced.until_drained(old)
        client.close()
        await until_served(replaced)
        await until(lambda: not any(is_alive(pid) for pid in old_workers))


async def test_connections_of_workers_without_a_supervisor_hold_their_places(tmp_path: Path) -> None:
    """After a killed supervisor is replaced, and replaced once more, a connection of its worker counts against the limit until it ends."""
    async with ScriptedBroker() as broker, replaceable(broker, tmp_path, tables=ONE_PER_ADDRESS) as replaced:
        (client,) = await connected(replaced.sluice, 1)
        old_workers = replaced.workers()
        await asyncio.to_thread(replaced.sluice.kill)
        await until(lambda: len(replaced.sluice.events("supervisor_lost")) == 2)
        await asyncio.to_thread(replaced.sluice.start)
        await until_refused(replaced)
        await replaced.upgrade()
        await until_refused(replaced)
        client.close()
        await until_served(replaced)
        await until(lambda: not any(is_alive(pid) for pid in old_workers))


async def test_the_files_of_an_upgrade_fit(tmp_path: Path) -> None:
    """Metered decisions of the new supervisor contain the samples of the old one, and validation finds no deviation."""
    directory = tmp_path / "metering"
    tables = f'[metering]\ndir = "{directory}"\nproxy_id = "edge"\n{ONE_PER_SECOND}'
    async with ScriptedBroker() as broker, replaceable(broker, tmp_path, tables=tables, windows=WINDOWS) as replaced:
        clients = await connected(replaced.sluice, WINDOW_S)
        await replaced.upgrade()
        clients += [await ScriptedClient.connect(replaced.sluice.port) for _ in range(WINDOW_S // 2)]
        await until(lambda: len(replaced.sluice.events("took_over")) == 1)
        async with asyncio.timeout(30):
            await until_waited(replaced)
        for client in clients:
            client.close()
        new = replaced.supervisors()[-1]
        os.kill(new, signal.SIGTERM)
        await replaced.until_drained(new)
    verdict = validate(directory)
    assert verdict.kinds() == {}, list(lines_of(verdict, 20, explain=True))
    assert verdict.incomplete == []
    assert verdict.unjudged > 0
    (run,) = {one.run_id for one in find_manifests(directory) if CONTINUED in one.settings}
    samples = [row for path in directory.glob(f"samples/**/{run}-*.parquet") for row in pq.read_table(path, partitioning=None).to_pylist()]
    assert {row["prior_sum"] for row in samples if row["first_seq"] < 2} == {WINDOW_S}
