"""The one file that reads a clock."""

from __future__ import annotations

import time

NS_PER_MS = 1_000_000

_monotonic_ns = time.monotonic_ns


def now_ms() -> int:
    """Monotonic time in milliseconds; quotas, timers and deadlines know no other."""
    return _monotonic_ns() // NS_PER_MS


def now_ns() -> int:
    """The same clock in nanoseconds, for what is measured rather than scheduled."""
    return _monotonic_ns()


def wall_time_s() -> float:
    """Seconds since the epoch: a label for people, never an operand."""
    return time.time()
