"""Sluice as a child process, started as an operator starts it: `python -m sluice_cli run ...`."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.places import ROOT, log_file
from tests.support.ports import BROKER_PORTS, free_bootstrap_port, free_port_range

START_SECONDS = 30
STOP_SECONDS = 30
PAGE_SHARED_SECONDS = 1.01
"""Time limits against hangs. The drain itself ends within 10 s."""

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)

QuotaEntry = Mapping[str, str | float]


class SluiceFailedError(Exception):
    """The proxy did not become ready; the text ends with what it printed."""


def write_quotas(path: Path, entries: Iterable[QuotaEntry]) -> Path:
    """Write quotas.toml: one [[quota]] table for each mapping of keys to values. The file is replaced atomically, as an editor does."""
    text = "\n".join("[[quota]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in entry.items()) for entry in entries)
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.rename(path)
    return path


class SluiceProcess:
    """`sluice run` in front of `upstream`; it ends with this process at the latest. A context manager that is ready inside the block.

    Args:
        upstream: bootstrap addresses of the brokers.
        quotas: a quotas.toml, or None for no limits.
        enforcement: delay, mute or observe; None leaves it to the default.
        arguments: further options of `sluice run`.
        port: the bootstrap port; a free one if not given.
        config: a sluice.toml with listeners and upstream, for settings that flags cannot express.
        environment: variables in addition to this process's own; read at each start.
        name: the name of the log under build/logs.
        module: the module to run; a test may have a Sluice that also counts its decisions.
    """

    def __init__(
        self,
        upstream: str,
        *,
        quotas: Path | None = None,
        enforcement: str | None = None,
        arguments: Iterable[str] = (),
        port: int | None = None,
        config: Path | None = None,
        environment: Mapping[str, str] | None = None,
        name: str = "sluice",
        module: str = "sluice_cli",
    ) -> None:
        self.port = port or free_bootstrap_port()
        self.admin_port = free_port_range(1)
        self.log = log_file(name)
        where = ["--listen", self.bootstrap, "--upstream", upstream] if config is None else ["--config", str(config)]
        self._command = [sys.executable, "-m", module, "run", *where]
        self._command += ["--admin", f"127.0.0.1:{self.admin_port}"]
        self._command += ["--quotas", str(quotas)] if quotas else []
        self._command += ["--enforcement", enforcement] if enforcement else []
        self._command += arguments
        self.environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._page_shared_until = 0.0

    @property
    def bootstrap(self) -> str:
        """Return the address clients bootstrap at."""
        return f"127.0.0.1:{self.port}"

    @property
    def ports(self) -> range:
        """Return every port of Sluice that clients may see: the bootstrap port and those of the brokers."""
        return range(self.port, self.port + 1 + BROKER_PORTS)

    def broker_port(self, node_id: int) -> int:
        """Return Sluice's port of a broker."""
        return self.port + 1 + node_id

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._running.pid

    @property
    def exit_code(self) -> int | None:
        """Return the exit code; None while the process runs."""
        return self._running.poll()

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def start(self) -> None:
        """Start it, on the same ports as the last time, and wait for /readyz.

        Raises:
            SluiceFailedError: the process ended, or was not ready within 30 s.
        """
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env=os.environ | self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise SluiceFailedError(f"sluice is not ready; {self.log}:\n{self.output()[-3_000:]}")
            time.sleep(0.02)

    def is_ready(self) -> bool:
        """Whether /readyz answers 200."""
        with contextlib.suppress(OSError):
            return self.get("/readyz")[0] == 200
        return False

    def get(self, path: str) -> tuple[int, str]:
        """Ask the admin listener. Returns status and body.

        Raises:
            OSError: the admin listener does not answer.
        """
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()

    def metric(self, name: str, **labels: str) -> float:
        """Return the present sum of a metric over all series with these labels; 0 when there is none."""
        time.sleep(max(0.0, self._page_shared_until - time.monotonic()))  # a page is cached for a second and may be older
        page = self.get("/metrics")[1]
        self._page_shared_until = time.monotonic() + PAGE_SHARED_SECONDS
        total = 0.0
        for line in page.splitlines():
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] == name and all(f'{key}="{text}"' in series for key, text in labels.items()):
                total += float(value)
        return total

    def quotas(self) -> Any:
        """Return the content of /quotas."""
        return json.loads(self.get("/quotas")[1])

    def send(self, number: signal.Signals) -> None:
        """Send a signal: SIGHUP reloads, SIGTERM drains."""
        self._running.send_signal(number)

    def stop(self) -> int:
        """Send SIGTERM (drain) and wait. Return the exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end.

        Raises:
            SluiceFailedError: it still runs after 30 s; it is killed.
        """
        try:
            return self._running.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise SluiceFailedError(f"sluice did not end in {STOP_SECONDS} s:\n{self.output()[-3_000:]}") from None

    def kill(self) -> None:
        """Send SIGKILL if it runs."""
        if self._process and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def output(self) -> str:
        """Return the output of all its starts."""
        return self.log.read_text(errors="replace")

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """Return its log lines, one JSON object each; only those whose "event" is `name` if given."""
        lines = [json.loads(line) for line in self.output().splitlines() if line.startswith("{")]
        return [line for line in lines if name is None or line.get("event") == name]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process and self._process.poll() is None:
            self.stop()


def _die_with_parent() -> None:
    """Let the kernel end the child when the thread that started it ends; runs between fork and exec."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
