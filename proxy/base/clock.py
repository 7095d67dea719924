"""The only file that reads a clock."""

from __future__ import annotations

import time

NS_PER_MS = 1_000_000

now_ns = time.monotonic_ns
"""Monotonic time in nanoseconds, for measurements: the system's own function, called at every read."""


def now_ms() -> int:
    """The same clock in milliseconds, used by quotas, timers and deadlines."""
    return now_ns() // NS_PER_MS


def wall_time_s() -> float:
    """Seconds since the epoch, for records and for display; no quota and no timer uses it."""
    return time.time()
