"""A standalone Spark cluster on loopback: one master and two workers, each in its own process, and as on a machine of its own."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.pipeline.support.spark_jvm import quick_jvm
from tests.support.ports import free_port
from tests.support.processes.namespaces import own_mounts

HOST = "127.0.0.1"
START_S = 60.0
WORKERS = 2
SPARK_HOME = Path(pyspark.__file__).parent
ROOT = Path(__file__).resolve().parent.parent.parent.parent
BARE_PYTHON = Path(sys.executable).resolve()
"""The interpreter below the virtual environment: it has none of its packages."""


def environment() -> dict[str, str]:
    """Return the variables that Spark's scripts need: Spark's home, small JVMs, and loopback only."""
    daemons = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": quick_jvm()}
    return os.environ | {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": HOST} | daemons


@contextmanager
def spark_cluster(folder: Path, *, apart: Path | None = None) -> Iterator[str]:
    """Yield the master's address; all processes end with the block.

    Args:
        apart: a folder that is private to each worker and empty at first, as on machines without a shared disk. The workers see neither
            the checkout nor its environment, only Spark. Needs mount namespaces. None: workers see all of this machine.
    """
    address = f"spark://{HOST}:{free_port()}"
    deploy = "org.apache.spark.deploy"
    master = [f"{deploy}.master.Master", "--host", HOST, "--port", address.rpartition(":")[2], "--webui-port", str(free_port())]
    worker = [f"{deploy}.worker.Worker", "--host", HOST, "--cores", "1", "--memory", "1g", "--webui-port", "0", address]
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(_start(master, folder / "master.log"))
        _wait_for(folder / "master.log", "Starting Spark master", 1)
        before, home = _machine_of_its_own(folder / "spark", apart) if apart is not None else ([], SPARK_HOME)
        started.extend(
            _start([*worker, "--work-dir", str(folder / f"work-{number}")], folder / f"worker-{number}.log", before, home)
            for number in range(WORKERS)
        )
        _wait_for(folder / "master.log", "Registering worker", WORKERS)
        yield address
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(30)


def _machine_of_its_own(home: Path, apart: Path) -> tuple[list[str], Path]:
    """Return a command prefix that hides the checkout and its environment, and Spark's home there."""
    home.mkdir()
    hidden = {ROOT, Path(sys.prefix)}
    return own_mounts([apart, *sorted(hidden, reverse=True)], {SPARK_HOME: home}), home


def _start(arguments: list[str], log: Path, before: Sequence[str] = (), home: Path = SPARK_HOME) -> subprocess.Popen[bytes]:
    command = [*before, str(home / "bin" / "spark-class"), *arguments]
    with log.open("wb") as file:
        return subprocess.Popen(
            command, env=environment() | {"SPARK_HOME": str(home)}, cwd=log.parent, stdout=file, stderr=subprocess.STDOUT
        )


def _wait_for(log: Path, text: str, times: int) -> None:
    ends = time.monotonic() + START_S
    while len(re.findall(text, log.read_text(errors="replace"))) < times:
        if time.monotonic() > ends:
            raise TimeoutError(f"Spark says no {text!r} within {START_S:.0f} s:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.2)
