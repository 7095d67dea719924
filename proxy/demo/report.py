"""The progress report of a client on stdout: a line for each record."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from proxy.base.clock import now_ms

READY = "ready"


@dataclass(frozen=True)
class Task:
    """The parameters of a client."""

    bootstrap: str
    topic: str
    partitions: int
    record_bytes: int
    interval_ms: int
    seconds: int


class Stage(Protocol):
    """The channel between a client and the demo."""

    def wait_for_go(self) -> int:
        """Report "ready", wait for the start of all clients, and return the start time in monotonic ms."""

    def passed(self, size: int) -> None:
        """Report that a record of `size` bytes was acknowledged or read."""


ClientTask = Callable[[Task, Stage], None]


class PipeStage:
    """A stage over stdin and stdout. A line has the time in monotonic ms and the total of bytes."""

    def __init__(self) -> None:
        self._total = 0

    def wait_for_go(self) -> int:
        """Report "ready", and wait for the line with the start time."""
        self._print_line(READY)
        if not sys.stdin.readline():
            sys.exit(1)  # the demo has ended
        return now_ms()

    def passed(self, size: int) -> None:
        """Write a line with the time and the new total."""
        self._total += size
        self._print_line(f"{now_ms()} {self._total}")

    @staticmethod
    def _print_line(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
