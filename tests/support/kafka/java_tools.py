"""Kafka's own command-line tools, many calls in one JVM per version (see ToolServer.java)."""

import base64
import contextlib
import itertools
import subprocess
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.support.kafka.jars import KRAFT
from tests.support.kafka.java_process import Jvm, java_command
from tests.support.places import log_file

DEFAULT_TIMEOUT_SECONDS = 120


class ToolFailedError(Exception):
    """A tool ended with a code other than 0, or did not end; the text has its output."""


@dataclass(slots=True)
class Command:
    """A running call, or its result."""

    command_id: str
    name: str
    _out: list[bytes] = field(default_factory=list)
    _err: list[bytes] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    code: int | None = None

    @property
    def out(self) -> str:
        """Return its standard output so far."""
        return b"".join(self._out).decode(errors="replace")

    @property
    def err(self) -> str:
        """Return its standard error so far."""
        return b"".join(self._err).decode(errors="replace")

    def is_running(self) -> bool:
        """Whether it runs."""
        return not self._ended.is_set()

    def wait(self, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> Self:
        """Wait for its end.

        Raises:
            ToolFailedError: its code is not 0, or it did not end in time.
        """
        if not self._ended.wait(timeout_seconds):
            raise ToolFailedError(f"{self.name} did not end in {timeout_seconds} s\n{self.out}\n{self.err}")
        if self.code:
            raise ToolFailedError(f"{self.name} ended with {self.code}\n{self.out}\n{self.err}")
        return self

    def take(self, kind: str, payload: str) -> None:
        """Handle a line of the tool server: a piece of output (O, E) or the end (X)."""
        if kind == "X":
            self.code = int(payload)
            self._ended.set()
        else:
            (self._out if kind == "O" else self._err).append(base64.b64decode(payload))


class JavaTools:
    """One JVM that runs any main class of Kafka `version`, or of tests/support/java, any number of times. A context manager.

    `properties` of the JVM are KEY=VALUE.
    """

    def __init__(self, version: str = KRAFT, heap_mb: int = 256, *properties: str) -> None:
        self.version = version
        self._ids = itertools.count()
        self._commands: dict[str, Command] = {}
        with log_file(f"tools-{version}").open("ab") as log:
            self._process = subprocess.Popen(
                [*java_command(version, Jvm(heap_mb), *properties), "ToolServer"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name=f"java-tools-{version}", daemon=True)
        self._reader.start()

    def start(self, main_class: str, *arguments: str) -> Command:
        """Start a command and return at once."""
        command_id = str(next(self._ids))
        command = self._commands[command_id] = Command(command_id, main_class)
        self._tell(command_id, main_class, *(base64.b64encode(argument.encode()).decode() for argument in arguments))
        return command

    def interrupt(self, command: Command) -> None:
        """Interrupt the thread of a command that runs without end, and wait for its end.

        Raises:
            ToolFailedError: it failed, or did not end in time.
        """
        self._tell(command.command_id)
        command.wait()

    @property
    def running(self) -> list[str]:
        """Return the names of the commands that have not ended."""
        return [command.name for command in self._commands.values() if command.is_running()]

    def run(self, main_class: str, *arguments: str, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> Command:
        """Run a command to its end.

        Raises:
            ToolFailedError: its code is not 0, or it did not end in time.
        """
        return self.start(main_class, *arguments).wait(timeout_seconds)

    def close(self) -> None:
        """End the JVM by closing its input; kill it if it does not end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _tell(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write((" ".join(words) + "\n").encode())
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            command_id, kind, payload = line.decode().split()
            self._commands[command_id].take(kind, payload)
        for command in self._commands.values():
            if command.is_running():
                command.take("X", "255")
