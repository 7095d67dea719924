"""What each member of a paced group passed, and how long it wanted more, while several members had a claim. Collected every second."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final, NamedTuple

from proxy.enforcement.paced.group import PacedGroup

IDLE_MAX: Final = 30
"""A member without a row in this number of collections is forgotten; if it returns, it gets another number."""


class ShareRow(NamedTuple):
    """One member of one group in one second.

    Attributes:
        member_ref: number of the member in this run.
        client_ref: a client that is the member, as in usage rows; None: it passed nothing yet.
        passed_bytes, largest_bytes: what passed, and the largest request of it.
        wanted_ms: how long a request waited; it may have begun to wait in an earlier second, whose row does not count it.
    """

    group_ref: int
    member_ref: int
    client_ref: int | None
    passed_bytes: int
    largest_bytes: int
    wanted_ms: int


class _Share:
    """A member since the last collection. `counted_ms` is the time up to which its waits are counted."""

    __slots__ = ("client_ref", "counted_ms", "idle", "largest", "member_ref", "passed", "wanted_ms")

    def __init__(self, member_ref: int) -> None:
        self.member_ref = member_ref
        self.client_ref: int | None = None
        self.counted_ms = self.idle = self.passed = self.largest = self.wanted_ms = 0

    def waited(self, since_ms: int, now_ms: int) -> None:
        """A request waits since `since_ms`. Waits of several requests count once."""
        self.wanted_ms += max(0, now_ms - max(since_ms, self.counted_ms))
        self.counted_ms = now_ms

    def take(self, group_ref: int) -> ShareRow | None:
        """Return what changed since the last call, and begin again."""
        if not (self.passed or self.wanted_ms):
            self.idle += 1
            return None
        row = ShareRow(group_ref, self.member_ref, self.client_ref, self.passed, self.largest, self.wanted_ms)
        self.idle = self.passed = self.largest = self.wanted_ms = 0
        return row


class MemberShares:
    """The shares of the members of all groups in which several have a claim."""

    __slots__ = ("_groups", "_members")

    def __init__(self) -> None:
        self._groups: dict[PacedGroup, dict[Hashable, _Share]] = {}
        self._members = 0

    def passed(self, group: PacedGroup, member: Hashable, client_ref: int | None, size: int, waited_ms: int, now_ms: int) -> None:
        """Count `size` bytes of a member that passed after a wait; nothing when no other member has a claim."""
        if not group.line.is_shared:
            return
        share = self._share(group, member)
        share.client_ref = client_ref
        share.passed += size
        share.largest = max(share.largest, size)
        if waited_ms:
            share.waited(now_ms - waited_ms, now_ms)

    def take(self, now_ms: int) -> list[ShareRow]:
        """Return what changed since the last call, and begin again. Requests that still wait count, too."""
        rows = [row for group in list(self._groups) for row in self._of_group(group, now_ms)]
        self._groups = {group: members for group, members in self._groups.items() if members}
        return rows

    def _of_group(self, group: PacedGroup, now_ms: int) -> Iterator[ShareRow]:
        for member, since_ms in group.line.waiting():
            self._share(group, member).waited(since_ms, now_ms)
        members = self._groups[group]
        for member, share in list(members.items()):
            row = share.take(group.meter_ref)
            if row is not None and group.meter_ref >= 0:
                yield row
            if share.idle > IDLE_MAX:
                del members[member]

    def _share(self, group: PacedGroup, member: Hashable) -> _Share:
        members = self._groups.setdefault(group, {})
        share = members.get(member)
        if share is None:
            share = members[member] = _Share(self._members)
            self._members += 1
        return share
