"""The groups of the proxy: the arithmetic of `quota`, with slots for the state of enforcement and the meter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

from proxy.enforcement.groups.departed_throttles import DepartedThrottles, HoldsThrottles
from proxy.enforcement.groups.fetch_queue import FetchQueue
from quota.entity import UNLIMITED
from quota.groups.group import QuotaGroup
from quota.groups.mutation_group import MutationGroup

NEVER_MS: Final = -(2**62)
FAR_FUTURE_MS: Final = 2**62
UNKNOWN: Final = -1


class EnforcedGroup(HoldsThrottles, QuotaGroup):
    """A rate that is enforced and metered.

    Attributes:
        pending: usage in flight, not recorded yet, in units.
        fetch_answer_bytes: size of the last response to a fetch in bytes; `UNKNOWN`: there was none.
        fetch_queue: queue of waiting fetches; None: no fetch has waited yet.
        last_throttle_round_ms: time of the last throttle round, in which one throttled connection may forward a request; monotonic.
        meter_ref, meter_word, metered_bound: state of the meter, see `proxy.meter.meter.Metered`; `meter_word` identifies this group in
            records, 0 until its bound is described.
    """

    __slots__ = (
        "departed_throttles",
        "departed_until_ms",
        "fetch_answer_bytes",
        "fetch_queue",
        "last_throttle_round_ms",
        "meter_ref",
        "meter_word",
        "metered_bound",
        "pending",
    )

    parent: EnforcedGroup | None
    is_paced = False
    """whether requests pass by a schedule, and not by the rate in the window"""

    def __init__(self, tags: Mapping[str, str], bound: float = UNLIMITED, **settings: Any) -> None:
        super().__init__(tags, bound, **settings)
        self.pending = 0.0
        self.fetch_answer_bytes = UNKNOWN
        self.fetch_queue: FetchQueue | None = None
        self.last_throttle_round_ms = NEVER_MS
        self.departed_throttles: DepartedThrottles | None = None
        self.departed_until_ms = 0
        self.meter_ref = -1
        self.meter_word = 0
        self.metered_bound: float | None = None

    @property
    def limiting(self) -> EnforcedGroup:
        """The group whose bound caused the last delay: this one, or a parent."""
        return self

    def update_bound(self, bound: float) -> None:
        """Use `bound` from the next evaluation on; the meter describes it before the next decision."""
        super().update_bound(bound)
        self.meter_word = 0

    def pending_at(self, now_ms: int) -> float:
        """Return the usage in flight at `now_ms`. Overridden by groups that share usage with other processes."""
        return self.pending

    def fetch_throttle_ms(self, expected_bytes: float, ahead_bytes: float, now_ms: int) -> int:
        """Return the throttle time of a fetch if the expected bytes, those in flight, and those of older fetches were recorded now."""
        return self.would_throttle_ms(self.pending_at(now_ms) + expected_bytes + ahead_bytes, now_ms)

    def assumed_until_ms(self, now_ms: int) -> int:
        """Return when the usage is known that the last prediction assumed. Overridden by groups that a fleet shares."""
        return FAR_FUTURE_MS

    def window_wait_ms(self, now_ms: int) -> int | None:
        """Return the throttle time of the window, recorded as a decision without usage; None: it has recorded nothing yet."""
        return max(0, QuotaGroup.record(self, 0.0, now_ms)) if self.recorded_total else None

    def new_fetch_queue(self) -> FetchQueue:
        """Return a queue for the group's fetches. Overridden by groups that share usage with other processes."""
        return FetchQueue()

    def is_idle(self, longer_than_ms: int, now_ms: int) -> bool:
        """Whether nothing was recorded for longer than `longer_than_ms`, and no departed connection's throttle is left."""
        return super().is_idle(longer_than_ms, now_ms) and self.departed_until_ms <= now_ms

    def copy_to(self, other: Self) -> None:
        """Copy the state to another group, which replaces this one; usage in flight stays counted here."""
        super().copy_to(other)
        other.fetch_answer_bytes = self.fetch_answer_bytes
        other.departed_throttles, other.departed_until_ms = self.departed_throttles, self.departed_until_ms
        other.meter_ref, other.metered_bound = self.meter_ref, self.metered_bound


class EnforcedMutationGroup(HoldsThrottles, MutationGroup):
    """A bucket of controller mutations that is enforced and metered; attributes as those of `EnforcedGroup`."""

    __slots__ = ("departed_throttles", "departed_until_ms", "last_throttle_round_ms", "meter_ref", "metered_bound")

    parent: EnforcedMutationGroup | None

    def __init__(self, tags: Mapping[str, str], bound: float = UNLIMITED, **settings: Any) -> None:
        super().__init__(tags, bound, **settings)
        self.last_throttle_round_ms = NEVER_MS
        self.departed_throttles: DepartedThrottles | None = None
        self.departed_until_ms = 0
        self.meter_ref = -1
        self.metered_bound: float | None = None

    @property
    def limiting(self) -> EnforcedMutationGroup:
        """The group whose bound caused the last wait: this one, or a parent."""
        return self

    def begin(self, permits: float, now_ms: int, *, strict: bool) -> None:
        """Prepare a step; a hook for groups with buckets in another process, which charge those here.

        Args:
            permits: mutations that the step takes; a negative number returns them.
            strict: whether the step takes nothing while a balance of the chain is below zero.
        """

    def is_idle(self, longer_than_ms: int, now_ms: int) -> bool:
        """Whether the group is idle, as in `EnforcedGroup`."""
        return super().is_idle(longer_than_ms, now_ms) and self.departed_until_ms <= now_ms

    def copy_to(self, other: Self) -> None:
        """Copy the state to another group, which replaces this one."""
        super().copy_to(other)
        other.departed_throttles, other.departed_until_ms = self.departed_throttles, self.departed_until_ms
        other.meter_ref, other.metered_bound = self.meter_ref, self.metered_bound


ThrottlingGroup = EnforcedGroup | EnforcedMutationGroup
"""A group that throttles connections and grants throttle rounds."""
