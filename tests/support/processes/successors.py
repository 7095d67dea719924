"""A Sluice whose supervisor is replaced: by a new version, or by one that starts after its death."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tests.support.places import ROOT
from tests.support.ports import free_port_range
from tests.support.processes.sluice_process import SluiceProcess, write_quotas
from tests.support.processes.sluice_workers import BOUND, is_alive
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_sockets import until


class Replaced:
    """A Sluice with its configuration file, whichever process is its present supervisor.

    Attributes:
        sluice: the first process; all processes share its log.
        config: the configuration file.
    """

    def __init__(self, broker: ScriptedBroker, folder: Path, *, head: str, tables: str, windows: str) -> None:
        self.config = folder / "sluice.toml"
        self.runtime_dir = folder / "run"
        port = SluiceProcess("", config=self.config).port
        write_quotas(folder / "quotas.toml", [{"client-id": "<default>", "producer_byte_rate": BOUND}])
        self.text = (
            f'{head}\nruntime_dir = "{self.runtime_dir}"\n[upstream]\nbootstrap = ["127.0.0.1:{broker.port}"]\n'
            f'[[listener]]\naddress = "127.0.0.1:{port}"\n[quotas]\npath = "quotas.toml"\n{windows}\n'
            f'[enforcement]\nmode = "mute"\n{tables}\n'
        )
        self.config.write_text(self.text)
        self.sluice = SluiceProcess("", config=self.config, port=port, name="upgraded")

    def supervisors(self) -> list[int]:
        """Return all supervisor processes, the newest last."""
        return [self.sluice.pid, *(one["pid"] for one in self.sluice.events("took_over"))]

    def workers(self) -> list[int]:
        """Return all worker processes."""
        return [one["pid"] for one in self.sluice.events("worker_ready")]

    async def upgrade(self) -> None:
        """Signal the supervisor, and wait until the next one accepts."""
        before = self.supervisors()
        os.kill(before[-1], signal.SIGUSR2)
        await until(lambda: len(self.supervisors()) > len(before))

    async def until_drained(self, pid: int) -> None:
        """Wait until a supervisor that was replaced has ended."""
        await until(lambda: not is_running(pid))


def is_running(pid: int) -> bool:
    """Whether a process runs and is not a zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    return False


@contextlib.asynccontextmanager
async def replaceable(
    broker: ScriptedBroker, folder: Path, *, head: str = "workers = 2", tables: str = "", windows: str = ""
) -> AsyncIterator[Replaced]:
    """Start a Sluice; no process of it is left afterwards.

    Args:
        head, tables, windows: lines of its configuration: before all tables, after all tables, and in the table of quotas.
    """
    replaced = Replaced(broker, folder, head=head, tables=tables, windows=windows)
    await asyncio.to_thread(replaced.sluice.start)
    try:
        yield replaced
    finally:
        pids = replaced.supervisors()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        replaced.sluice.wait()
        await until(lambda: not any(is_running(pid) for pid in pids))
        left = [pid for pid in replaced.workers() if is_alive(pid) and is_running(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    assert left == []


def free_admin_port() -> int:
    """Return a port for another admin listener."""
    return free_port_range(1)


async def sluice_upgrade(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `sluice upgrade`."""
    command = [sys.executable, "-m", "sluice_cli", "upgrade", *arguments]
    return await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, text=True, check=False)
