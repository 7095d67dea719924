"""How throttle times are enforced: settings that all sessions of a process share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

INT32_MAX = 2**31 - 1
AGE_MAX_MS = 25_000  # below every client's request timeout (30 s is the shortest default)
IN_FLIGHT_MAX = 64


class Mode(Enum):
    """What happens to a client that exceeds its quota."""

    DELAY = "delay"  # the response is held, then reading continues
    MUTE = "mute"  # the response is sent at once with its throttle time, then the client is not read (KIP-219)
    OBSERVE = "observe"  # nothing; decisions and metrics are the same


@dataclass(slots=True)
class Enforcement:
    """Shared and mutable: a reload changes it in place, and the next verdict uses it."""

    mode: Mode = Mode.DELAY
    delay_max_ms: int = 5_000

    @property
    def only_observes(self) -> bool:
        """Whether verdicts are computed and not enforced."""
        return self.mode is Mode.OBSERVE
