"""Two workers pace one group from some moment on: they share its schedule, also when one is killed, and their files fit."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline.validation.local import validate
from pipeline.validation.text import lines_of
from tests.support.processes.sluice_process import SluiceProcess, write_quotas
from tests.support.processes.sluice_workers import configured, connected, page_of, workers_of
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import produce_of_size
from tests.support.scripted.scripted_sockets import until

BOUND, BURST_MS, SIZE = 200_000, 100, 5_000
REQUESTS = 16


async def produce(client: ScriptedClient) -> int:
    """Send requests, one after the other; return the bytes that were answered."""
    for at in range(REQUESTS):
        await client.ask(produce_of_size(SIZE, at))
    return REQUESTS * SIZE


async def paced_of(sluice: SluiceProcess) -> dict[str, Any]:
    """Return the only paced group of `/quotas`."""
    (group,) = (one for one in (await page_of(sluice, "/quotas"))["groups"] if "paced" in one)
    return group


async def test_workers_that_change_to_a_schedule_pass_the_bound_together_and_what_they_meter_fits(tmp_path: Path) -> None:
    """After a change without a disconnect both workers pass at most the bound and the burst, pages show one schedule, a worker that is
    started later has it, and a killed worker leaves a run that fits.
    """
    quotas = write_quotas(tmp_path / "quotas.toml", [{"client-id": "<default>", "producer_byte_rate": BOUND}])
    directory = tmp_path / "metering"
    tables = (
        f'[quotas]\nstore = "file"\npath = "quotas.toml"\npaced_burst_ms = {BURST_MS}',
        f'[metering]\ndir = "{directory}"',
    )
    async with ScriptedBroker() as broker, configured(broker, tmp_path, *tables) as sluice:
        clients = await connected(sluice, 4)
        await asyncio.gather(*(client.ask(produce_of_size(SIZE, 99)) for client in clients))
        with quotas.open("a") as file:
            file.write('[[pacing]]\ntarget = "all"\npacing = "paced"\n')
        sluice.send(signal.SIGHUP)
        await until(lambda: len(sluice.events("pacing_changed")) == 2)
        begin = time.monotonic()
        running = [asyncio.create_task(produce(client)) for client in clients]
        await until(lambda: sum(len(one.requests) for one in broker.connections) > 8)
        while not (group := await paced_of(sluice))["paced"]["waiting"]:  # a page may show the moment in which all have passed
            assert not all(one.done() for one in running)
        assert group["paced"]["waiting"] in range(1, 5)
        assert group["paced"]["lead_ms"] > 0  # a worker that reads late charges what the others passed later than they did
        passed = sum(await asyncio.gather(*running))
        assert passed <= BOUND * (time.monotonic() - begin + BURST_MS / 1_000) + 2 * SIZE
        await asyncio.sleep(0.3)  # decisions are in a segment after 250 ms
        os.kill(workers_of(sluice)[0], signal.SIGKILL)
        await until(lambda: len(sluice.events("worker_ready")) == 3)
        clients += await connected(sluice, 2)
        await asyncio.gather(*(produce(client) for client in clients[-2:]))
        for client in clients:
            client.close()
        await asyncio.to_thread(sluice.__exit__, None, None, None)
    verdict = validate(directory)
    assert verdict.kinds() == {}, list(lines_of(verdict, 20, explain=True))
    assert verdict.shared is not None
    assert verdict.shared.workers == 2
    assert verdict.shared.remote_records > 0
    states = [row for path in directory.glob("**/states/**/*.parquet") for row in pq.read_table(path, partitioning=None).to_pylist()]
    assert len({row["run_id"] for row in states if row["pacing"] == '[{"pacing":"paced"}]'}) == 3, "three lives of workers"
