"""The fleet of a run: the setting `fleet` of its manifests, and what the hub reports about the members, for column `fleet` of `states`."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec

from metering_format.places import FLEET
from proxy.config.model import Config
from proxy.shared_usage.segment import Segment

CLOCK_MOVED_MS: Final = 200
"""Change of the time of the bus, compared with the clock of this machine, that is metered."""


def fleet_setting(config: Config, segment: Segment, digests: bytes) -> dict[str, Any]:
    """Return the setting of a run of a member, or nothing without a fleet.

    Args:
        digests: key of the digests of groups. The id of the fleet depends on it, so members with another secret have another id.
    """
    fleet = config.fleet
    if fleet is None:
        return {}
    number = blake2b(digests, person=b"sluice metering", digest_size=8).hexdigest()
    member = fleet.member or socket.gethostname()
    return {FLEET: {"id": number, "name": fleet.name, "member": member, "incarnation": segment.identity, "column": segment.fleet}}


class FleetFact:
    """What the hub has reported of the fleet since the start of the run.

    Attributes:
        text: JSON with "clock_ms", the time of the bus minus monotonic time, "members", the names by incarnation, and "is_cut_off", whether
            this member hears nobody; None: nothing yet.
    """

    def __init__(self) -> None:
        self.text: str | None = None
        self._clock_ms = 0
        self._is_cut_off = False
        self._members: Mapping[str, str] = {}

    def update(self, clock_ms: int, members: Mapping[str, str], *, is_cut_off: bool) -> bool:
        """Take what the hub reports; return whether `text` has changed. A member that is not heard any more stays."""
        members = {**self._members, **members}
        is_same = members == self._members and is_cut_off == self._is_cut_off
        if self.text is not None and is_same and abs(clock_ms - self._clock_ms) < CLOCK_MOVED_MS:
            return False
        self._clock_ms, self._members, self._is_cut_off = clock_ms, members, is_cut_off
        self.text = msgspec.json.encode({"clock_ms": clock_ms, "members": members, "is_cut_off": is_cut_off}).decode()
        return True
