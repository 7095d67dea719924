"""Unit files of deploy/systemd, and a service manager that starts one as systemd does: environment, notifications, main process."""

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.support.patience import until_true
from tests.support.places import ROOT, log_file
from tests.support.processes.sluice_workers import is_alive

UNITS: Final = ROOT / "deploy/systemd"
PROGRAM: Final = "/opt/sluice/bin/sluice"
CONFIG: Final = "/etc/sluice/sluice.toml"
"""Paths in the units, which stand for others in tests."""


def read_unit(path: Path) -> dict[str, list[str]]:
    """Return the settings of a unit: each may stand there several times."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        key, is_setting, value = line.partition("=")
        if is_setting and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


class ManagedService:
    """The processes of sluice.service, until the end of the block.

    Attributes:
        main: the main process as systemd knows it: the first one, until a message names another.
        states: messages of the service, in order.

    Args:
        folder: an empty folder; it holds the runtime directory and the socket of the service manager.
        config: the configuration in the place of that of the unit.
    """

    def __init__(self, folder: Path, config: Path) -> None:
        self._unit = read_unit(UNITS / "sluice.service")
        self._config = config
        self._runtime = folder / "run"
        self._runtime.mkdir(mode=int(self._unit["RuntimeDirectoryMode"][0], 8))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / "notify"))
        self._socket.setblocking(False)
        self._environment = {"NOTIFY_SOCKET": str(folder / "notify"), "RUNTIME_DIRECTORY": str(self._runtime)}
        self._process: subprocess.Popen[bytes] | None = None
        self._mains: list[int] = []
        self.states: list[str] = []
        self.log = log_file("sluice-unit")

    def __enter__(self) -> Self:
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                self._command("ExecStart", self._unit), env=os.environ | self._environment, stdout=output, stderr=subprocess.STDOUT
            )
        self._mains.append(self._process.pid)
        self.until(lambda: "READY=1" in self.states, "READY=1")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process is not None
        for pid in self._mains:
            if not self.has_ended(pid):
                os.kill(pid, signal.SIGKILL if error is not None else signal.SIGTERM)
        self._process.wait(30)
        until_true(lambda: all(map(self.has_ended, self._mains)), "the end of the service")
        self._socket.close()

    @property
    def main(self) -> int:
        """Return the main process."""
        self._receive()
        return self._mains[-1]

    def has_ended(self, pid: int) -> bool:
        """Whether a process of the service has ended."""
        assert self._process is not None
        return self._process.poll() is not None if pid == self._process.pid else not is_alive(pid)

    def reload(self) -> None:
        """Run ExecReload, as `systemctl reload` does."""
        subprocess.run(self._command("ExecReload", self._unit), check=True, timeout=30)

    def run(self, unit: Path) -> subprocess.CompletedProcess[str]:
        """Run another unit to its end, with the environment that it sets: its runtime directory is that of this service."""
        settings = read_unit(unit)
        given = dict(one.split("=", 1) for one in settings["Environment"])
        assert given == {"RUNTIME_DIRECTORY": f"/run/{self._unit['RuntimeDirectory'][0]}"}
        environment = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
        environment |= {"RUNTIME_DIRECTORY": str(self._runtime)}
        command = self._command("ExecStart", settings)
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def until(self, condition: object, what: str) -> None:
        """Wait until a condition holds, and meanwhile receive messages."""
        assert callable(condition)

        def holds() -> bool:
            self._receive()
            return bool(condition())

        try:
            until_true(holds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.log}:\n{self.log.read_text()[-3_000:]}") from error

    def _command(self, key: str, unit: Mapping[str, list[str]]) -> list[str]:
        (line,) = unit[key]
        here = {
            PROGRAM: [sys.executable, "-m", "sluice_cli"],
            CONFIG: [str(self._config)],
            "$MAINPID": [str(self._mains[-1:] and self.main)],
        }
        return [part for word in shlex.split(line) for part in here.get(word, [word])]

    def _receive(self) -> None:
        while True:
            try:
                message = self._socket.recv(4_096).decode()
            except BlockingIOError:
                return
            self.states.append(message)
            if message.startswith("MAINPID="):
                self._mains.append(int(message.removeprefix("MAINPID=")))
