"""The rate of new connections, and the delay of one that exceeds its bound.

Source: Kafka 3.8 `ConnectionQuotas.recordAndGetThrottleTimeMs`: a sensor with a rate and a bound, its delay capped at one window.
"""

from __future__ import annotations

from typing import Final, Protocol

from quota.sensor import Rate
from quota.throttle import throttle_time_ms

UNLIMITED_CONNECTIONS: Final = 2**31 - 1
"""The bound that means "no limit" for counts and rates, as in Kafka."""


class RateObserver(Protocol):
    """Receives the decisions of connection rates."""

    def recorded(self, rate: ConnectionRate, throttle_ms: int, waits_ms: int, now_ms: int) -> None:
        """A connection was counted; `throttle_ms` is this rate's delay, `waits_ms` the longest delay of all rates."""

    def taken_back(self, rate: ConnectionRate, now_ms: int) -> None:
        """A connection was taken back."""

    def counted_elsewhere(self, rate: ConnectionRate, connections: int, now_ms: int) -> None:
        """Connections that another process counted were recorded, without checking the bound."""


class ConnectionRate(Rate):
    """Connections per second with a bound. `meter_ref` and `metered_bound` belong to the meter; `parent` is always None.

    `elsewhere_total` is the number of connections that other processes counted.

    State is Kafka's after every record. Kafka measures each time, which resets obsolete samples; so does this class, at the same time.
    Without a bound there is nothing to compare, and the sum is not computed.
    """

    __slots__ = ("bound", "elsewhere_total", "meter_ref", "metered_bound", "parent")

    def __init__(self, bound: int, num_samples: int, window_ms: int, created_ms: int = 0) -> None:
        super().__init__(num_samples, window_ms, created_ms)
        self.bound = bound
        self.elsewhere_total = 0
        self.parent: ConnectionRate | None = None
        self.meter_ref = -1
        self.metered_bound: float | None = None

    def record_one(self, now_ms: int) -> int:
        """Count a connection; return its delay in ms: 0 within the bound, at most one window."""
        self._add(1.0, now_ms)
        if now_ms >= self._purge_ms:
            self._purge(now_ms)
        bound = self.bound
        if bound >= UNLIMITED_CONNECTIONS:
            return 0
        total, window_ms = self._peek(now_ms)
        observed = total / (window_ms / 1_000.0)
        if observed <= bound:
            return 0
        return max(0, min(throttle_time_ms(observed, bound, window_ms), self.window_ms))

    def take_back(self, now_ms: int) -> None:
        """Take back a refused connection, without checking the bound."""
        self._add(-1.0, now_ms)

    def count_elsewhere(self, connections: int, now_ms: int) -> int:
        """Record connections that another process counted, without checking the bound, but not before the last record; return the time."""
        time_ms = max(now_ms, self._last_ms) if self._values else now_ms
        self._add(float(connections), time_ms)
        self.elsewhere_total += connections
        return time_ms
