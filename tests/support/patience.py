"""Waits for a condition that another process fulfils."""

import time
from collections.abc import Callable

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
