"""Groups with usage that several processes share. Each process records its own usage, and that of the others when it reads it.

The ring of samples is Kafka's. Usage of other processes is recorded in it without a check, so a plain `QuotaGroup` with the same
records has the same verdicts, to the last bit.

Why the hot path is the inherited one
    A record that is certainly within the bound only adds to the sample in use. This holds for `SHARE_MS`, and for at most this process's
    share of the remaining room. Then the slow path records the usage that others published, measures with the whole room, publishes the
    own total, and sets both limits again. Limits that are lower than necessary cost a measurement and do not change results. Code that
    opens the short path adds the group to the list of groups that may have usage to publish.

When usage is published later
    While half of the window is free, a process that uses little of it shares it each `SHARE_LITTLE_MS`. The short path then ends at one
    part in `LITTLE_PARTS` of the process's share of the room, so usage that comes faster is published at once: all processes together
    have never more than that part of the room unpublished.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

from proxy.enforcement.groups.child_groups import ChildGroup
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.groups.fetch_queue import FetchQueue
from proxy.shared_usage.shared_fetch_queue import SharedFetchQueue
from proxy.shared_usage.shared_throttles import SharedThrottles
from proxy.shared_usage.sharing import Sharing
from proxy.shared_usage.usage_row import UsageRow, UsageRows
from quota.entity import UNLIMITED
from quota.groups.group import QuotaGroup, Verdict
from quota.sensor import NEVER_MS

SHARE_MS: Final = 10
"""Time after which the short path ends."""
SHARE_LITTLE_MS: Final = 100
"""The same while the process uses little of the room."""
LITTLE_PARTS: Final = 32
"""Usage is little while it stays below this part of the process's share of the room."""


class Shared(SharedThrottles, EnforcedGroup):
    """The sharing of usage: a mixin of groups with and without a parent.

    Attributes:
        _sharing: the state of sharing. `full` is the value of `_free` without the limits of sharing, and `noted_ms` the time within
            which the group is published.
    """

    __slots__ = ()

    _sharing: Sharing

    # Overridden methods of the group

    def record_unchecked(self, amount: float, now_ms: int) -> None:
        """Record `amount` without checking the bound, here and in parents; it is published within `SHARE_MS`."""
        sharing = self._sharing
        self._free = sharing.full
        super().record_unchecked(amount, now_ms)
        sharing.uses_little = False
        self._narrow()

    def certain_room(self, now_ms: int) -> float:
        """Return the units that certainly fit the bound. Usage of others is at most `SHARE_MS` old; their usage in flight always counts."""
        sharing = self._sharing
        if now_ms >= sharing.shared_ms + SHARE_MS:
            self._refresh(now_ms)
        else:
            sharing.refresh_under_way()
        free, self._free = self._free, max(self._free, sharing.share)
        room = super().certain_room(now_ms)
        self._free = free
        return room

    def update_bound(self, bound: float) -> None:
        """Let the next evaluation use `bound`."""
        super().update_bound(bound)
        self._sharing.full = self._free
        self._sharing.note_bound(self)
        self._end_ms = -NEVER_MS

    def window_wait_ms(self, now_ms: int) -> int | None:
        """Return the throttle time of the window with the usage of all processes, recorded as a decision without usage."""
        if self.recorded_total or self._sharing.row is not None:
            self._pull(now_ms)
        if not self.recorded_total:
            return None
        wait_ms = QuotaGroup._record_and_measure(self, 0.0, now_ms)
        self._sharing.publish(self, now_ms)
        return max(0, wait_ms)

    def leave(self) -> None:
        """Publish the remaining usage and stop sharing."""
        self._sharing.leave(self)

    def copy_to(self, other: Self) -> None:
        """Copy the state to another group, which replaces this one and gets the row."""
        super().copy_to(other)
        self._sharing.hand_over(other._sharing)
        other._sharing.note_bound(other)
        other._narrow()
        other._note_unpublished()

    def _record_and_measure(self, amount: float, now_ms: int) -> int:
        self._pull(now_ms, amount)
        throttle_ms = super()._record_and_measure(amount, now_ms)
        self._sharing.publish(self, now_ms)
        self._narrow()
        return throttle_ms

    def _predicted(self, extra: float, now_ms: int) -> Verdict:
        self._refresh(now_ms)
        if self._start_ms <= now_ms < self._end_ms and self._value + extra <= self._sharing.full:
            return Verdict(now_ms, extra, 0.0, self.bound, self.window_ms, 0)
        return super()._predicted(extra, now_ms)

    # Usage in flight and throttle rounds. A change is published with the totals

    def pending_at(self, now_ms: int) -> float:
        """Return the usage in flight of all processes at `now_ms`, in units; a fetch is checked with it."""
        self._refresh(now_ms)
        return super().pending_at(now_ms)

    def _note_pending(self, pending: float) -> None:
        sharing = self._sharing
        if pending != sharing.pending:
            sharing.note_pending(pending)
            self._note_unpublished()

    def new_fetch_queue(self) -> FetchQueue:
        """Return a queue for the group's fetches, which is shared with other processes."""
        return SharedFetchQueue(self._sharing, self._note_unpublished)

    @property
    def measures_all(self) -> bool:
        """Whether the rate is that of all processes; otherwise it is that of this process only."""
        return self._sharing.row is not None

    @property
    def own_total(self) -> float:
        """Units recorded by this process since the start, without usage of others."""
        return self.recorded_total - self._sharing.remote

    def _row_at(self, now_ms: int) -> UsageRow | None:
        """Return the row for the scope's current key, which is claimed if necessary; None: the group has none now."""
        sharing = self._sharing
        if sharing.row is None or sharing.row.scope_key != sharing.rows.scope_key:
            self._refresh(now_ms)
        return sharing.row if sharing.row is not None and sharing.row.is_held() else None

    # Called by the owner of the list of groups to publish

    def publish(self, now_ms: int) -> None:
        """Publish the usage recorded here; the next record takes the slow path. While fetches wait here, also check the other workers."""
        sharing = self._sharing
        sharing.noted_ms = NEVER_MS
        if sharing.waiting and sharing.row is not None and isinstance(self.fetch_queue, SharedFetchQueue):
            self._refresh(now_ms)
            self._share_throttles(sharing.row, now_ms)
            self.fetch_queue.check(now_ms)
            return
        if sharing.row is None:
            self._pull(now_ms)
            sharing.full = self._free
        if sharing.row is not None and sharing.row.is_held():
            sharing.publish(self, now_ms)
            self._share_throttles(sharing.row, now_ms)
        sharing.shared_ms = self._end_ms = -NEVER_MS

    # Implementation

    def _refresh(self, now_ms: int) -> None:
        self._pull(now_ms)
        self._sharing.publish(self, now_ms)
        self._narrow()

    def _pull(self, now_ms: int, amount: float = 0.0) -> None:
        """Record the usage that others published, with the whole room; `amount` is about to be recorded here."""
        sharing = self._sharing
        self._free = sharing.full
        sharing.uses_little = self._value + amount <= sharing.little
        sharing.shared_ms = now_ms
        sharing.pull(self, now_ms)

    def _narrow(self) -> None:
        """End the short path at the next sharing, and at this process's share of the room."""
        sharing = self._sharing
        sharing.full = sharing.share = sharing.little = free = self._free
        value = self._value
        is_late = sharing.uses_little and free - value >= self._limit / 2
        if free > value:
            share = (free - value) / sharing.rows.workers
            sharing.share, sharing.little = value + share, value + share / LITTLE_PARTS
            self._free = sharing.little if is_late else sharing.share
        within_ms = SHARE_LITTLE_MS if is_late else SHARE_MS
        self._end_ms = min(self._start_ms + self.window_ms, self._purge_ms, sharing.shared_ms + within_ms)
        self._note_unpublished(within_ms)

    def _note_unpublished(self, within_ms: int = SHARE_MS) -> None:
        sharing = self._sharing
        if within_ms < sharing.noted_ms:
            sharing.noted_ms = within_ms
            sharing.rows.note_unpublished(self, within_ms)


