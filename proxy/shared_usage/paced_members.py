"""The members of a paced group over several processes.

Each member has a row, as a group has, in which each process publishes the virtual time of the member when it has charged it. A process
takes over the newest one before it checks a request. So a member has one schedule, whichever processes its connections are in. The number
of members with a claim is a sum over processes: each publishes the members that it has, and one that k processes have counts 1/k in each of
them. A group with one member needs no rows of members.

The order of waiting requests is that of one process, approximately: each process publishes which request is its first one, by the virtual
time of the member and then by the time at which it was read. A process with a later one lets the others precede for `YIELD_NS`. No process
waits for a turn, so none is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from hashlib import blake2b
from typing import Final

from proxy.enforcement.paced.flat_line import FlatLine
from proxy.enforcement.paced.member import Member, Paced, Path, Place
from proxy.shared_usage.segment import SCHEDULE
from proxy.shared_usage.sharing import UsageRow, UsageRows
from quota.groups.group import GroupKey
from quota.paced_schedule import MS_NS

CLAIM_PARTS: Final = 256
"""Parts of a claim in which its share is published."""
CLAIMS_MAX: Final = 4_095
WORD: Final = 1 << 60
"""Part of each word about members, so that it is no size of a response."""
TIME_MS: Final = 256
KEPT_MS: Final = 2_000
"""How long a published word, and the claim of a member that waits, are valid. Requests that wait are checked within a second."""
SEVERAL: Final = 0xFFF
"""In place of the hash of a member: there are several."""
YIELD_NS: Final = 3 * MS_NS
"""A timer of another process may be late by one millisecond, and its request takes a part of one."""
FETCHES_MAX: Final = 0xFFFF
WAITS: Final = 1 << 62
READ_AT: Final = 16
READ_BITS: Final = 31
VIRTUAL_AT: Final = READ_AT + READ_BITS
VIRTUAL_BITS: Final = 15
VIRTUAL_NS: Final = 16 * MS_NS
"""The word about the first waiting request: `WAITS`, the virtual time of its member in units of this, the time of its read in ms, and the
number of open fetches in the process. Both times are cut, and compared by their difference."""


class SharedMember(Member):
    """A member with a row.

    Attributes:
        tag: its name, as text that is the same in every process.
        hash: 12 bits of a hash of the name.
        row: its row; None: it has none now.
        elsewhere: number of other processes in which it has a claim.
    """

    __slots__ = ("_claim_ms", "_published_ms", "_seen", "elsewhere", "hash", "row", "tag")

    def __init__(self, name: Hashable) -> None:
        super().__init__(name)
        self.tag = repr(name)
        self.hash = int.from_bytes(blake2b(self.tag.encode("utf-8", "surrogatepass"), digest_size=2).digest()) % SEVERAL
        self.row: UsageRow | None = None
        self.elsewhere = 0
        self._seen: list[int] = []
        self._claim_ms = self._published_ms = 0

    def sync(self, rows: UsageRows, key: GroupKey, now_ms: int) -> None:
        """Take over the virtual time that another process has published since the last call, and publish that a request waits here."""
        row = self.row
        if row is None or not row.is_held():
            row = self._claim(rows, key, now_ms)
            if row is None:
                return
        workers, own, seen = rows.workers, rows.worker, self._seen
        used = row.used()
        virtual = used[3 * workers : 4 * workers]
        if virtual != seen:
            changed = [word for worker, word in enumerate(virtual) if word != seen[worker] and worker != own and word]
            self.virtual_ns = max(changed) - SCHEDULE if changed else self.virtual_ns
            self._seen = virtual
        until_ms = used[2 * workers : 3 * workers]
        self.elsewhere = sum(until > now_ms for worker, until in enumerate(until_ms) if worker != own)
        if self.waiting and now_ms - self._published_ms >= TIME_MS:
            self.publish(now_ms)

    def publish(self, now_ms: int) -> None:
        """Publish the virtual time and the claim."""
        row = self.row
        if row is not None and row.is_held():
            self._published_ms = now_ms
            row.publish_waiting(now_ms + KEPT_MS if self.waiting else self.claims_until_ns // MS_NS, SCHEDULE + self.virtual_ns)

    def release(self) -> None:
        """Stop using the row."""
        if self.row is not None:
            self.row.release()
            self.row = None

    def _claim(self, rows: UsageRows, key: GroupKey, now_ms: int) -> UsageRow | None:
        self.row = None
        if now_ms < self._claim_ms:
            return None
        claimed = rows.claim_member(key, self.tag, now_ms)
        if isinstance(claimed, int):
            self._claim_ms = now_ms + max(1, claimed)
            return None
        workers = rows.workers
        self.row, self._seen = claimed, claimed.used()[3 * workers : 4 * workers]
        self.virtual_ns = max(self.virtual_ns, *(word - SCHEDULE for word in self._seen))
        self._published_ms = 0
        return claimed


class SharedLine(FlatLine):
    """The members of one group in this process, and its waiting requests here.

    Args:
        burst_ns: the burst of the group.
        group: the group.
        rows: the rows of the group's quota type and scope.
        key: the key of the group.

    Attributes:
        on_empty: called when no request waits here any more.
    """

    __slots__ = (
        "_firsts",
        "_has_rows",
        "_key",
        "_looked_ms",
        "_others",
        "_rows",
        "_synced_ms",
        "_word",
        "_worded",
        "_worded_ms",
        "on_empty",
    )

    def __init__(self, burst_ns: int, group: Paced, rows: UsageRows, key: GroupKey) -> None:
        super().__init__(burst_ns, group)
        self._rows = rows
        self._key = key
        self._others: Sequence[int] = ()
        self._firsts: Sequence[int] = ()
        self.on_empty: Callable[[], None] = _nothing
        self._has_rows = False
        self._synced_ms = self._looked_ms = -TIME_MS
        self._word = self._worded = 0
        self._worded_ms = -TIME_MS

    def learn(self, words: Iterable[int], firsts: Iterable[int]) -> None:
        """Note the words that other processes have published about their members, and about their first waiting requests."""
        self._others = [word for word in words if word > WORD]
        self._firsts = list(firsts)

    def refresh(self, now_ms: int) -> None:
        """Learn what other processes have charged the members whose requests wait, once in a millisecond.

        If that changes which request goes next, this one is notified.
        """
        if not self._length or now_ms == self._synced_ms or not self._needs_rows(now_ms):
            return
        self._synced_ms = now_ms
        before = self.first()
        for member in self._members.values():
            if member.waiting:
                self._sync(member, now_ms)
        if self.first() is not before:
            self.notify_first()

    def member(self, path: Path, now_ns: int) -> Member:
        """Return the member of a path, with what other processes have charged it."""
        found = super().member(path, now_ns)
        if not found.waiting and self._needs_rows(now_ns // MS_NS):
            self._sync(found, now_ns // MS_NS)
        return found

    def charge(self, member: Member, cost_ns: int, now_ns: int) -> None:
        """Charge a member for a request that costs the group `cost_ns`."""
        super().charge(member, cost_ns, now_ns)
        if isinstance(member, SharedMember):
            member.publish(now_ns // MS_NS)

    def take_back(self, member: Member, cost_ns: int) -> None:
        """Take back what a member was charged too much, and notify the request that goes next."""
        super().take_back(member, cost_ns)
        if isinstance(member, SharedMember):
            member.publish(self._synced_ms)

    def leave(self, place: Place) -> None:
        """Remove a request. When none is left, other processes learn of it at once."""
        super().leave(place)
        if not self._length:
            self.on_empty()

    def due_ns(self, member: Member) -> int:
        """Return when a member lets its next request pass, later if another process has a request that precedes it."""
        if not self._yields(member):
            return super().due_ns(member)
        group_virtual_ns = self._group.virtual_ns
        return max(min(member.virtual_ns - self._burst_ns, group_virtual_ns), group_virtual_ns - self._burst_ns + YIELD_NS)

    def first_word(self, open_fetches: int) -> int:
        """Return what to publish about the first waiting request here."""
        fetches = min(open_fetches, FETCHES_MAX)
        first = self.first() if self._length else None
        return fetches if first is None else fetches | _order_word(first.member, first)

    def _yields(self, member: Member) -> bool:
        if not self._firsts or not member.waiting:
            return False
        own = _order_word(member, member.waiting[0])
        return any(_precedes(word, own) for word in self._firsts)

    def word(self, now_ms: int) -> int:
        """Return what to publish about the members here, counted again after a time; 0: none has a claim."""
        if now_ms - self._worded_ms < TIME_MS and len(self._members) == self._worded:
            return self._word
        self._worded_ms, self._worded = now_ms, len(self._members)
        self._word = self._new_word(now_ms)
        return self._word

    def _new_word(self, now_ms: int) -> int:
        claims = min(self._own_claims(now_ms * MS_NS), CLAIMS_MAX)
        if not claims:
            return 0
        only = next(iter(self._members.values())) if len(self._members) == 1 else None
        named = only.hash if isinstance(only, SharedMember) else SEVERAL
        return WORD | (now_ms + KEPT_MS) // TIME_MS << 32 | max(1, int(claims * CLAIM_PARTS)) << 12 | named

    def release(self) -> None:
        """Stop using all rows, because the group is removed or has another scope."""
        for member in self._members.values():
            self._forget(member)

    def _needs_rows(self, now_ms: int) -> bool:
        """Whether the group has members besides one, in any process; once it had, rows are kept."""
        if self._has_rows or not (self._others or len(self._members) > 1):
            return self._has_rows
        if now_ms >= self._looked_ms + TIME_MS // 8 or len(self._members) > 1:
            self._looked_ms = now_ms
            hashes = {word & SEVERAL for word in self._others if _is_valid(word, now_ms)}
            hashes.update(member.hash for member in self._members.values() if isinstance(member, SharedMember))
            self._has_rows = len(self._members) > 1 or len(hashes) > 1
        return self._has_rows

    def _sync(self, member: Member, now_ms: int) -> None:
        if isinstance(member, SharedMember):
            member.sync(self._rows, self._key, now_ms)

    def _own_claims(self, now_ns: int) -> float:
        """Return the number of members with a claim here, of which one that k processes have counts 1/k."""
        return sum(
            1.0 / (1 + member.elsewhere)
            for member in self._members.values()
            if isinstance(member, SharedMember) and member.has_claim(now_ns)
        )

    # Overridden methods of the line

    def _new_member(self, name: Hashable, now_ns: int) -> Member:
        return SharedMember(name)

    def _forget(self, member: Member) -> None:
        if isinstance(member, SharedMember):
            member.release()

    def _count_claims(self, now_ns: int) -> float:
        if not self._has_rows:
            return 1.0
        now_ms = now_ns // MS_NS
        others = sum(word >> 12 & 0xFFFFF for word in self._others if _is_valid(word, now_ms))
        return self._own_claims(now_ns) + others / CLAIM_PARTS


def _is_valid(word: int, now_ms: int) -> bool:
    return (word >> 32 & 0xFFFFFFF) * TIME_MS > now_ms


def _order_word(member: Member, first: Place) -> int:
    virtual = member.virtual_ns // VIRTUAL_NS & (1 << VIRTUAL_BITS) - 1
    return WAITS | virtual << VIRTUAL_AT | (first.order[0] & (1 << READ_BITS) - 1) << READ_AT


def _precedes(other: int, own: int) -> bool:
    """Whether a request of another process precedes one here: its member is further behind, or it was read earlier."""
    behind = _difference(other >> VIRTUAL_AT, own >> VIRTUAL_AT, VIRTUAL_BITS)
    if abs(behind) > 1:
        return behind < 0
    return _difference(other >> READ_AT, own >> READ_AT, READ_BITS) < 0


def _difference(one: int, other: int, bits: int) -> int:
    """Return the difference of two times of which only the lowest bits are known."""
    half = 1 << bits - 1
    return (one - other + half & (1 << bits) - 1) - half


def _nothing() -> None:
    """Do nothing: the default of `on_empty`."""
