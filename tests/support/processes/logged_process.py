"""A child process that is ready at some time, with its output in a log."""

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.support.patience import until_true
from tests.support.places import ROOT, log_file

END_SECONDS: Final = 30
TAIL_CHARS: Final = 3_000


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process by SIGTERM; kill it if that takes too long."""
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def with_log(error: AssertionError, log: Path) -> AssertionError:
    """Return an error that also has the end of a log."""
    return AssertionError(f"{error}; {log}:\n{log.read_text()[-TAIL_CHARS:]}")


class LoggedProcess(ABC):
    """A process that runs until the end of the block, and is ready inside it.

    Args:
        command: the program with its arguments.
        name: the name of the log.
        what: the program, for the message when it is not ready in time.
    """

    def __init__(self, command: Sequence[str], name: str, what: str) -> None:
        self._command = command
        self._log = log_file(name)
        self._what = what
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether the process answers."""

    def __enter__(self) -> Self:
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(self._command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        try:
            until_true(self.is_ready, self._what)
        except AssertionError as error:
            self.__exit__(None, None, None)
            raise with_log(error, self._log) from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process is not None
        end(self._process)
