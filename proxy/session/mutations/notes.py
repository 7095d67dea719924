"""Controller mutations for the meter: a token bucket is no sensor, so a trace alone tells of them."""

from __future__ import annotations

from proxy.metering.meter import Meter
from proxy.session.enforcement import Enforcement, Mode
from quota.mutation_group import MutationGroup


class MutationNotes:
    """Notes what one connection's topics cost, and what that left in the bucket."""

    __slots__ = ("_enforcement", "_meter", "_number")

    def __init__(self, meter: Meter | None, number: int, enforcement: Enforcement) -> None:
        self._meter = meter
        self._number = number
        self._enforcement = enforcement

    def note(self, group: MutationGroup, permits: int, throttle_ms: int, api_index: int, now_ms: int) -> None:
        """Note `permits` that were charged (negative: given back) or, with a wait, refused or charged and waited for."""
        if self._meter is None:
            return
        applied_ms = 0 if self._enforcement.mode is Mode.OBSERVE else throttle_ms
        self._meter.note(group, permits, throttle_ms, applied_ms, now_ms, self._number, api_index, group.tokens(now_ms))
