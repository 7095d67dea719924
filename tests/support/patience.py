"""Waits for a condition that another process fulfils."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

SECONDS = 20.0
"""A time limit against hangs; conditions hold far earlier."""


def until_true(condition: Callable[[], object], what: str = "it", seconds: float = SECONDS) -> None:
    """Wait until a condition holds.

    Raises:
        AssertionError: the condition did not hold within this time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come within {seconds:g} s"
        time.sleep(0.05)


def stop_process(pid: int) -> None:
    """Stop a process by SIGSTOP, and return when each of its threads stands still.

    One thread takes the signal and then stops the others. Until it gets a processor, they go on, and may answer a request that was sent
    after the signal.
    """
    os.kill(pid, signal.SIGSTOP)
    until_true(lambda: _is_stopped(pid), "the stop of the process")


def _is_stopped(pid: int) -> bool:
    try:
        states = [path.read_text().rpartition(") ")[2][0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread ended meanwhile
        return False
    return set(states) == {"T"}
