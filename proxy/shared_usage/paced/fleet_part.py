"""The equal part of this proxy in a paced group that the members of a fleet share.

Each proxy charges usage elsewhere when it learns of it. So the schedules of busy proxies differ, and stay apart by as much until none of
them is busy. While the others pass all of the bound, a schedule that is later than theirs stays more than the burst ahead: its proxy
would pass nothing. So a proxy that passes less than its part records what the others have used up to `HELD_MS` later, as far as its
schedule would be more than the burst ahead otherwise. All proxies together pass no more by such parts than the bound, and each charges
what they have passed.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from proxy.enforcement.paced.group import PacedGroup
from quota.entity import UNLIMITED
from quota.paced_schedule import MS_NS, cost_ns

HELD_MS: Final = 500
"""`meter validate` finds usage that is not recorded after 3 s, and a small change may wait for 1 s before it is sent."""
BURST_PARTS: Final = 4
"""A proxy has less than its part while the schedule of this is less than one of these parts of the burst ahead."""
EXACT: Final = 2.0**53
"""The highest bound that is computed with."""


class FleetPart:
    """The part of one group that this proxy passes.

    Attributes:
        held: what others have used and what is known but not recorded here, in the unit of totals.
    """

    __slots__ = ("_last", "_notes", "_used", "_virtual_ns", "held")

    def __init__(self) -> None:
        self._used: int | None = None
        self._notes: deque[tuple[int, int]] = deque()  # when what was used elsewhere was known
        self._last = self._virtual_ns = 0
        self.held = 0

    def note_used(self, group: PacedGroup, used: int, members: int, now_ms: int) -> None:
        """Charge the schedule of the part what this proxy has used since the last call.

        Args:
            group: the group.
            used: all that this proxy used, in the unit of totals; the first one begins the count.
            members: number of members of the fleet that are heard, with this one.
            now_ms: monotonic milliseconds.
        """
        amount, self._used = 0 if self._used is None else used - self._used, used
        if amount > 0:
            self._last, now_ns = amount, now_ms * MS_NS
            begin_ns = min(max(self._virtual_ns, now_ns), now_ns + group.schedule.burst_ns)
            self._virtual_ns = begin_ns + members * cost_ns(amount, group.bound, group.unit_ns)

    def hold(self, group: PacedGroup, seen: int, total: int, now_ms: int, *, is_of_fetches: bool) -> int:
        """Return how much of what others have used is recorded later, so that a request of this proxy may pass.

        Args:
            group: the group.
            seen: what is recorded and charged, in the unit of totals.
            total: what the others have used so far.
            now_ms: monotonic milliseconds.
            is_of_fetches: whether requests reserve what they may use; one is expected to reserve what this proxy used last.
        """
        notes, now_ns, burst_ns = self._notes, now_ms * MS_NS, group.schedule.burst_ns
        if notes and now_ms - notes[-1][0] >= HELD_MS:
            notes.clear()
        if not notes or total != notes[-1][1]:
            notes.append((now_ms, total))
        while len(notes) > 1 and notes[1][0] <= now_ms - HELD_MS:
            notes.popleft()
        if not 0.0 < group.bound < UNLIMITED or self._virtual_ns > now_ns + burst_ns // BURST_PARTS:
            return 0
        due_ns = group.own_due_ns(now_ns, self._last if is_of_fetches else 0)
        room_ns = min(max(0, now_ns - due_ns), burst_ns)
        room = int(room_ns * min(group.bound, EXACT)) // group.unit_ns
        self.held = max(0, min(total - seen - room, total - notes[0][1]))
        return self.held
