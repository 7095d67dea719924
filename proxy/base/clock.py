"""The one file that reads a clock."""

from __future__ import annotations

import time

NS_PER_MS = 1_000_000

now_ns = time.monotonic_ns
"""Monotonic time in nanoseconds, for what is measured rather than scheduled: the system's own function, asked at every read."""


def now_ms() -> int:
    """The same clock in milliseconds; quotas, timers and deadlines know no other."""
    return now_ns() // NS_PER_MS


def wall_time_s() -> float:
    """Seconds since the epoch: a label for people, never an operand."""
    return time.time()
