"""Decisions of connection rates, as decisions of the meter."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from metering_format.event_kinds import REMOTE, SKIPPED, UNRECORD
from metering_format.places import SHARED
from proxy.meter.meter import NO_API, NO_CONNECTION, Meter
from quota.connections.connection_rate import ConnectionRate

HERE: Final = 0
ELSEWHERE: Final = 1
"""Numbers in the files: this process, and the other members of the fleet together."""


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

    def counted_elsewhere(self, rate: ConnectionRate, connections: int, now_ms: int) -> None:
        """Record connections of other members; before the first ones, what this process has counted."""
        total = rate.elsewhere_total
        if total == connections:
            self._meter.remote(rate, HERE, 0, round(rate.recorded_total) - total, now_ms, SKIPPED)
        self._meter.remote(rate, ELSEWHERE, connections, total, now_ms, REMOTE)


def connections_setting(segment: str) -> dict[str, Any]:
    """Return the manifest's setting for a supervisor whose connections other members count.

    It is compared with no other run: the others have no total of what it recorded of them together.
    """
    return {
        SHARED: {"segment": f"{segment}-connections-{os.getpid()}", "worker": HERE, "workers": 2, "numbers": [HERE], "of": "connections"}
    }
