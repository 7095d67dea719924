"""Groups with a parent: usage of a group also counts for its parents, and the longest throttle applies.

Each group of a chain has its own sensor, with Kafka's arithmetic and its own bound, so each of its verdicts can be recomputed from
its own records. A request is recorded in every group before the verdict; a mutation that one group refuses is recorded by none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.enforcement.groups.enforced_groups import EnforcedGroup, EnforcedMutationGroup
from quota.entity import UNLIMITED
from quota.groups.group import QuotaGroup
from quota.groups.mutation_group import MutationGroup


class PendingAbove(EnforcedGroup):
    """A group whose usage in flight also counts for its parents."""

    __slots__ = ("_pending",)

    _pending: float

    @property
    def pending(self) -> float:
        """Usage in flight, not recorded yet, in units."""
        return self._pending

    @pending.setter
    def pending(self, pending: float) -> None:
        parent: EnforcedGroup | None = self.parent  # unset while this group is being created
        if parent is not None:
            parent.pending += pending - self._pending
        self._pending = pending


class ChildGroup(PendingAbove):
    """A group with a parent, which may have a parent itself. A record in it is a record in all of them.

    Attributes:
        own_ms, above_ms: throttle times of the last checked record in ms: the group's own, and the longest of its parents.
    """

    __slots__ = ("_limiting", "_throttle_round_ms", "above_ms", "own_ms")

    parent: EnforcedGroup
    _throttle_round_ms: int

    def __init__(self, tags: Mapping[str, str], bound: float, parent: EnforcedGroup, **settings: Any) -> None:
        self._limiting: EnforcedGroup | None = None
        super().__init__(tags, bound, **settings)
        self.parent = parent
        self.own_ms = 0
        self.above_ms = 0

    @property
    def limiting(self) -> EnforcedGroup:
        """The group with the longest delay at the last verdict above 0; it grants throttle rounds and counts the verdict."""
        return self if self._limiting is None else self._limiting.limiting

    def record(self, amount: float, now_ms: int) -> int:
        """Record in the whole chain; return its longest throttle time in ms."""
        own_ms = self.own_ms = QuotaGroup.record(self, amount, now_ms)
        above_ms = self.above_ms = self.parent.record(amount, now_ms)
        if own_ms > 0 or above_ms > 0:
            self._limiting = self.parent if above_ms > own_ms else None
        return max(own_ms, above_ms)

    def record_within(self, amount: float, now_ms: int) -> bool:
        """Record in the whole chain if the amount is certainly within every bound; False: nothing was recorded."""
        if not self.has_room(amount, now_ms) or not self.parent.record_within(amount, now_ms):
            return False
        self.own_ms = self.above_ms = 0
        return QuotaGroup.record_within(self, amount, now_ms)

    def record_unchecked(self, amount: float, now_ms: int) -> None:
        """Record in the whole chain without checking bounds."""
        QuotaGroup.record_unchecked(self, amount, now_ms)
        self.parent.record_unchecked(amount, now_ms)

    def would_throttle_ms(self, extra: float, now_ms: int) -> int:
        """Return what `record(extra, now_ms)` would return; usage in flight for other groups of a parent is included."""
        own_ms = QuotaGroup.would_throttle_ms(self, extra, now_ms)
        return max(own_ms, self.parent.would_throttle_ms(extra + self._pending_elsewhere, now_ms))

    def predict_throttle(self, extra: float, now_ms: int) -> int:
        """Return the result of `would_throttle_ms`, and store the verdict in the group with the longest delay."""
        own_ms = QuotaGroup.would_throttle_ms(self, extra, now_ms)
        if self.parent.would_throttle_ms(extra + self._pending_elsewhere, now_ms) > own_ms:
            self._limiting = self.parent
            return self.parent.predict_throttle(extra + self._pending_elsewhere, now_ms)
        self._limiting = None
        return QuotaGroup.predict_throttle(self, extra, now_ms)

    def certain_room(self, now_ms: int) -> float:
        """Return the smallest room of the chain."""
        return min(QuotaGroup.certain_room(self, now_ms), self.parent.certain_room(now_ms) - self._pending_elsewhere)

    def next_expiry_ms(self, now_ms: int) -> int:
        """Return the time at which the next sample of the chain becomes obsolete, in monotonic ms."""
        return min(QuotaGroup.next_expiry_ms(self, now_ms), self.parent.next_expiry_ms(now_ms))

    def max_value_in_window(self) -> float:
        """Return the largest amount that fits into the window of every group of the chain, in units."""
        return min(QuotaGroup.max_value_in_window(self), self.parent.max_value_in_window())

    # Usage in flight also counts for the parents; throttle rounds are those of the limiting group.

    @property
    def _pending_elsewhere(self) -> float:
        """Usage in flight for the parent and not for this group."""
        return self.parent.pending - self._pending

    def pending_at(self, now_ms: int) -> float:
        """Return the usage in flight at `now_ms`, after updating that of the parents."""
        self.parent.pending_at(now_ms)
        return self._pending

    @property
    def last_throttle_round_ms(self) -> int:
        """Time of the last throttle round, in monotonic ms."""
        limiting = self.limiting
        return self._throttle_round_ms if limiting is self else limiting.last_throttle_round_ms

    @last_throttle_round_ms.setter
    def last_throttle_round_ms(self, now_ms: int) -> None:
        limiting = self.limiting
        if limiting is self:
            self._throttle_round_ms = now_ms
        else:
            limiting.last_throttle_round_ms = now_ms


class ChildMutationGroup(EnforcedMutationGroup):
    """A token bucket with a parent: a chain is exhausted when one of its buckets is."""

    __slots__ = ("_limiting",)

    parent: EnforcedMutationGroup

    def __init__(self, tags: Mapping[str, str], bound: float, parent: EnforcedMutationGroup, **settings: Any) -> None:
        super().__init__(tags, bound, **settings)
        self._limiting: EnforcedMutationGroup | None = None
        self.parent = parent

    @property
    def limiting(self) -> EnforcedMutationGroup:
        """The group of the chain with the longest wait at the last verdict above 0."""
        return self if self._limiting is None else self._limiting.limiting

    def record(self, permits: float, now_ms: int) -> int:
        """Strict mode: record in every bucket; if a balance is below zero, record nothing and return the longest wait in ms."""
        own_is_exhausted, above_is_exhausted = MutationGroup.is_exhausted(self, now_ms), self.parent.is_exhausted(now_ms)
        if not (own_is_exhausted or above_is_exhausted):
            self.record_unchecked(permits, now_ms)
            return 0
        own_ms = MutationGroup.record(self, permits, now_ms) if own_is_exhausted else 0  # counts nothing and keeps the verdict
        above_ms = self.parent.record(permits, now_ms) if above_is_exhausted else 0
        self._limiting = self.parent if above_ms > own_ms else None
        return max(own_ms, above_ms)

    def is_exhausted(self, now_ms: int) -> bool:
        """Whether one of the balances is below zero."""
        return MutationGroup.is_exhausted(self, now_ms) or self.parent.is_exhausted(now_ms)

    def record_permissive(self, permits: float, now_ms: int) -> int:
        """Permissive mode: record in every bucket, then return the longest wait in ms."""
        own_ms, above_ms = MutationGroup.record_permissive(self, permits, now_ms), self.parent.record_permissive(permits, now_ms)
        if own_ms > 0 or above_ms > 0:
            self._limiting = self.parent if above_ms > own_ms else None
        return max(own_ms, above_ms)

    def record_unchecked(self, permits: float, now_ms: int) -> None:
        """Record in every bucket without a verdict; negative permits are returned to the buckets."""
        MutationGroup.record_unchecked(self, permits, now_ms)
        self.parent.record_unchecked(permits, now_ms)

    def affordable(self, now_ms: int) -> float:
        """Return the smallest balance."""
        return min(self.tokens(now_ms), self.parent.affordable(now_ms))

    def wait_ms(self, now_ms: int) -> int:
        """Return the time until no balance is below zero, in ms."""
        return max(MutationGroup.wait_ms(self, now_ms), self.parent.wait_ms(now_ms))


def enforced_group(
    tags: Mapping[str, str], bound: float = UNLIMITED, parent: EnforcedGroup | None = None, **settings: Any
) -> EnforcedGroup:
    """Return a new group, with or without a parent."""
    return EnforcedGroup(tags, bound, **settings) if parent is None else ChildGroup(tags, bound, parent, **settings)


def enforced_bucket(
    tags: Mapping[str, str], bound: float = UNLIMITED, parent: EnforcedMutationGroup | None = None, **settings: Any
) -> EnforcedMutationGroup:
    """Return a new bucket of controller mutations, with or without a parent."""
    return EnforcedMutationGroup(tags, bound, **settings) if parent is None else ChildMutationGroup(tags, bound, parent, **settings)
