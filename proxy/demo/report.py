"""The progress that a client of the demo reports on stdout, a line for each record."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from proxy.base.clock import now_ms

READY = "ready"


@dataclass(frozen=True)
class Task:
    """The task of a client."""

    bootstrap: str
    topic: str
    partitions: int
    record_bytes: int
    interval_ms: int
    seconds: int


class Stage(Protocol):
    """The channel between a client and the demo."""

    def wait_for_go(self) -> int:
        """Say "ready", wait until all are, and return the time in ms."""

    def passed(self, size: int) -> None:
        """Say that a record of `size` bytes was acknowledged, or read."""


Errand = Callable[[Task, Stage], None]


class PipeStage:
    """A stage over the process's stdin and stdout. A line is "time in ms, bytes so far"; the clock is the machine's monotonic one."""

    def __init__(self) -> None:
        self._total = 0

    def wait_for_go(self) -> int:
        """Say "ready" and wait for a line."""
        self._say(READY)
        if not sys.stdin.readline():
            sys.exit(1)  # the demo is gone
        return now_ms()

    def passed(self, size: int) -> None:
        """Say when, and how much so far."""
        self._total += size
        self._say(f"{now_ms()} {self._total}")

    @staticmethod
    def _say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
