"""Starts workers and the hub as copies of a process that has loaded their modules, so that a start takes milliseconds.

`sluice run` forks this process, the fork server, before it has a thread or an event loop: later a fork is not safe. The fork
server then loads the modules of workers, so that the supervisor needs no memory for them. It starts nothing by itself. The supervisor sends
it descriptors, and gets a process back that is its own child: the fork server forks a process in between that ends at once, and meanwhile
the supervisor adopts orphans. So exit codes, signals and the list of child processes are as those of any other child. Where this is not
possible, `execute` starts each process from the beginning.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NoReturn, Protocol

PRELOADED: Final = "proxy.workers.main"
NAMES: Final = {"proxy.workers.main": "sluice-worker", "proxy.workers.hub.main": "sluice-hub"}
"""Names of processes by their module, as `ps -o comm` prints them."""
SERVER_NAME: Final = "sluice-forks"
ANSWER_S: Final = 1.0
"""A fork server that does not respond within this time is killed."""
FIRST_ANSWER_S: Final = 10.0
"""The same for the first answer: the fork server loads the modules before it."""
DESCRIPTORS_MAX: Final = 16
_SET_CHILD_SUBREAPER: Final = 36
"""Source: linux/prctl.h, PR_SET_CHILD_SUBREAPER."""
_MESSAGE_BYTES: Final = 128
_DONE: Final = b"done"
_OF_GROUP: Final = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR2)
"""Signals that may be sent to the whole process group; the supervisor handles them."""


class ChildProcess(Protocol):
    """A started process: what `subprocess.Popen` and `ForkedProcess` have in common."""

    @property
    def pid(self) -> int:
        """The process id."""

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None: the process runs."""

    def kill(self) -> None:
        """Kill the process, if it runs."""


Spawn = Callable[[str, Sequence[int]], ChildProcess]
"""Starts a module of this program as a process that inherits descriptors; `main` of the module gets their numbers as texts.

Raises OSError: there are not enough descriptors, processes or memory.
"""


def execute(module: str, descriptors: Sequence[int]) -> ChildProcess:
    """Start a module as a new Python process."""
    command = [sys.executable, "-m", module, *map(str, descriptors)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(command, pass_fds=descriptors, env=environment, stdin=subprocess.DEVNULL)  # noqa: S603 - ourselves


class ForkedProcess:
    """A child that the fork server has forked."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._exit_code: int | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        return self._pid

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None: the process runs."""
        if self._exit_code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._exit_code = os.waitstatus_to_exitcode(status)
        return self._exit_code

    def kill(self) -> None:
        """Kill the process, if it runs."""
        if self.poll() is None:
            os.kill(self._pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill the process, and wait until it has ended."""
        self.kill()
        while self.poll() is None:
            os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)


class ForkServer:
    """The supervisor's view of the fork server.

    Args:
        server: the process.
        sock: connection to it; the fork server ends when this is closed.
    """

    def __init__(self, server: ForkedProcess, sock: socket.socket) -> None:
        self._server = server
        self._sock: socket.socket | None = sock
        sock.settimeout(FIRST_ANSWER_S)

    def spawn(self, module: str, descriptors: Sequence[int]) -> ChildProcess:
        """Start a module as in `Spawn`; without a fork server that responds, as a new Python process."""
        if self._sock is not None:
            try:
                with _adopting_orphans():
                    socket.send_fds(self._sock, [module.encode()], descriptors)
                    pid = int(self._sock.recv(_MESSAGE_BYTES))
                    if self._sock.recv(_MESSAGE_BYTES) == _DONE and pid > 0:
                        self._sock.settimeout(ANSWER_S)
                        return ForkedProcess(pid)
            except (OSError, ValueError):  # it has ended or does not respond
                self.close()
        return execute(module, descriptors)

    def close(self) -> None:
        """End the fork server; what it has started goes on."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None
            self._server.end()


def start_fork_server() -> ForkServer | None:
    """Fork the fork server; None: the system does not let this process adopt orphans, or has no memory for one process more.

    The caller has neither threads nor an event loop.
    """
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with _adopting_orphans():
            pid = os.fork()
    except OSError:
        here.close()
        there.close()
        return None
    if pid == 0:
        here.close()
        _serve(there)
    there.close()
    return ForkServer(ForkedProcess(pid), here)


@contextlib.contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Let this process become the parent of descendants whose parent ends.

    Raises:
        OSError: the system refuses.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    try:
        yield
    finally:
        prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _serve(sock: socket.socket) -> NoReturn:
    """Be the fork server until the supervisor ends."""
    for sig in _OF_GROUP:
        signal.signal(sig, signal.SIG_IGN)
    _rename(SERVER_NAME)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    importlib.import_module(PRELOADED)
    gc.collect()
    gc.freeze()  # copies share the memory of what exists now, which a collection would write to
    while True:
        message, descriptors, _, _ = socket.recv_fds(sock, _MESSAGE_BYTES, DESCRIPTORS_MAX)
        if not message:
            os._exit(0)
        _fork(sock, message.decode(), descriptors)


def _fork(sock: socket.socket, module: str, descriptors: list[int]) -> None:
    """Fork a process whose parent will be the supervisor; report its id, then that the process in between has ended."""
    try:
        between = os.fork()
        if between == 0:
            _fork_orphan(sock, module, descriptors)
        os.waitpid(between, 0)
    except OSError:
        sock.send(b"0")
    for descriptor in descriptors:
        os.close(descriptor)
    sock.send(_DONE)


def _fork_orphan(sock: socket.socket, module: str, descriptors: list[int]) -> NoReturn:
    """Fork the process, report its id, and end."""
    try:
        pid = os.fork()
    except OSError:
        sock.send(b"0")
        os._exit(1)
    if pid == 0:
        sock.close()
        _run(module, descriptors)
    sock.send(str(pid).encode())
    os._exit(0)


def _run(module: str, descriptors: list[int]) -> NoReturn:
    """Be the process of this module until it ends."""
    for sig in _OF_GROUP:
        signal.signal(sig, signal.default_int_handler if sig == signal.SIGINT else signal.SIG_DFL)
    _rename(NAMES[module])
    sys.exit(importlib.import_module(module).main([str(descriptor) for descriptor in descriptors]))


def _rename(name: str) -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name)
