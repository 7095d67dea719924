"""The members of paced groups over several processes.

Each member has a row, as a group has, in which each process publishes the virtual time of the member when it has charged it. A process
takes over the newest one before it checks a request; of many members that wait, those of the requests that go next. So a member has one
schedule, whichever processes its connections are in. A group is a member of its parent in the same way, and so is a declared group without
a bound, which has members itself.

The weights of all members with a claim are a sum over processes: each publishes the sum of those that it has, and a member that k processes
have counts for 1/k in each of them. A group with one member needs no rows of members.

Members that use what others leave are brought back together in all processes: each publishes by how much it has brought back the members
of a group, or of a member with members, in a row of its own (`LEVEL`). It publishes this before the virtual time of the member that it
charges, and reads it before virtual times, so that what another process has brought back is not brought back again.

Each process also publishes which request is its first one below a group, or below a member with members: by the virtual time of the member,
and then by the time at which it was read. A group publishes both words in its own row (`groups`), a member with members in the row that it
has among the members above it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from hashlib import blake2b
from typing import Final

from proxy.enforcement.paced.member import BLOCKED_MAX, Below, Member, Order, Paced, Place, Weigh
from proxy.shared_usage.paced.fleet_row import FleetRow
from proxy.shared_usage.paced.rows import MemberRow
from proxy.shared_usage.paced.words import KEPT_MS, SEVERAL, TIME_MS, WAITS, WORD, is_valid, members_word, order_word, weights_of
from proxy.shared_usage.segment import SCHEDULE
from proxy.shared_usage.usage_row import UsageRow, UsageRows
from quota.groups.group import GroupKey
from quota.paced_schedule import MS_NS

DECLARED: Final = "group "
"""Begins the name of a declared group among the members of a group. Names of other members are the text of a tuple."""
LEVEL: Final = "level"
"""In place of the name of a member: the row about all members of a group or member, by how much each process has brought them back."""


class SharedMember(Member):
    """A member with a row, or a group, of which the members have rows.

    Args:
        name, above, group, weigh: as for a member.
        rows: the rows of the quota type and scope.
        key: the key of the group that it is, or that it is a member of.
        tag: its name among all members of the group above it, as text that is the same in every process.

    Attributes:
        hash: 12 bits of a hash of the name.
        row: its row among the members above it; None: there are none above it.
        elsewhere: number of other processes in which it has a claim.
        firsts: by process, the words about the first waiting requests of its members elsewhere.
        below: returns the declared groups that are members of it.
        fleet: its usage over the members of a fleet; None: there is no fleet, or it is no declared group below another one.
        taken_ms: when its members were charged last for usage at other members of the fleet, in monotonic ms (`fleet_shares`).
    """

    __slots__ = (
        "_back_ns",
        "_backs",
        "_has_rows",
        "_key",
        "_level",
        "_looked_ms",
        "_others",
        "_published_ms",
        "_rows",
        "_seen",
        "_shown",
        "_tag",
        "_word",
        "_worded",
        "_worded_ms",
        "below",
        "elsewhere",
        "firsts",
        "fleet",
        "hash",
        "row",
        "taken_ms",
    )

    above: SharedMember | None

    def __init__(
        self,
        name: Hashable,
        rows: UsageRows,
        key: GroupKey,
        tag: str,
        above: Member | None = None,
        group: Paced | None = None,
        weigh: Weigh | None = None,
        below: Below | None = None,
    ) -> None:
        assert above is None or isinstance(above, SharedMember)
        super().__init__(name, above, group, weigh)
        self._rows = rows
        self._key = key
        self._tag = tag
        self.hash = int.from_bytes(blake2b(tag.encode("utf-8", "surrogatepass"), digest_size=2).digest()) % SEVERAL
        self.row: MemberRow | None = None if above is None else MemberRow(rows, above._key, tag)
        self.elsewhere = 0
        self._seen: list[int] = []
        self._shown: tuple[int, int] | None = None
        self._published_ms = 0
        self._others: Sequence[int] = ()
        self.firsts: Sequence[tuple[int, int]] = ()
        self._has_rows = False
        self._looked_ms = self._worded_ms = -TIME_MS
        self._word = self._worded = 0
        self._level = MemberRow(rows, key, f"{self.prefix}{LEVEL}")
        self.below = below
        is_of_fleet = rows.fleet is not None and above is not None and weigh is not None
        self.fleet = FleetRow(rows, above._key, tag) if is_of_fleet and above is not None else None
        self.taken_ms = 0
        self._backs: list[int] = []
        self._back_ns = 0

    # As one of the members above it

    def sync(self, now_ms: int) -> None:
        """Take over what other processes have published since the last call, and publish that a request waits here.

        That is the virtual time and, of a member with members, the words about these.
        """
        if self.row is None:
            return
        row = self.row.held() or self._claim(self.row, now_ms)
        if row is None:
            return
        rows = self._rows
        workers, own, seen = rows.workers, rows.worker, self._seen
        used = row.used()
        virtual = used[3 * workers : 4 * workers]
        if virtual != seen:
            changed = [word for worker, word in enumerate(virtual) if word != seen[worker] and worker != own and word]
            if changed:
                self.move(max(changed) - SCHEDULE)
            self._seen = virtual
        until_ms = used[2 * workers : 3 * workers]
        self.elsewhere = sum(until > now_ms for worker, until in enumerate(until_ms) if worker != own)
        if self.waits and now_ms - self._published_ms >= TIME_MS:
            self.publish(now_ms)
        if self.group is None and self.weigh is not None:
            self._learn_from(used, now_ms)
            self.publish_words(now_ms)

    def publish(self, now_ms: int) -> None:
        """Publish the virtual time and the claim."""
        row = None if self.row is None else self.row.held()
        if row is not None:
            self._published_ms = now_ms
            row.publish_waiting(now_ms + KEPT_MS if self.waits else self.claims_until_ns // MS_NS, SCHEDULE + self.virtual_ns)

    def release(self) -> None:
        """Stop using its rows, and those of its members."""
        self._level.release()
        if self.fleet is not None:
            self.fleet.release()
        if self.row is not None:
            self.row.release()
        for one in self.members.values():
            if isinstance(one, SharedMember):
                if one.group is None:
                    one.release()
                elif one.fleet is not None:
                    one.fleet.release()

    def _claim(self, its: MemberRow, now_ms: int) -> UsageRow | None:
        claimed = its.claim(now_ms)
        if claimed is None:
            return None
        workers = self._rows.workers
        self._seen = claimed.used()[3 * workers : 4 * workers]
        self.move(max(self.virtual_ns, *(word - SCHEDULE for word in self._seen)))
        self._published_ms = 0
        self._shown = None
        return claimed

    def _learn_from(self, used: list[int], now_ms: int) -> None:
        """Learn the words about its members from its row."""
        workers, own = self._rows.workers, self._rows.worker
        words, firsts = used[4 * workers : 5 * workers], used[workers : 2 * workers]
        words[own] = firsts[own] = 0
        self.learn(words, firsts, now_ms)

    def publish_words(self, now_ms: int) -> None:
        """Publish the words about its members in its row, if it is a member with members."""
        row = None if self.row is None or self.weigh is None else self.row.held()
        if row is None:
            return
        words = self.first_word(now_ms * MS_NS), self.word(now_ms)
        if words != self._shown:
            self._shown = words
            row.publish_under_way(words[0])
            row.publish_answer(words[1] - 1)

    # What members have in common, with several processes

    def charge(self, cost_ns: float, now_ns: int, burst_ns: int) -> float:
        """Charge it for a request that costs the one above it `cost_ns`; return what it is charged."""
        cost_ns = super().charge(cost_ns, now_ns, burst_ns)
        if self.fleet is not None:
            self.fleet.charge(cost_ns, now_ns, burst_ns)
        self.publish(now_ns // MS_NS)
        return cost_ns

    def due_ns(self, burst_ns: int) -> int:
        """Return when its own schedule lets a request pass, or the one above it is idle.

        In a fleet, this proxy passes its equal part of what the group may pass, and more while the group is less than half of the burst
        ahead: then other proxies leave it.
        """
        due_ns = super().due_ns(burst_ns)
        if self.fleet is None or self.above is None:
            return due_ns
        part_ns = min(self.fleet.virtual_ns - burst_ns, self.virtual_ns - burst_ns // 2)
        return max(due_ns, min(part_ns, self.above.idle_ns()))

    @property
    def order_ns(self) -> int:
        """The time by which it goes before other members that may pass: in a fleet, a group that has its part here goes last."""
        return self.virtual_ns if self.fleet is None else self.fleet.virtual_ns

    def bring_back(self, by_ns: int, latest_ns: int) -> None:
        """Bring the schedules of its members back that are later than `latest_ns`, here and in other processes."""
        super().bring_back(by_ns, latest_ns)
        row = self._level.held()
        if row is not None:
            self._back_ns += by_ns
            row.publish_under_way(self._back_ns)

    def sync_level(self, now_ms: int, latest_ns: int) -> None:
        """Bring the schedules of its members back by as much as other processes have brought them back since the last call."""
        row = self._level.held()
        if row is None:
            row = self._level.claim(now_ms)
            self._backs, self._back_ns = [], 0
            if row is None:
                return
        workers, own = self._rows.workers, self._rows.worker
        words, before = row.used()[workers : 2 * workers], self._backs
        if words != before:
            self._backs = words
            others = [max(0, word - seen) for worker, (word, seen) in enumerate(zip(words, before, strict=False)) if worker != own]
            if any(others):
                super().bring_back(sum(others), latest_ns)

    def take_back(self, cost_ns: float, now_ns: int) -> float:
        """Take back a part of what it was charged, which cost the one above it `cost_ns`; return what it gets back."""
        cost_ns = super().take_back(cost_ns, now_ns)
        if self.fleet is not None:
            self.fleet.take_back(cost_ns, now_ns)
        self.publish(now_ns // MS_NS)
        return cost_ns

    @property
    def is_in_fleet(self) -> bool:
        """Whether there is a fleet."""
        return self._rows.fleet is not None

    # Its own members

    def new_member(self, name: Hashable, weigh: Weigh | None) -> Member:
        """Return a new member of it."""
        tag, below = self.tag_of(name, is_declared=weigh is not None), None if weigh is None else self.below
        return SharedMember(name, self._rows, self._key, tag, self, None, weigh, below)

    def tag_of(self, name: Hashable, *, is_declared: bool) -> str:
        """Return the name of one of its members among all members of its group."""
        return self.prefix + (f"{DECLARED}{name}" if is_declared else repr(name))

    @property
    def prefix(self) -> str:
        """The beginning of the names of its members among all members of its group."""
        return "" if self.group is not None else f"{self._tag}/"

    def enter(self, member: Member) -> None:
        """Add a group as a member, in place of an earlier one of this name, whose rows it gets."""
        before = self.members.get(member.name)
        super().enter(member)
        if isinstance(before, SharedMember):
            before.release()
            member.virtual_ns, member.claims_until_ns = before.virtual_ns, before.claims_until_ns

    def forget(self, name: Hashable) -> None:
        """Forget a member without a claim."""
        member = self.members[name]
        assert isinstance(member, SharedMember)
        super().forget(name)
        member.release()

    def count_weights(self, now_ns: int) -> float:
        """Return the weights of its members with a claim, in all processes."""
        if not self._has_rows:
            return 1.0
        now_ms = now_ns // MS_NS
        return self._own_weights(now_ns) + sum(weights_of(word) for word in self._others if is_valid(word, now_ms))

    def _own_weights(self, now_ns: int) -> float:
        """Return the weights of the members with a claim here; one that k processes have counts for 1/k."""
        return sum(
            one.weight / (1 + one.elsewhere) for one in self.members.values() if isinstance(one, SharedMember) and one.has_claim(now_ns)
        )

    def needs_rows(self, now_ms: int) -> bool:
        """Whether it has members besides one, in any process, or one that is a declared group; once it had, rows are kept."""
        members = self.members
        if self._has_rows or not (self._others or members):
            return self._has_rows
        if len(members) > 1 or self.declared:
            self._has_rows = True
        elif now_ms >= self._looked_ms + TIME_MS // 8:
            self._looked_ms = now_ms
            hashes = {word & SEVERAL for word in self._others if is_valid(word, now_ms)}
            hashes.update(one.hash for one in members.values() if isinstance(one, SharedMember))
            self._has_rows = len(hashes) > 1
        return self._has_rows

    def learn(self, words: Iterable[int], firsts: Iterable[int], now_ms: int) -> None:
        """Note the words that each process has published about its members, and about their first waiting requests; 0 for this process."""
        self._others = [word for word in words if word > WORD]
        waits = [(worker, first) for worker, first in enumerate(firsts) if first >= WAITS]
        self.firsts = [(worker, first) for worker, first in waits if not self._rows.is_unresponsive(worker, now_ms)]

    def word(self, now_ms: int) -> int:
        """Return what to publish about the members here, counted again after a time; 0: none has a claim."""
        if now_ms - self._worded_ms >= TIME_MS or len(self.members) != self._worded:
            self._worded_ms, self._worded = now_ms, len(self.members)
            weights = self._own_weights(now_ms * MS_NS)
            only = next(iter(self.members.values())) if len(self.members) == 1 else None
            named = only.hash if isinstance(only, SharedMember) else SEVERAL
            self._word = members_word(weights, named, now_ms) if weights else 0
        return self._word

    def foremost(self) -> list[SharedMember]:
        """Return its members with waiting requests that may go next: those that are furthest behind, and the declared groups."""
        waiting = [one for _, _, one in self.in_order[:BLOCKED_MAX]]
        waiting += [one for one in self.declared.values() if one.waits]
        return [one for one in waiting if isinstance(one, SharedMember)]

    def first_word(self, now_ns: int) -> int:
        """Return what to publish about the first waiting request of its members here; 0: none waits that may pass."""
        found = self._first(now_ns)
        return 0 if found is None else order_word(found[0].order_ns, found[1])

    def _first(self, now_ns: int) -> tuple[Member, Place] | None:
        """Return the member that is furthest behind, and its first waiting request. Groups whose own bound lets none pass are skipped."""
        found: tuple[tuple[int, Order], Member, Place] | None = None
        if self.in_order:
            virtual_ns, order, member = self.in_order[0]
            found = (virtual_ns, order), member, member.soonest(now_ns, 0)[1]
        for one in self.declared.values():
            place = first_of(one, now_ns) if one.waits else None
            if place is not None:
                key = one.order_ns, place.order
                if found is None or key < found[0]:
                    found = key, one, place
        return None if found is None else found[1:]


def first_of(member: Member, now_ns: int) -> Place | None:
    """Return the first waiting request of a member; None: the bounds of all groups that it is, or has, let none pass now."""
    if member.waiting:
        return member.waiting[0] if member.level is None else member.level.soonest(now_ns)[1]
    found = member._first(now_ns) if isinstance(member, SharedMember) else None
    if found is None or (member.group is not None and member.group.own_due_ns(now_ns, found[1].reserved) > now_ns):
        return None
    return found[1]
