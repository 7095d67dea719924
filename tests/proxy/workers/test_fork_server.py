"""A fork server starts workers as children of the supervisor."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.processes.sluice_workers import children_of, is_alive, sockets_of

HANG_S = 60.0
SOCKETS = 3
"""Sockets that a worker is given."""


class ForkingSupervisor:
    """A process that starts workers as a supervisor does."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def answer(self, line: str) -> int:
        """Send a line; return the number that it prints."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def servers(self) -> list[int]:
        """Return its fork server, if it has one."""
        return children_of(self.process.pid, "sluice-forks")


@pytest.fixture
def supervisor() -> Iterator[ForkingSupervisor]:
    """A supervisor with a fork server."""
    command = [sys.executable, "-m", "tests.support.processes.forking_supervisor"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield ForkingSupervisor(process)
        finally:
            process.kill()


def command_of(pid: int) -> bytes:
    """Return the command line of a process; empty: the process has ended.

    `Popen` returns while the kernel still loads the new program: until it has, the command line is empty.
    """
    time_limit = time.monotonic() + HANG_S
    while not (command := Path(f"/proc/{pid}/cmdline").read_bytes()) and time.monotonic() < time_limit:
        time.sleep(0.001)
    return command


def test_a_forked_worker_is_a_child_of_the_supervisor(supervisor: ForkingSupervisor) -> None:
    """It has the supervisor as its parent, a name of its own, and no socket but those that it was given; its exit code is known."""
    pid = supervisor.answer("worker")
    assert children_of(supervisor.process.pid, "sluice-worker") == [pid]
    assert sockets_of(pid) == SOCKETS
    assert Path(f"/proc/{pid}/fd/0").readlink() == Path(os.devnull)
    assert supervisor.answer("end") == 1
    assert len(supervisor.servers()) == 1


def test_without_the_fork_server_a_worker_starts_from_the_beginning(supervisor: ForkingSupervisor) -> None:
    """After the fork server was killed, a worker is a child of the supervisor as before."""
    pid = supervisor.answer("kill")
    assert b"proxy.workers.main" in command_of(pid)
    assert supervisor.servers() == []
    assert supervisor.answer("end") == 1
    assert supervisor.answer("worker") != pid


def test_a_fork_server_ends_with_its_supervisor(supervisor: ForkingSupervisor) -> None:
    """When the supervisor is killed, the fork server ends, and a worker of it decides by itself."""
    worker = supervisor.answer("worker")
    (server,) = supervisor.servers()
    supervisor.process.kill()
    supervisor.process.wait()
    time_limit = time.monotonic() + HANG_S
    while is_alive(server) or is_alive(worker):  # this worker has no connection, so it ends, too
        assert time.monotonic() < time_limit
        time.sleep(0.01)
