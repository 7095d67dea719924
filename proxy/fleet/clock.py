"""The clock of the bus, which no member sets."""

from __future__ import annotations

from typing import NamedTuple


class Clock(NamedTuple):
    """Converts times of the bus to monotonic ms.

    Attributes:
        bus_ms, local_ms: the same moment by both clocks.
    """

    bus_ms: int
    local_ms: int

    def local(self, bus_ms: int) -> int:
        """Return the monotonic time of a time of the bus, in ms."""
        return self.local_ms + bus_ms - self.bus_ms

    def bus(self, local_ms: int) -> int:
        """Return the time of the bus at a monotonic time, in ms."""
        return self.bus_ms + local_ms - self.local_ms
