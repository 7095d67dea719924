"""The admin port of a Sluice with several workers shows one proxy, also while a worker is dead or stopped."""

import asyncio
import os
import signal
import struct
import time
from pathlib import Path

import pytest

from proxy.shared_usage.segment import Segment
from tests.support.patience import stop_process
from tests.support.processes.sluice_process import SluiceProcess
from tests.support.processes.sluice_workers import connected, page_of, running, workers_of
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_frames import correlation_id_of, produce_of_size
from tests.support.scripted.scripted_sockets import until

SENT_BYTES = 2_000
"""Bytes of a request: less than the window of a group allows."""


async def metric(sluice: SluiceProcess, name: str, **labels: str) -> float:
    return await asyncio.to_thread(sluice.metric, name, **labels)


async def test_two_workers_are_shown_as_one_proxy(tmp_path: Path) -> None:
    """The pages show one group with the usage of both workers, and the connections of both."""
    async with ScriptedBroker() as broker, running(broker, tmp_path) as sluice:
        clients = await connected(sluice, 2)
        for at, client in enumerate(clients, 10):
            assert correlation_id_of(await client.ask(produce_of_size(SENT_BYTES, at))) == at
        groups = [one for one in (await page_of(sluice, "/quotas"))["groups"] if one["quota_type"] == "Produce"]
        sent = await metric(sluice, "kafka_quota_bytes_total", direction="produce")
        assert sent == pytest.approx(2 * SENT_BYTES, rel=0.01)  # without the length fields
        assert [(one["recorded_total"], one["bound"]) for one in groups] == [(sent, 10_000)]
        rows = (await page_of(sluice, "/connections"))["connections"]
        assert [(row["number"], row["worker"]) for row in rows] == [(1, 0), (2, 1)]
        client_id = groups[0]["tags"]["client-id"]
        shared = (await page_of(sluice, f"/explain?client-id={client_id}"))["quotas"][0]["groups"][0]["shared_by"]
        assert (shared["connections"], shared["clients"]) == (2, 1)
        for client in clients:
            client.close()


async def test_a_group_that_the_workers_cannot_share_is_counted(tmp_path: Path) -> None:
    """When all rows of the shared memory are in use, the metrics count the requests of a group for one."""
    async with ScriptedBroker() as broker, running(broker, tmp_path) as sluice:
        (client,) = await connected(sluice, 1)
        assert await metric(sluice, "kafka_sluice_shared_rows_refused_total") == 0
        fill(sluice)
        assert correlation_id_of(await client.ask(produce_of_size(SENT_BYTES, 7))) == 7
        assert await metric(sluice, "kafka_sluice_shared_rows_refused_total") >= 1
        client.close()


def fill(sluice: SluiceProcess) -> None:
    """Claim all rows of the memory that the workers of a Sluice share, for groups of a worker that does not run."""
    file, *_ = (file for file in Path(f"/proc/{sluice.pid}/fd").iterdir() if "sluice-usage" in os.readlink(file))
    descriptor = os.open(file, os.O_RDWR)
    try:
        segment, now_ms = Segment(descriptor), time.monotonic_ns() // 1_000_000
        for row in range(segment.rows_max):
            assert segment.claim(struct.pack("2q", row, 1), segment.workers - 1, now_ms) >= 0
    finally:
        os.close(descriptor)


async def test_totals_stay_when_a_worker_is_killed(tmp_path: Path) -> None:
    """Counters keep the values of a killed worker, and the gauge of open connections drops."""
    async with ScriptedBroker() as broker, running(broker, tmp_path) as sluice:
        first, second = await connected(sluice, 2)
        assert correlation_id_of(await first.ask(produce_of_size(SENT_BYTES, 7))) == 7
        names = ("kafka_quota_bytes_total", "kafka_quota_requests_total", "kafka_sluice_requests_total")
        before = [await metric(sluice, name) for name in names]
        assert await metric(sluice, "kafka_sluice_connections_open") == 2
        os.kill(workers_of(sluice)[0], signal.SIGKILL)
        assert await first.read_to_end() == b""
        await until(lambda: len(sluice.events("worker_ready")) == 3)
        assert [await metric(sluice, name) for name in names] == before
        assert await metric(sluice, "kafka_sluice_connections_open") == 1
        first.close()
        second.close()


async def test_a_worker_that_stands_still_stops_no_page(tmp_path: Path) -> None:
    """While a worker is stopped, metrics show its last values as stale, other pages list it, and /readyz is ok."""
    async with ScriptedBroker() as broker, running(broker, tmp_path) as sluice:
        clients = await connected(sluice, 2)
        assert await metric(sluice, "kafka_sluice_connections_open") == 2
        stopped, _ = workers_of(sluice)
        stop_process(stopped)
        try:
            assert await metric(sluice, "kafka_sluice_worker_stale") == 1
            assert await metric(sluice, "kafka_sluice_connections_open") == 2
            page = await page_of(sluice, "/connections")
            assert (len(page["connections"]), len(page["workers_unanswered"])) == (1, 1)
            check = (await page_of(sluice, "/readyz"))["checks"][-1]
            assert check == {"name": "workers", "ok": True, "detail": "1 of 2 answer", "required": True}
        finally:
            os.kill(stopped, signal.SIGCONT)
        while await metric(sluice, "kafka_sluice_worker_stale"):
            pass
        for client in clients:
            client.close()
