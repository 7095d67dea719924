"""Throttles of departed connections that several processes share: they are in the row of their group.

While a group has no row, and while another process changes the throttles of the row, a group keeps its throttles itself.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from proxy.enforcement.groups.departed_throttles import DepartedThrottles, HoldsThrottles, ThrottleHolder
from quota.groups.group import GroupKey
from quota.sensor import NEVER_MS


class ThrottleRow(Protocol):
    """The throttles in the row of one group."""

    def is_held(self) -> bool:
        """Whether the row still belongs to the group."""

    def departed_until_ms(self) -> int:
        """Return the end of the longest throttle that departed connections left, which may have passed; 0: there is none."""

    def departed(self) -> AbstractContextManager[DepartedThrottles | None]:
        """Lock the throttles that departed connections left for a change; None: another process changes them."""

    def publish_throttled(self, until_ms: int) -> None:
        """An open connection of this worker is throttled until then: if the worker dies, all new connections of the group are."""

    def release(self) -> None:
        """Stop using the row."""


class Publisher(Protocol):
    """A group that may have usage or throttles to publish."""

    def publish(self, now_ms: int) -> None:
        """Publish what was recorded or left here."""


class ThrottleRows(Protocol):
    """The rows of the groups of one quota type in one scope."""

    fleet: int | None
    """Number of the fleet; None: there is no fleet."""

    def claim(self, key: GroupKey, now_ms: int) -> ThrottleRow | int:
        """Return the row of a group, or the time in ms after which to request it again."""

    def note_unpublished(self, group: Publisher, within_ms: int) -> None:
        """Call `publish` of this group within `within_ms`."""


class SharedThrottles(HoldsThrottles):
    """The sharing of throttles: a mixin of groups with a row."""

    __slots__ = ()

    departed_throttles: DepartedThrottles | None
    departed_until_ms: int

    def departed_until(self, now_ms: int) -> int:
        """Return the end of the longest throttle that departed connections of any worker left; 0, or up to `now_ms`: there is none."""
        row = self._row_at(now_ms)
        until_ms = self.departed_until_ms if row is None else max(self.departed_until_ms, row.departed_until_ms())
        return until_ms if until_ms > now_ms else 0

    def leave_throttle(self, until_ms: int, now_ms: int, *, instead_of_ms: int = 0) -> None:
        """Add a throttle for the next connection at any worker; the arguments are those of `DepartedThrottles.leave`."""
        row = self._row_at(now_ms)
        if row is not None:
            self._share_throttles(row, now_ms)  # the throttle that this one replaces may be kept here
            with row.departed() as throttles:
                if throttles is not None:
                    throttles.leave(until_ms, now_ms, instead_of_ms=instead_of_ms)
                    return
        super().leave_throttle(until_ms, now_ms, instead_of_ms=instead_of_ms)
        self._note_unpublished()

    def note_throttled(self, until_ms: int, now_ms: int) -> None:
        """Publish the throttle of an open connection, for the case that this process dies."""
        row = self._row_at(now_ms)
        if row is not None:
            row.publish_throttled(until_ms)

    def take_throttle(self, now_ms: int) -> int:
        """Take the longest throttle for a new connection. While another process changes the throttles it also stays, so none is lost."""
        row = self._row_at(now_ms)
        if row is None:
            return super().take_throttle(now_ms)
        self._share_throttles(row, now_ms)
        with row.departed() as throttles:
            if throttles is not None:
                return throttles.take(now_ms)
        return self.departed_until(now_ms)

    def _share_throttles(self, row: ThrottleRow, now_ms: int) -> None:
        """Move the throttles kept here to the row."""
        left = self.departed_throttles
        if left is None or self.departed_until_ms == 0:
            return
        with row.departed() as throttles:
            if throttles is None:
                self._note_unpublished()
                return
            for until_ms in left.ends_after(now_ms):
                throttles.leave(until_ms, now_ms)
        _keep_none(self)

    def _row_at(self, now_ms: int) -> ThrottleRow | None:
        """Return the row of the group, which is claimed if necessary; None: it has none now."""
        raise NotImplementedError

    def _note_unpublished(self) -> None:
        """Let `_share_throttles` be called soon."""
        raise NotImplementedError


def take_throttles_along(holder: ThrottleHolder, left: ThrottleRow, now_ms: int) -> None:
    """Move the throttles from the row that is left to the group itself; the first worker that leaves the row does this."""
    with left.departed() as throttles:
        if throttles is not None:
            for until_ms in throttles.ends_after(now_ms):
                HoldsThrottles.leave_throttle(holder, until_ms, now_ms)
            throttles.until_ms.clear()
            throttles.for_all_until_ms = 0


def _keep_none(holder: ThrottleHolder) -> None:
    holder.departed_throttles, holder.departed_until_ms = None, 0


class OwnRow:
    """The row of a group that shares nothing but throttles. It is claimed at the first use.

    Args:
        rows: the rows of the group's quota type and scope.
    """

    __slots__ = ("_claim_ms", "_is_noted", "_row", "_rows")

    def __init__(self, rows: ThrottleRows) -> None:
        self._rows = rows
        self._row: ThrottleRow | None = None
        self._claim_ms = -NEVER_MS
        self._is_noted = False

    @property
    def is_in_fleet(self) -> bool:
        """Whether a fleet shares the usage of the group."""
        return self._rows.fleet is not None

    def at(self, key: GroupKey, now_ms: int) -> ThrottleRow | None:
        """Return the row of the group with this key; None: none is free, other processes change rows, or the group was removed."""
        row = self._row
        if row is not None and row.is_held():
            return row
        self._row = None
        if now_ms < self._claim_ms:
            return None
        claimed = self._rows.claim(key, now_ms)
        if isinstance(claimed, int):
            self._claim_ms = now_ms + claimed
            return None
        self._row = claimed
        return claimed

    def note_unpublished(self, group: Publisher, within_ms: int) -> None:
        """Call `publish` of the group once within `within_ms`, unless the group was removed."""
        if not self._is_noted and self._claim_ms < NEVER_MS:
            self._is_noted = True
            self._rows.note_unpublished(group, within_ms)

    def note_published(self) -> None:
        """`publish` was called."""
        self._is_noted = False

    def release(self) -> None:
        """Stop using the row, because the group is removed; no other is claimed."""
        self._claim_ms = NEVER_MS
        if self._row is not None:
            self._row.release()
            self._row = None

    def hand_over(self, other: OwnRow) -> None:
        """Move the row to the group of `other`, which replaces this one."""
        other._row, other._claim_ms = self._row, self._claim_ms
        self._row, self._claim_ms = None, NEVER_MS
