"""The shares of declared groups with one parent over the members of a fleet.

Each proxy charges the groups what the others have used of them, as if it had passed here, when it learns of it. So a group has one share,
whichever proxies its clients use. Nothing waits for requests at another proxy. The bound of the parent is kept by its own schedule.

Each proxy passes an equal part of what a group may pass, and more while the group is less than half of the burst ahead, since other proxies
leave it then. Otherwise a proxy that learns late would find that another one has passed all of the share. At each proxy the group goes
first that has passed least of its part there (`SharedMember.order_ns`, `due_ns`).

What is learned late moves a group up to `LATE_NS` beyond the burst: each of several proxies may pass requests of it at the same time, and
what they pass beyond its share delays it afterwards. If usage elsewhere moves it further ahead, which nobody else wanted, its level is
brought back here. Other proxies bring theirs back when they see the same.
"""

from __future__ import annotations

from typing import Final, Protocol, cast

from proxy.enforcement.paced.member import CLAIM_NS, Member, Paced
from proxy.shared_usage.paced.fleet_row import FleetRow, Taken
from proxy.shared_usage.paced.members import SharedMember
from proxy.shared_usage.shared_groups import SHARE_MS
from quota.paced_schedule import MS_NS, SECOND_NS

LATE_NS: Final = 2 * SECOND_NS
CLAIM_NS_MAX: Final = 10 * SECOND_NS
AHEAD_MS: Final = 1_000
COSTS: Final = 2
COST_LEFT: Final = 0.9
"""Part of `FleetRow.cost_ns` that is left at the next charge."""
COST_NS_MAX: Final = 3_600 * SECOND_NS
"""A bound of 0 costs endless time, and virtual times have to fit into words."""
GROUPS_AT_ONCE: Final = 32
"""With more groups, usage elsewhere is looked up less often."""


class FleetPaced(Paced, Protocol):
    """The part of a shared paced group that shares over a fleet need."""

    @property
    def window_max(self) -> int:
        """What the bound allows in a window, in the unit of totals."""


def note_used(member: Member, root: Member, amount: int, now_ms: int) -> None:
    """Publish what is charged to the declared groups from `member` up to the group `root`, without this one.

    Args:
        amount: bytes, or nanoseconds of handler time; below 0: what was charged too much.
    """
    one: Member | None = member
    while one is not None and one is not root:
        if isinstance(one, SharedMember) and one.fleet is not None:
            one.fleet.add(amount, now_ms)
        one = one.above


def charge_elsewhere(above: SharedMember, now_ms: int, burst_ns: int) -> None:
    """Charge the declared groups that are members of `above` what other members of the fleet have used of them since the last call.

    These are also groups of which no request was here: they have a share while they are used elsewhere.
    """
    if above.below is None or not above.is_in_fleet:
        return
    groups = above.below(str(above.name))
    if not groups or now_ms < above.taken_ms + SHARE_MS * (1 + len(groups) // GROUPS_AT_ONCE):
        return
    above.taken_ms = now_ms
    now_ns, window_max = now_ms * MS_NS, _window_max(above)
    members = [above.member(name, weigh, now_ns) for name, weigh in groups]
    whole = sum(one.weight for one in members)
    for one in members:
        if isinstance(one, SharedMember) and one.fleet is not None:
            one.fleet.note_window_max(int(window_max * one.weight / whole), now_ms)
            one.fleet.sync(now_ms)
            taken = one.fleet.taken(burst_ns // MS_NS, now_ms)
            if taken.used > 0:
                _take(one, one.fleet, taken, now_ns, burst_ns)


def _take(one: SharedMember, its: FleetRow, taken: Taken, now_ns: int, burst_ns: int) -> None:
    """Let a member keep a claim, and charge it, for usage elsewhere.

    It keeps the claim for the time in which it would use as much at its share, since requests that wait elsewhere are not known.
    """
    above = one.above
    assert above is not None
    one.sync(now_ns // MS_NS)
    one.claims_until_ns = max(one.claims_until_ns, now_ns + CLAIM_NS)
    used_ns = _cost_ns(above, taken.used, now_ns) * above.share_of(one, now_ns)
    one.claims_until_ns = max(one.claims_until_ns, now_ns + int(min(used_ns, CLAIM_NS_MAX)))
    cost_ns = int(min(used_ns * taken.amount / taken.used, COST_NS_MAX))
    begin_ns, latest_ns = max(one.virtual_ns, now_ns), now_ns + burst_ns + LATE_NS
    if taken.is_late or begin_ns <= now_ns + burst_ns:
        its.free_ms = now_ns // MS_NS
    if _is_ahead_for_long(its, cost_ns, now_ns // MS_NS):
        begin_ns, its.free_ms = now_ns + burst_ns // 2, now_ns // MS_NS
    elif begin_ns > latest_ns:
        above.bring_back(begin_ns - latest_ns, latest_ns)
        begin_ns = latest_ns
    one.virtual_ns = begin_ns + cost_ns
    if taken.is_late:
        one.virtual_ns = min(one.virtual_ns, max(begin_ns, now_ns + burst_ns))
    one.publish(now_ns // MS_NS)


def _is_ahead_for_long(its: FleetRow, cost_ns: int, now_ms: int) -> bool:
    """Whether this proxy could pass nothing of a group for long, and longer than large requests elsewhere explain.

    Then its virtual time is later here than at the proxies that pass it, which charged the same at other times.
    """
    its.cost_ns = max(cost_ns, int(its.cost_ns * COST_LEFT))
    return now_ms - its.free_ms > AHEAD_MS + COSTS * its.cost_ns // MS_NS


def _window_max(above: SharedMember) -> int:
    """Return what `above` may use in a window: by its bound, or as its part of that above it."""
    if above.group is not None:
        return cast(FleetPaced, above.group).window_max
    return 0 if above.fleet is None else above.fleet.window_max


def _cost_ns(above: SharedMember, amount: int, now_ns: int) -> float:
    """Return what an amount that a member of `above` has used elsewhere costs `above`, as `PacedGroup.charge_members` computes it."""
    cost_ns = 0.0 if above.group is None else float(above.group.cost_ns(amount))
    if above.above is not None:
        cost_ns = max(cost_ns, _cost_ns(above.above, amount, now_ns) * above.above.share_of(above, now_ns))
    return cost_ns
