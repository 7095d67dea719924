"""One child JVM: started with a small footprint, ended by its own process id, its output in a log file."""

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.class_archive import keeping, using
from tests.support.kafka.jars import class_archive_of, class_path
from tests.support.places import log_file

STOP_SECONDS = 20
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Jvm:
    """Settings of a JVM. By default it is tuned for a quick start rather than for peak speed.

    Attributes:
        heap_mb: the largest heap.
        optimises: whether all compiler levels are used, as in production.
        archives: whether it archives its classes for other JVMs when it ends; otherwise it uses that archive.
    """

    heap_mb: int = 512
    optimises: bool = False
    archives: bool = False


def java_command(version: str, jvm: Jvm, *properties: str) -> list[str]:
    """Return the start of a command line; `properties` are KEY=VALUE."""
    options = ["-XX:+UseSerialGC", "-XX:-UsePerfData", f"-Xmx{jvm.heap_mb}m", *(f"-D{one}" for one in properties)]
    options += [] if jvm.optimises else ["-XX:TieredStopAtLevel=1"]
    options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true"]
    options += [f"-Dlog4j.configuration={(_HERE / 'log4j.properties').as_uri()}", "-Dzookeeper.forceSync=no"]
    classes = class_path(version)
    options += (keeping if jvm.archives else using)(class_archive_of(version))
    return ["java", *options, "-cp", classes]


def jmx_properties(port: int) -> tuple[str, ...]:
    """Return the properties that open the JVM's beans to this machine at `port`."""
    prefix = "com.sun.management.jmxremote"
    ours = (f"{prefix}.host=127.0.0.1", "java.rmi.server.hostname=127.0.0.1")
    return (f"{prefix}.port={port}", f"{prefix}.rmi.port={port}", f"{prefix}.authenticate=false", f"{prefix}.ssl=false", *ours)


class JavaProcess:
    """A main class in its own JVM; it ends with this process at the latest (see Supervised.java)."""

    def __init__(self, version: str, main: list[str], *, name: str, jvm: Jvm, properties: tuple[str, ...] = ()) -> None:
        self.log = log_file(name)
        command = [*java_command(version, jvm, *properties), "Supervised", *main]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """Return the child's process id."""
        return self._process.pid

    def is_running(self) -> bool:
        """Whether the JVM runs."""
        return self._process.poll() is None

    def log_tail(self, lines: int = 30) -> str:
        """Return the last lines of its output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if it still runs."""
        if self.is_running():
            os.kill(self._process.pid, number)

    def stop(self, within_s: float = STOP_SECONDS) -> None:
        """Send SIGTERM and wait; send SIGKILL if it takes longer than `within_s`."""
        self.signal(signal.SIGTERM)
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close_pipe()

    def kill(self) -> None:
        """Send SIGKILL and wait."""
        self.signal(signal.SIGKILL)
        self._process.wait()
        self._close_pipe()

    def _close_pipe(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
