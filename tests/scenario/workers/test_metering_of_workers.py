"""Each worker writes a metering run of its own, and validation finds them consistent."""

import asyncio
import os
import signal
from pathlib import Path

import pyarrow.parquet as pq

from metering_format.places import SHARED
from pipeline.manifest import find_manifests
from pipeline.validation.local import validate
from pipeline.validation.text import lines_of
from tests.support.processes.sluice_process import SluiceProcess, write_quotas
from tests.support.processes.sluice_workers import BOUND, configured, connected, connections_of_workers, running, workers_of
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import produce_of_size
from tests.support.scripted.scripted_sockets import until

REQUESTS = 60
CONNECTIONS = 130
"""More connections than an address may open in a window of 11 s."""


def arguments(directory: Path) -> list[str]:
    """Return the arguments of a Sluice that meters into a directory."""
    return ["--metering", str(directory)]


async def produce(client: ScriptedClient, size: int = BOUND // 100) -> None:
    """Send `REQUESTS` Produce requests, one after the other."""
    for at in range(REQUESTS):
        await client.ask(produce_of_size(size + at, at))


async def test_what_workers_meter_fits(tmp_path: Path) -> None:
    """Validation recomputes each decision of three workers that share a group, and finds no deviation."""
    directory = tmp_path / "metering"
    async with ScriptedBroker() as broker, running(broker, tmp_path, workers=3, arguments=arguments(directory)) as sluice:
        clients = await connected(sluice, 6)
        await asyncio.gather(*(produce(client) for client in clients))
        for client in clients:
            client.close()
        await asyncio.to_thread(stop, sluice)
    verdict = validate(directory)
    assert verdict.kinds() == {}, list(lines_of(verdict, 20, explain=True))
    assert verdict.incomplete == []
    assert verdict.shared is not None
    assert verdict.shared.workers == 3
    assert verdict.shared.remote_records > 0
    counts = [manifest.counts["Produce"] for manifest in find_manifests(directory) if "Produce" in manifest.counts]
    assert sum(count.decisions for count in counts) == 6 * REQUESTS


async def test_what_a_killed_worker_metered_fits(tmp_path: Path) -> None:
    """Validation finds no deviation in the files of a killed worker, its successor and the other worker."""
    directory = tmp_path / "metering"
    async with ScriptedBroker() as broker, running(broker, tmp_path, arguments=arguments(directory)) as sluice:
        clients = await connected(sluice, 2)
        await asyncio.gather(*(produce(client) for client in clients))
        await asyncio.sleep(0.5)  # decisions are in a segment after 250 ms
        os.kill(workers_of(sluice)[0], signal.SIGKILL)
        await until(lambda: len(sluice.events("worker_ready")) == 3)
        clients += await connected(sluice, 2)
        await asyncio.gather(*(produce(client) for client in clients[1:]))
        for client in clients:
            client.close()
        await asyncio.to_thread(stop, sluice)
    verdict = validate(directory)
    assert verdict.kinds() == {}, list(lines_of(verdict, 20, explain=True))
    assert verdict.shared is not None
    assert verdict.shared.workers == 2
    assert len(verdict.findings) == 4, "the supervisor, and three lives of workers"


async def test_decisions_on_connections_are_a_run_of_the_supervisor(tmp_path: Path) -> None:
    """Decisions on connections are metered by the supervisor under the plain proxy id, and validation finds no deviation."""
    directory = tmp_path / "metering"
    write_quotas(tmp_path / "quotas.toml", [{"ip": "<default>", "connection_creation_rate": 10}])
    tables = (
        '[quotas]\nstore = "file"\npath = "quotas.toml"',
        f'[metering]\ndir = "{directory}"\nproxy_id = "edge"',
        "[connections]\nmax_connection_creation_rate = 1000",
    )
    async with ScriptedBroker() as broker, configured(broker, tmp_path, *tables) as sluice:
        opened = [await ScriptedClient.connect(sluice.port) for _ in range(CONNECTIONS)]
        await until(lambda: sum(connections_of_workers(sluice).values()) > 0)
        for client in opened:
            client.close()
        await asyncio.to_thread(stop, sluice)
    verdict = validate(directory)
    assert verdict.kinds() == {}, list(lines_of(verdict, 20, explain=True))
    assert verdict.incomplete == []
    assert {proxy_id for proxy_id, _ in verdict.findings} >= {"edge"}
    (manifest,) = (one for one in find_manifests(directory) if one.proxy_id == "edge")
    assert set(manifest.counts) == {"Connection"}
    assert SHARED not in manifest.settings
    assert verdict.counts["Connection"]["throttled"] > 0
    groups = pq.read_table(next(directory.glob("dim_group/schema=1/proxy=edge/**/*.parquet")), partitioning=None).to_pylist()
    assert {group["scope"] for group in groups} == {"process", "listener", "ip"}


def stop(sluice: SluiceProcess) -> None:
    """Let Sluice drain and write its files."""
    sluice.__exit__(None, None, None)
