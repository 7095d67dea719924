"""Decisions of connection rates, as decisions of the meter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from metering_format.event_kinds import UNRECORD
from proxy.meter.meter import Meter
from quota.connections.connection_rate import ConnectionRate

NO_CONNECTION: Final = 0
NO_API: Final = -1 << 16
"""API key of these decisions: a connection has none yet."""


class ConnectionDecisions:
    """Records each connection that a rate counted, with its delay."""

    def __init__(self, meter: Meter, only_observes: Callable[[], bool]) -> None:
        self._meter = meter
        self._only_observes = only_observes

    def recorded(self, rate: ConnectionRate, throttle_ms: int, waits_ms: int, now_ms: int) -> None:
        """Record that a connection was counted."""
        applied_ms = 0 if self._only_observes() else waits_ms
        self._meter.record(rate, 1, throttle_ms, applied_ms, now_ms, NO_CONNECTION, NO_API)

    def taken_back(self, rate: ConnectionRate, now_ms: int) -> None:
        """Record that a counted connection was unrecorded."""
        self._meter.record_unchecked(rate, -1, now_ms, NO_CONNECTION, NO_API, UNRECORD)
