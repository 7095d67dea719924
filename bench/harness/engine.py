"""Starts the stub broker and the load generator: in C where a compiler is installed, otherwise in Python."""

import mmap
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.harness.frames import Template, answers, write_templates
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parent.parent.parent
HOST = "127.0.0.1"
READY = b"ready\n"
COMPILE_SECONDS_MAX = 60


class Child:
    """A child process that prints "ready" and ends when its standard input is closed."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self.process.stdout.readline() != READY:
            raise RuntimeError(f"{command[0]} {command[1]} did not start")

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        """Close its standard input and wait."""
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Engine:
    """The two peers of a proxy under test, and the folder of their files."""

    def __init__(self, *, python_only: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sluice-bench-"))
        self._peer = None if python_only else self._compiled()
        self._files = 0

    @property
    def name(self) -> str:
        """Return which peers these are, for the report."""
        return "C" if self._peer else "Python"

    def _compiled(self) -> str | None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            return None
        target = self.folder / "peer"
        command = [compiler, "-O2", "-o", str(target), str(ROOT / "bench" / "harness" / "peer.c")]
        done = subprocess.run(command, capture_output=True, timeout=COMPILE_SECONDS_MAX, check=False)
        return str(target) if done.returncode == 0 else None

    def file(self, content: bytes) -> Path:
        """Return the path of a new file in the folder."""
        self._files += 1
        path = self.folder / f"{self._files}.bin"
        path.write_bytes(content)
        return path

    def stub(self, fetch_record_bytes: int, others: Sequence[Template] = (), port: int | None = None) -> tuple[Child, int]:
        """Start a stub broker that advertises the port it listens on. `others` replace answers of its own."""
        port = port or free_port()
        said = {(one.key, one.version): one for one in (*answers(HOST, port, fetch_record_bytes), *others)}
        templates = self.file(write_templates(list(said.values())))
        command = [self._peer, "stub"] if self._peer else [sys.executable, "-m", "bench.harness.stub_broker"]
        return Child([*command, str(templates), str(port)]), port

    def load(
        self,
        requests: Template | Sequence[Template],
        port: int,
        *,
        conns: int,
        depth: int = 1,
        rate: float = 0,
        churn: bool = False,
        ca: Path | None = None,
        latencies: int = 0,
    ) -> "Load":
        """Start a load generator against `port`; with several requests each connection takes the next of them.

        Args:
            ca: the authority of a load with TLS, which is in Python.
            latencies: the number of counters, one per microsecond, of answer times; in C, and with a rate only.
        """
        command = [self._peer, "load"] if self._peer and ca is None else [sys.executable, "-m", "bench.harness.load"]
        request = self.file(write_templates([requests] if isinstance(requests, Template) else list(requests)))
        counter = self.file(bytes(8 * (1 + latencies)))
        tail = [str(request), str(port), str(conns), str(depth), str(rate), str(int(churn)), str(counter)]
        return Load([*command, *tail, *([] if ca is None else [str(ca)])], counter)

    def close(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Load(Child):
    """A running load generator."""

    def __init__(self, command: Sequence[str], counter: Path) -> None:
        super().__init__(command)
        with counter.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)

    def done(self) -> int:
        """Answers received so far.

        Raises:
            RuntimeError: the generator has ended by itself (a closed connection, answers out of order).
        """
        if self.process.poll() is not None:
            raise RuntimeError(f"the load generator ended with exit code {self.process.returncode}")
        return struct.unpack_from("<q", self._map)[0]

    def latencies(self) -> Sequence[int]:
        """Return the number of answers by microseconds; the last one counts all that took longer."""
        return memoryview(self._map[8:]).cast("q")


PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
WHOLE_PROCESS = 2  # Linux: the clock of a process is its inverted pid and this kind (posix-timers.h: CPUCLOCK_SCHED)


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return utime + stime of all threads of these processes, from the kernel's CPU clock of a process, which does not round to ticks
    of 10 ms.
    """
    return sum(time.clock_gettime(~pid << 3 | WHOLE_PROCESS) for pid in pids)


def rss_bytes(pids: Sequence[int]) -> int:
    """Return the resident memory of these processes."""
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES for pid in pids)


def tree(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return found