class SharedRounds(Shared):
    """A group whose throttle rounds are those of all processes."""

    __slots__ = ()

    @property
    def last_throttle_round_ms(self) -> int:
        """Time of the last throttle round of any process, in monotonic ms."""
        return self._sharing.last_throttle_round_ms

    @last_throttle_round_ms.setter
    def last_throttle_round_ms(self, throttle_round_ms: int) -> None:
        self._sharing.take_throttle_round(throttle_round_ms)


class SharedPending(Shared):
    """A group that adds its usage in flight to that of its parents, too."""

    __slots__ = ()

    @property
    def _pending(self) -> float:
        """Usage in flight of all processes; what is added here is published at once."""
        return self._sharing.pending

    @_pending.setter
    def _pending(self, pending: float) -> None:
        self._note_pending(pending)


class SharedGroup(SharedRounds):
    """A group without a parent."""

    __slots__ = ("_sharing",)

    def __init__(self, tags: Mapping[str, str], bound: float, rows: UsageRows, **settings: Any) -> None:
        self._sharing = Sharing(rows)
        super().__init__(tags, bound, **settings)

    @property
    def pending(self) -> float:
        """Usage in flight of all processes, in units; it is not recorded yet."""
        return self._sharing.pending

    @pending.setter
    def pending(self, pending: float) -> None:
        self._note_pending(pending)


class SharedChildGroup(SharedPending, ChildGroup):
    """A group with a parent; both are shared."""

    __slots__ = ("_sharing",)

    def __init__(self, tags: Mapping[str, str], bound: float, parent: EnforcedGroup, rows: UsageRows, **settings: Any) -> None:
        self._sharing = Sharing(rows)
        ChildGroup.__init__(self, tags, bound, parent, **settings)

    @property
    def _throttle_round_ms(self) -> int:
        return self._sharing.last_throttle_round_ms

    @_throttle_round_ms.setter
    def _throttle_round_ms(self, throttle_round_ms: int) -> None:
        self._sharing.take_throttle_round(throttle_round_ms)


def shared_group(
    tags: Mapping[str, str], bound: float = UNLIMITED, parent: EnforcedGroup | None = None, *, rows: UsageRows, **settings: Any
) -> Shared:
    """Return a new group, with or without a parent."""
    return SharedGroup(tags, bound, rows, **settings) if parent is None else SharedChildGroup(tags, bound, parent, rows, **settings)
