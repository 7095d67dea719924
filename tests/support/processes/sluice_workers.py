"""A Sluice of several processes, started as an operator starts it, in front of a scripted broker."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from tests.support.patience import stop_process
from tests.support.processes.sluice_process import SluiceProcess, write_quotas
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import api_versions_request, correlation_id_of
from tests.support.scripted.scripted_sockets import until

BOUND = 10_000
"""Bytes per second that all clients together may produce."""


@contextlib.asynccontextmanager
async def running(broker: ScriptedBroker, folder: Path, *, workers: int = 2, arguments: Iterable[str] = ()) -> AsyncIterator[SluiceProcess]:
    """Start a Sluice with this many workers and a quota for all clients; no process of it is left afterwards."""
    quotas = write_quotas(folder / "quotas.toml", [{"client-id": "<default>", "producer_byte_rate": BOUND}])
    options = ["--workers", str(workers), *arguments]
    sluice = SluiceProcess(f"127.0.0.1:{broker.port}", quotas=quotas, enforcement="mute", arguments=options, name="workers")
    async with _until_all_ended(sluice):
        yield sluice


@contextlib.asynccontextmanager
async def _until_all_ended(sluice: SluiceProcess) -> AsyncIterator[None]:
    """Start it; assert at the end that none of its processes is left."""
    await asyncio.to_thread(sluice.start)
    children = _all_children_of(sluice)
    try:
        yield
        if sluice.exit_code is None:
            children += _all_children_of(sluice)
    finally:
        await asyncio.to_thread(sluice.__exit__, None, None, None)
    assert [pid for pid in children if is_alive(pid)] == []


def _all_children_of(sluice: SluiceProcess) -> list[int]:
    return children_of(sluice.pid, "sluice-worker") + children_of(sluice.pid, "sluice-forks")


def workers_of(sluice: SluiceProcess) -> list[int]:
    """Return its workers, oldest first."""
    return children_of(sluice.pid, "sluice-worker")


def hubs_of(supervisor: int) -> list[int]:
    """Return the hubs that a supervisor has started."""
    return children_of(supervisor, "sluice-hub")


def children_of(parent: int, name: str) -> list[int]:
    """Return the children of a process that have this name, oldest first."""
    listed = subprocess.run(["ps", "--ppid", str(parent), "-o", "pid=,comm="], capture_output=True, text=True, check=False)
    return [int(pid) for pid, comm in map(str.split, listed.stdout.splitlines()) if comm == name]


def is_alive(pid: int) -> bool:
    """Whether a process runs."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def sockets_of(pid: int) -> int:
    """Return how many sockets a process has open."""
    count = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += str(descriptor.readlink()).startswith("socket:")
    return count


async def page_of(sluice: SluiceProcess, path: str) -> Any:
    """Return a JSON page of the admin port."""
    return json.loads((await asyncio.to_thread(sluice.get, path))[1])


def connections_of_workers(sluice: SluiceProcess) -> Counter[int]:
    """Return the open connections by worker."""
    page = json.loads(sluice.get("/connections")[1])
    return Counter(one["worker"] for one in page["connections"])


async def connected(sluice: SluiceProcess, count: int) -> list[ScriptedClient]:
    """Connect this many clients, each of which got one answer."""
    clients = [await ScriptedClient.connect(sluice.port) for _ in range(count)]
    for at, client in enumerate(clients, 1):
        assert correlation_id_of(await client.ask(api_versions_request(at))) == at
    return clients


async def served(sluice: SluiceProcess) -> None:
    """Connect a client, get one answer, and close."""
    (client,) = await connected(sluice, 1)
    client.close()


@contextlib.asynccontextmanager
async def configured(broker: ScriptedBroker, folder: Path, *tables: str, listener: str = "") -> AsyncIterator[SluiceProcess]:
    """Return a Sluice with two workers and this configuration.

    Args:
        folder: the folder of its file `sluice.toml`.
        tables: the tables of that file other than upstream and listener.
        listener: the lines of the listener's table other than its address.
    """
    config = folder / "sluice.toml"
    port = SluiceProcess("", config=config).port
    head = f'workers = 2\n[upstream]\nbootstrap = ["127.0.0.1:{broker.port}"]\n[[listener]]\naddress = "127.0.0.1:{port}"\n'
    config.write_text("\n".join((head + listener, *tables)))
    sluice = SluiceProcess("", config=config, port=port, name="workers")
    async with _until_all_ended(sluice):
        yield sluice


@contextlib.asynccontextmanager
async def stopped(*pids: int) -> AsyncIterator[None]:
    """Stop processes for the length of the block."""
    for pid in pids:
        stop_process(pid)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


async def until_sockets(pids: list[int], before: list[int]) -> None:
    """Wait until the processes have as many sockets as before."""
    await until(lambda: [sockets_of(pid) for pid in pids] == before)
