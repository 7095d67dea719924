"""A Sluice of several processes, started as an operator starts it, in front of a scripted broker."""

import asyncio
import contextlib
import json
import os
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from tests.support.processes.sluice_process import SluiceProcess, write_quotas
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import api_versions_request, correlation_id_of

BOUND = 10_000
"""Bytes per second that all clients together may produce."""


@contextlib.asynccontextmanager
async def running(broker: ScriptedBroker, folder: Path, *, workers: int = 2, arguments: Iterable[str] = ()) -> AsyncIterator[SluiceProcess]:
    """A Sluice with so many workers and a quota on all clients; no process of it is left afterwards."""
    quotas = write_quotas(folder / "quotas.toml", [{"client-id": "<default>", "producer_byte_rate": BOUND}])
    options = ["--workers", str(workers), *arguments]
    sluice = SluiceProcess(f"127.0.0.1:{broker.port}", quotas=quotas, enforcement="mute", arguments=options, name="workers")
    await asyncio.to_thread(sluice.start)
    children = workers_of(sluice)
    try:
        yield sluice
        if sluice.exit_code is None:
            children += workers_of(sluice)
    finally:
        await asyncio.to_thread(sluice.__exit__, None, None, None)
    assert [pid for pid in children if is_alive(pid)] == []


def workers_of(sluice: SluiceProcess) -> list[int]:
    """The processes of its workers, oldest first."""
    listed = subprocess.run(["ps", "--ppid", str(sluice.pid), "-o", "pid="], capture_output=True, text=True, check=False)
    return [int(pid) for pid in listed.stdout.split()]


def is_alive(pid: int) -> bool:
    """Whether a process runs."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def connections_of_workers(sluice: SluiceProcess) -> Counter[int]:
    """Open connections by worker."""
    page = json.loads(sluice.get("/connections")[1])
    return Counter(one["worker"] for one in page["connections"])


async def connected(sluice: SluiceProcess, count: int) -> list[ScriptedClient]:
    """So many clients that were served once."""
    clients = [await ScriptedClient.connect(sluice.port) for _ in range(count)]
    for at, client in enumerate(clients, 1):
        assert correlation_id_of(await client.ask(api_versions_request(at))) == at
    return clients
