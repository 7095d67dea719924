"""When changed quotas apply in workers."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from proxy.shared_usage.segment import QUOTAS_AT, Segment
from tests.support.processes.sluice_process import SluiceProcess, write_quotas
from tests.support.processes.sluice_workers import connected, page_of, running, stopped, workers_of
from tests.support.scripted.scripted_broker import BrokerConnection, ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import (
    PRODUCE,
    Request,
    api_versions_request,
    correlation_id_of,
    metadata_request,
    produce_of_size,
    throttle_ms_of,
)
from tests.support.scripted.scripted_sockets import until

VERSION = 7
CLIENTS = 8
"""Clients of each worker."""
REQUEST_BYTES = 600
"""Bytes of a request; all requests together are far below the old quota."""


@pytest.mark.parametrize(
    "quota",
    [
        {"client-id": "<default>", "producer_byte_rate": 1},
        {"user": "ANONYMOUS", "client-id": "<default>", "producer_byte_rate": 1},
    ],
    ids=["another bound", "another group"],
)
async def test_a_worker_that_stood_still_decides_nothing_by_old_quotas(tmp_path: Path, quota: dict[str, Any]) -> None:
    """A worker that was stopped during a change of quotas decides on waiting responses by the new quotas."""
    goes_on = asyncio.Event()

    async def answer_late(connection: BrokerConnection, request: Request) -> None:
        if request.key == PRODUCE:
            await goes_on.wait()
        await connection.answer(request)

    async with ScriptedBroker(answer_late) as broker, running(broker, tmp_path) as sluice:
        clients = await connected(sluice, 2 * CLIENTS)
        first, _ = workers_of(sluice)
        theirs = clients[::2]
        for client in theirs:
            await client.send(produce_of_size(REQUEST_BYTES, 99))
        await until(lambda: sum(len(one.requests) for one in broker.connections) == len(clients) + CLIENTS)
        async with stopped(first):
            goes_on.set()
            write_quotas(tmp_path / "quotas.toml", [quota])
            sluice.send(signal.SIGHUP)
            await until(lambda: bool(sluice.events("config_reloaded")))
        answers = await asyncio.gather(*(client.read_frame() for client in theirs))
        assert all(throttle_ms_of(PRODUCE, VERSION, answer) > 0 for answer in answers)
        assert not sluice.events("quotas_late")
        for client in clients:
            client.close()


async def test_quotas_that_do_not_come_stop_no_worker(tmp_path: Path) -> None:
    """A worker that does not get announced quotas uses the old ones after a second, logs it once, and applies the next change."""
    async with ScriptedBroker() as broker, running(broker, tmp_path) as sluice:
        clients = await connected(sluice, 2)
        segment = segment_of(sluice)
        generation = segment.words[QUOTAS_AT]
        segment.announce_quotas(generation + 1)
        for at in (2, 3):
            assert correlation_id_of(await clients[0].ask(api_versions_request(at))) == at
        assert len(sluice.events("quotas_late")) == 1
        write_quotas(tmp_path / "quotas.toml", [{"client-id": "<default>", "producer_byte_rate": 1}])
        sluice.send(signal.SIGHUP)
        await until(lambda: bool(sluice.events("config_reloaded")))
        answer = await clients[0].ask(produce_of_size(REQUEST_BYTES, 4))
        assert throttle_ms_of(PRODUCE, VERSION, answer) > 0
        os.close(segment.descriptor)
        for client in clients:
            client.close()


def segment_of(sluice: SluiceProcess) -> Segment:
    """Return the shared memory segment of a Sluice."""
    descriptors = Path(f"/proc/{sluice.pid}/fd").iterdir()
    memory = next(one for one in descriptors if "memfd:sluice-usage" in str(one.readlink()))
    return Segment(os.open(memory, os.O_RDWR))


async def test_traffic_of_the_bootstrap_port_counts_for_its_broker_in_every_worker(tmp_path: Path) -> None:
    """When one worker has reached a broker by its node id, the bootstrap connections of another worker share the budget of that broker."""
    async with ScriptedBroker() as broker, running(broker, tmp_path) as sluice:
        clients = await connected(sluice, 2)
        for at, client in enumerate(clients):
            assert correlation_id_of(await client.ask(metadata_request(at))) == at
        by_node_id = await ScriptedClient.connect(sluice.broker_port(broker.node.node_id))
        await by_node_id.ask(api_versions_request(1))
        for at, client in enumerate([*clients, by_node_id]):
            await client.ask(produce_of_size(REQUEST_BYTES, at))
        page = await page_of(sluice, "/quotas")
        assert [group["broker"] for group in page["groups"]] == [str(broker.node.node_id)]
        assert page["groups"][0]["recorded_total"] > 2.5 * REQUEST_BYTES
        for client in [*clients, by_node_id]:
            client.close()
