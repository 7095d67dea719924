"""The waiting requests of a paced group in one of several processes: which of them goes next, here and in all processes.

In one process the order is that of `PacedLine`. Over all processes it is the same, approximately. A process whose first request is later
than that of another one, among the members of a group or of a member, lets the other precede for `YIELD_NS`. No process waits for a turn,
so none is lost.

The schedules of two processes may differ for as long as none of them is idle: each charges usage when it learns of it, and a schedule that
follows a window begins with the throttle time of the window in its own process. So the time in which others precede begins when their
schedule lets their request pass. Otherwise the process with the earlier schedule would pass everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol, cast

from proxy.enforcement.paced.line import PacedLine
from proxy.enforcement.paced.member import Member, Paced, Path, Place
from proxy.shared_usage.paced.fleet_shares import charge_elsewhere
from proxy.shared_usage.paced.members import SharedMember, first_of
from proxy.shared_usage.paced.words import FETCHES_MAX, TIME_MS, order_word, precedes
from quota.paced_schedule import MS_NS

YIELD_NS: Final = 3 * MS_NS
"""A timer of another process may be late by one millisecond, and its request takes a part of one."""


class SharedPaced(Paced, Protocol):
    """The part of a shared paced group that its line needs."""

    def virtual_of(self, worker: int) -> int:
        """Return the latest virtual time of the group and of its parents in another process, as it was published."""

    def publish_line(self) -> None:
        """Publish that no request waits here any more."""


class SharedLine(PacedLine):
    """The waiting requests of one group in this process.

    Args:
        burst_ns: the burst of the group.
        root: the group, as a member of the one above it.
    """

    __slots__ = ("_synced_ms",)

    root: SharedMember

    def __init__(self, burst_ns: int, root: SharedMember) -> None:
        super().__init__(burst_ns, root)
        self._synced_ms = -TIME_MS

    def refresh(self, now_ms: int) -> None:
        """Learn what other processes have charged the members whose requests go next, once in a millisecond.

        If that changes which request goes next, this one is notified.
        """
        if not self.root.waits or now_ms == self._synced_ms:
            return
        self._synced_ms = now_ms
        self.top.seen_ns = now_ms * MS_NS
        before = self._first()
        self._sync_waiting(self.root, now_ms)
        above = self.root.above
        while above is not None:
            for one in self._with_rows(above, now_ms):
                one.sync(now_ms)
            above = above.above
        if self._first() is not before:
            self.notify_first()

    def member(self, path: Path, now_ns: int) -> Member:
        """Return the member of a path, with what other processes have charged it and those above it."""
        found, now_ms = super().member(path, now_ns), now_ns // MS_NS
        one: Member = found
        while isinstance(one, SharedMember) and one.above is not None:
            if not one.waits and one.above.needs_rows(now_ms):
                one.above.sync_level(now_ms, now_ns + self._burst_ns)
                charge_elsewhere(one.above, now_ms, self._burst_ns)
                one.sync(now_ms)
            one = one.above
        return found

    def is_next(self, place: Place, now_ns: int) -> bool:
        """Whether a request is the next one, with what other processes have charged its member: it may be one that goes far later."""
        member, now_ms = place.member, now_ns // MS_NS
        if isinstance(member, SharedMember) and member.above is not None and member.above.needs_rows(now_ms):
            member.sync(now_ms)
        return super().is_next(place, now_ns)

    def leave(self, place: Place) -> None:
        """Remove a request. When none is left of a group or a member, other processes learn of it at once."""
        super().leave(place)
        for one in place.member.path:
            if not one.waits:
                if one.group is not None:
                    cast(SharedPaced, one.group).publish_line()
                elif isinstance(one, SharedMember):
                    one.publish_words(self.top.seen_ns // MS_NS)

    def due_ns(self, member: Member) -> int:
        """Return when a member, and those above it, let its next request pass, later if another process has a request that precedes it."""
        due_ns = super().due_ns(member)
        first: Place | None = None
        for one in member.path:
            first = first_of(one, self.top.seen_ns) if one.waiting else first
            above = one.above
            if first is None or not isinstance(above, SharedMember) or not above.firsts:
                continue
            own = order_word(one.order_ns, first)
            preceding = [worker for worker, word in above.firsts if precedes(word, own)]
            if preceding:
                due_ns = max(due_ns, self._yields_until_ns(one, above, preceding))
        return due_ns

    def _yields_until_ns(self, one: Member, above: Member, preceding: Sequence[int]) -> int:
        """Return until when requests of one member let those of the same level in other processes precede."""
        group: Member = above
        while group.group is None:
            assert group.above is not None
            group = group.above
        its = cast(SharedPaced, group.group)
        virtual_ns = its.virtual_ns
        latest_ns = max(virtual_ns, *(its.virtual_of(worker) for worker in preceding))
        return max(min(one.virtual_ns - self._burst_ns, virtual_ns), latest_ns - self._burst_ns + YIELD_NS)

    def first_word(self, open_fetches: int, now_ms: int) -> int:
        """Return what to publish about the first waiting request here."""
        return min(open_fetches, FETCHES_MAX) | self.root.first_word(now_ms * MS_NS)

    def release(self) -> None:
        """Stop using all rows, because the group is removed or has another scope."""
        self.root.release()

    def _sync_waiting(self, above: SharedMember, now_ms: int) -> None:
        """Let the members of `above` whose requests go next, and their members, learn what other processes have charged them."""
        for one in self._with_rows(above, now_ms):
            one.sync(now_ms)
            if one.group is None:
                self._sync_waiting(one, now_ms)

    def _with_rows(self, above: SharedMember, now_ms: int) -> Iterator[SharedMember]:
        """Yield the members of `above` whose requests go next, if they need rows."""
        if above.needs_rows(now_ms):
            above.sync_level(now_ms, now_ms * MS_NS + self._burst_ns)
            charge_elsewhere(above, now_ms, self._burst_ns)
            yield from above.foremost()
