"""How throttle times are applied: settings that all sessions of a process share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

INT32_MAX = 2**31 - 1
AGE_MAX_MS = 25_000  # below every client's request timeout (30 s is the shortest default)
IN_FLIGHT_MAX = 64


class Mode(Enum):
    """What happens to a client that is over its quota."""

    DELAY = "delay"  # its answer waits, then reading goes on
    MUTE = "mute"  # it is answered at once with its throttle time, then not read (KIP-219)
    OBSERVE = "observe"  # nothing; arithmetic and metrics run as if


@dataclass(slots=True)
class Enforcement:
    """Shared and mutable: a reload changes it in place, the next verdict obeys."""

    mode: Mode = Mode.DELAY
    delay_max_ms: int = 5_000

    @property
    def only_observes(self) -> bool:
        """Whether verdicts are worked out and not acted upon."""
        return self.mode is Mode.OBSERVE
