"""The admission of one connection's requests by schedules of handler time: what waits, and what is reserved.

The handler time of a request is known after its response. So a request reserves an estimate when it passes. What it is charged at its
response, up to the estimate, was checked when it passed; what exceeds the estimate was not. A request that is in flight for more than a
second reserves nothing any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.enforcement.groups.enforced_groups import NEVER_MS, EnforcedGroup
from proxy.enforcement.paced.member import Connection, Member, Path, Place
from proxy.enforcement.paced.time_group import PacedTimeGroup
from proxy.session.throttle.fetch_admission import FetchAdmission
from proxy.session.throttle.paced_admission import CHECK_EVERY_MS
from quota.paced_schedule import MS_NS, ms_after

MEMBER_WAIT_MS_MAX: Final = 1_000
"""A request that keeps a group membership waits no longer, as in the window (`MEMBER_SILENT_MS_MAX`)."""
RESERVED_MS_MAX: Final = 1_000
"""A request that is in flight for longer reserves nothing any more: clients choose for how long a broker keeps some requests, and whether
they take the responses before it."""


class TimeReservation:
    """The handler time that one request in flight has reserved.

    Attributes:
        group: the group that it is reserved in; None: the response has arrived, or the group has no schedule any more.
        reserved_ns: the reserved handler time.
        waited_ms: how long the request waited.
        is_on_time: whether the schedule let it pass; False: it passed before its time.
        is_excused: whether it passed before its time because it keeps a group membership.
        since_ms: when it passed, in monotonic ms.
    """

    __slots__ = ("_bounds", "_has_lapsed", "_member", "_open", "group", "is_excused", "is_on_time", "reserved_ns", "since_ms", "waited_ms")

    def __init__(
        self, group: PacedTimeGroup, member: Member, reserved_ns: int, waited_ms: int, opened: list[TimeReservation], now_ms: int
    ) -> None:
        self.group: PacedTimeGroup | None = group
        self._member: Member | None = member  # what it was charged to; None: its group got another pacing
        self._open = opened
        self._bounds = _bounds(group)
        self.reserved_ns = reserved_ns
        self.waited_ms = waited_ms
        self.is_on_time = True
        self.is_excused = False
        self.since_ms = now_ms
        self._has_lapsed = False
        group.pending += reserved_ns
        group.open_fetches += 1
        opened.append(self)

    def admitted_ns(self, group: PacedTimeGroup) -> int:
        """Return the handler time that the schedule of `group` has admitted, by the bounds of now."""
        return self.reserved_ns if self.is_on_time and self.group is group and self._bounds == _bounds(group) else 0

    def settle(self, charged_ns: int) -> bool:
        """The response has arrived: what is reserved is free, and the member pays the difference to what is charged. False: it was free."""
        group = self.group
        if group is None or not self._release(group):
            return False
        if self._member is not None:
            group.take_back(self._member, self.reserved_ns, charged_ns)
        return True

    def lapse(self) -> None:
        """The request is in flight for long: what it has reserved is free, and what it is charged was not checked."""
        if self.group is not None and not self._has_lapsed:
            self.is_on_time = False
            self._free(self.group)
            self._has_lapsed = True
            self.group.line.notify_first()

    def abandon(self) -> None:
        """No response comes any more."""
        if self.group is not None:
            self._release(self.group)
            self.group.line.notify_first()

    def move(self, new: EnforcedGroup | None) -> None:
        """Its group got another pacing, and `new` continues it."""
        if self.group is not None and self._release(self.group):
            self.group = None
            if isinstance(new, PacedTimeGroup):
                self.is_on_time = False
                self.group, self._member = new, None
                if not self._has_lapsed:
                    new.pending += self.reserved_ns
                    new.open_fetches += 1
                self._open.append(self)

    def _release(self, group: PacedTimeGroup) -> bool:
        """Free what is reserved; False: no response is expected."""
        if self not in self._open:
            return False
        self._open.remove(self)
        self._free(group)
        return True

    def _free(self, group: PacedTimeGroup) -> None:
        if not self._has_lapsed:
            group.pending -= self.reserved_ns
            group.open_fetches -= 1


class TimeAdmission:
    """The request of one connection that waits for handler time, and the reservations of those in flight.

    Attributes:
        wait_until_ms: when to check a waiting request again.

    Args:
        fetches: has the function that is called when checking again is worth while.
    """

    __slots__ = (
        "_connection",
        "_excused_ms",
        "_fetches",
        "_is_excused",
        "_is_on_time",
        "_member",
        "_open",
        "_place",
        "_waited_ms",
        "wait_until_ms",
    )

    def __init__(self, fetches: FetchAdmission) -> None:
        self._fetches = fetches
        self._connection = Connection()  # this connection in the line of its group
        self._place: tuple[PacedTimeGroup, Place] | None = None  # of the waiting request
        self._member: Member | None = None  # what the last request was charged to
        self._open: list[TimeReservation] = []
        self._excused_ms = NEVER_MS  # when a request passed last because it keeps a group membership
        self._is_on_time, self._is_excused = True, False
        self._waited_ms = 0
        self.wait_until_ms = 0
        fetches.timed = self

    def admits(
        self, group: PacedTimeGroup, path: Path, client_id: str, reserved_ns: int, now_ms: int, read_ms: int, *, keeps_membership: bool
    ) -> bool:
        """Whether a request may pass; if not, it waits, and `wait_until_ms` is when to check again.

        Args:
            group: the group that it counts for.
            path: the member of the group.
            client_id: the client-id of the request.
            reserved_ns: its estimated handler time.
            now_ms: monotonic milliseconds.
            read_ms: when it was read.
            keeps_membership: whether its client loses a group membership if it waits for long.
        """
        now_ns, line = now_ms * MS_NS, group.line
        group.refresh(now_ms)
        self._is_on_time, self._is_excused = True, False
        if self._place is not None and self._place[0] is not group:
            self.leave_line()
        if self._place is None:
            member = line.member(path, now_ns)
            self._member = self._charged(member, client_id, now_ns)
            if not line.has_waiting_beside() and group.member_due_ns(self._member, now_ns, reserved_ns) <= now_ns:
                return True
            self._place = group, line.join(member, read_ms, self._line_changed, now_ms, reserved_ns, self._connection)
        place = self._place[1]
        self._member, place.reserved = place.charged, reserved_ns
        self.wait_until_ms = now_ms + CHECK_EVERY_MS
        if line.is_next(place, now_ns):
            due_ns = group.member_due_ns(place.charged, now_ns, reserved_ns)
            if due_ns <= now_ns:
                return True
            self.wait_until_ms = min(self.wait_until_ms, ms_after(due_ns))
        if self._passes_early(group, reserved_ns, now_ms, read_ms, keeps_membership=keeps_membership):
            return True
        group.note_waiting(now_ms)
        return False

    def _passes_early(self, group: PacedTimeGroup, reserved_ns: int, now_ms: int, read_ms: int, *, keeps_membership: bool) -> bool:
        """Whether a request passes before its time: one in 25 s for the group, one in a second that keeps a membership."""
        self._is_on_time = False
        if keeps_membership:
            excused_ms = max(read_ms, self._excused_ms) + MEMBER_WAIT_MS_MAX
            self._is_excused = excused_ms <= now_ms
            self.wait_until_ms = self.wait_until_ms if self._is_excused else min(self.wait_until_ms, excused_ms)
        if self._is_excused or group.fits_age_step(reserved_ns, read_ms, now_ms):
            return True
        age_ms = group.age_step_ms(read_ms)
        if age_ms > now_ms:
            self.wait_until_ms = min(self.wait_until_ms, age_ms)
        return False

    def passes_anyway(self, group: PacedTimeGroup, path: Path, client_id: str, reserved_ns: int, now_ms: int, *, observes: bool) -> None:
        """Let a request pass whatever the schedule is; with `observes` its wait is how long it would wait."""
        group.refresh(now_ms)
        now_ns = now_ms * MS_NS
        member = self._member = self._charged(group.line.member(path, now_ns), client_id, now_ns)
        wait_ms = max(0, ms_after(group.member_due_ns(member, now_ns, reserved_ns)) - now_ms)
        self.leave_line()
        self._is_on_time, self._is_excused = wait_ms == 0, False
        if observes:
            self._waited_ms = wait_ms

    def _charged(self, member: Member, client_id: str, now_ns: int) -> Member:
        """Return what a request is charged to: this connection, where several connections of the member wait, or the member."""
        self._connection.client_id = client_id
        return member if member.level is None else member.level.of(self._connection, now_ns)

    def passed(self, group: PacedTimeGroup, reserved_ns: int, now_ms: int) -> TimeReservation:
        """Reserve the estimated handler time of a request that passes now."""
        assert self._member is not None
        if self._place is not None:
            self._waited_ms = now_ms - self._place[1].joined_ms
        reservation = TimeReservation(group, self._member, reserved_ns, self._waited_ms, self._open, now_ms)
        reservation.is_on_time, reservation.is_excused = self._is_on_time, self._is_excused
        if self._is_excused:
            self._excused_ms = now_ms
        elif not self._is_on_time and self._place is not None:
            group.last_throttle_round_ms = now_ms
        group.charge_members(self._member, reserved_ns, now_ms * MS_NS)
        self.leave_line()
        return reservation

    def leave_line(self) -> None:
        """Leave the waiting requests of the group."""
        place, self._place, self._waited_ms = self._place, None, 0
        if place is not None:
            place[0].line.leave(place[1])

    def moved(self, replaced: Mapping[EnforcedGroup, EnforcedGroup]) -> None:
        """Groups got another pacing: what is reserved is reserved in the groups that continue them, and what waits is checked again."""
        self.leave_line()
        for reservation in list(self._open):
            group = reservation.group
            if group is not None and group in replaced:
                reservation.move(replaced[group])

    def lapse(self, now_ms: int) -> None:
        """Free what requests have reserved that are in flight for long."""
        for reservation in self._open:
            if now_ms - reservation.since_ms > RESERVED_MS_MAX:
                reservation.lapse()

    def abandon(self) -> None:
        """The connection ends: free what is reserved, and leave the waiting requests."""
        self.leave_line()
        self._connection.end()
        for reservation in list(self._open):
            reservation.abandon()

    def _line_changed(self) -> None:
        """Check again, because the waiting request may pass now."""
        self._fetches.notify()


def _bounds(group: PacedTimeGroup) -> tuple[float, ...]:
    return tuple(one.bound for one in group.chain)
