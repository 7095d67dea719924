"""Starts and ends the processes of the demo; none of them outlives the demo."""

import ctypes
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

from proxy.demo.clients.cast import Role
from proxy.demo.judgement.watcher import ask
from proxy.demo.ports import free_ports
from proxy.demo.report import READY
from proxy.demo.series import Series

START_SECONDS: Final = 20
STOP_SECONDS: Final = 12
_PR_SET_PDEATHSIG: Final = 1
_LOG_LINES_SHOWN: Final = 5
_libc = ctypes.CDLL(None)


class DemoError(Exception):
    """The demo cannot continue; the text has the reason."""


class Child:
    """A Python process whose stderr goes to a file in `folder`."""

    def __init__(self, name: str, module: str, arguments: list[str], folder: Path) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and modules
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C reaches only the demo, which ends its children in order
                preexec_fn=_die_with_parent,
            )

    def check(self) -> None:
        """Check that the process has not failed.

        Raises:
            DemoError: it ended with an exit code other than 0.
        """
        if self.process.poll() not in (None, 0):
            last = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
            raise DemoError("\n".join([f"{self.name} ended with {self.process.returncode}", *last]))

    def stop(self) -> None:
        """Terminate the process; kill it after a time limit."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class ProxyChild(Child):
    """`sluice run` in front of the brokers at `upstream`, on free ports.

    Args:
        name: of the process.
        upstream: addresses of the brokers.
        quotas: file with the quotas.
        brokers: number of brokers.
        folder: folder of the run.
        arguments: further arguments of the command.

    Raises:
        DemoError: Sluice is not ready within 20 s.
    """

    def __init__(self, name: str, upstream: str, quotas: Path, brokers: int, folder: Path, arguments: list[str]) -> None:
        first = free_ports(3 + brokers)
        self.bootstrap = f"127.0.0.1:{first}"
        self.admin_port = first + 2 + brokers
        places = ["--listen", self.bootstrap, "--upstream", upstream, "--admin", f"127.0.0.1:{self.admin_port}"]
        super().__init__(name, "sluice_cli", ["run", *places, "--quotas", str(quotas), *arguments], folder)
        try:
            self._wait_until_ready()
        except DemoError:
            self.stop()
            raise

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + START_SECONDS
        while not self._is_ready():
            self.check()
            if time.monotonic() > end:
                raise DemoError(f"{self.name} did not become ready")
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        try:
            return ask(self.admin_port, "/readyz")[0] == 200
        except OSError:
            return False


class ClientChild(Child):
    """A client process and its reported progress.

    Args:
        name: of the process.
        role: the client.
        bootstrap: address of its proxy.
        interval_ms: interval of the offered requests.
        seconds: running time.
        folder: folder of the run.
    """

    def __init__(self, name: str, role: Role, bootstrap: str, interval_ms: int, seconds: int, folder: Path) -> None:
        arguments = [role.name, bootstrap, str(role.partitions(seconds)), str(interval_ms), str(seconds)]
        super().__init__(name, "proxy.demo.clients.client", arguments, folder)
        self.role = role
        self.series = Series()
        self._is_ready = threading.Event()
        self._listener = threading.Thread(target=self._listen, name=role.name, daemon=True)
        self._listener.start()

    def wait_until_ready(self) -> None:
        """Wait until the client has connected.

        Raises:
            DemoError: the client ended, or did not connect within 20 s.
        """
        if not self._is_ready.wait(START_SECONDS):
            self.check()
            raise DemoError(f"{self.name} did not become ready")
        self.check()

    def go(self, now_ms: int) -> None:
        """Start the client's load at `now_ms`."""
        self.series.start_ms = now_ms
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def wait(self, seconds: float) -> None:
        """Wait until the client has ended and its whole output is read.

        Raises:
            DemoError: the client failed, or did not end within `seconds`.
        """
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise DemoError(f"{self.name} did not end") from None
        self._listener.join()
        self.check()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == READY:
                self._is_ready.set()
            else:
                time_ms, total = line.split()
                self.series.append(int(time_ms), int(total))
        self._is_ready.set()  # the process has ended: release a task that waits


def _die_with_parent() -> None:
    """Let the kernel end this process when the demo ends for any reason; called between fork and exec."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
