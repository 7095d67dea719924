"""Waits for a condition that another process fulfils."""

import time
from collections.abc import Callable

SECONDS = 20.0
"""A hang guard; what is waited for takes far less."""


def until_true(condition: Callable[[], object], what: str = "it") -> None:
    """Wait until a condition holds.

    Raises:
        AssertionError: it did not within 20 s.
    """
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come within {SECONDS:g} s"
        time.sleep(0.05)
