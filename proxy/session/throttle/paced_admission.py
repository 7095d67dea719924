"""The admission of one connection's requests by the schedules of their groups: what waits, and what is reserved."""

from __future__ import annotations

from typing import Final

from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.mode import INT32_MAX
from proxy.enforcement.paced.group import PacedGroup
from proxy.enforcement.paced.member import Connection, Member, Path, Place
from proxy.enforcement.quota_scope import ClientQuota
from proxy.session.throttle.fetch_admission import FetchAdmission
from proxy.session.throttle.reservations import Reservation
from quota.entity import UNLIMITED
from quota.paced_schedule import MS_NS, ms_after

CHECK_EVERY_MS: Final = 1_000
"""A request that is not the first one is notified when it becomes that. It looks again after this time, since quotas may have changed."""


class PacedAdmission:
    """The request of one connection that waits for a schedule, and what was charged for those that passed.

    Attributes:
        is_on_time: whether the last admitted request passes by the schedule; False: by an age step, before its time.
        waited_ms: how long it waited.
        wait_until_ms: when to check a waiting request again.

    Args:
        fetches: keeps the fetches in flight, of all groups.
    """

    __slots__ = (
        "_among_fetches",
        "_among_produces",
        "_fetcher",
        "_group",
        "_is_fetch",
        "_member",
        "_waiting",
        "answered_waited_ms",
        "fetches",
        "is_on_time",
        "wait_until_ms",
        "waited_ms",
    )

    def __init__(self, fetches: FetchAdmission) -> None:
        self.fetches = fetches
        self._group: PacedGroup | None = None  # of the waiting request ...
        self._waiting: Place | None = None  # ... and its place
        self._is_fetch = False
        self._member: Member | None = None  # what the last request was charged to ...
        self._fetcher: Member | None = None  # ... and the member of its group that it counts for
        self._among_produces: Connection | None = None  # this connection in the line of its group of produced bytes ...
        self._among_fetches: Connection | None = None  # ... and of fetched bytes
        self.is_on_time = True
        self.wait_until_ms = 0
        self.waited_ms = 0
        self.answered_waited_ms = 0
        fetches.paced = self

    def admits_paced(self, group: PacedGroup, path: Path, client_id: str, size: int, now_ms: int, read_ms: int, *, is_fetch: bool) -> bool:
        """Whether a request may pass; if not, it waits, and `wait_until_ms` is when to check again.

        Args:
            group: the group that it counts for.
            path: the member of the group.
            client_id: the client-id of the request.
            size: its bytes; of a fetch those that it reserves.
            now_ms: monotonic milliseconds.
            read_ms: when it was read.
            is_fetch: whether it reserves its bytes, and is charged at its response.
        """
        now_ns, line, reserved = now_ms * MS_NS, group.line, size if is_fetch else 0
        group.refresh(now_ms)
        self.is_on_time, self.waited_ms = True, 0
        if self._group is not group:
            self.fetches.leave_queue()
        place = self._waiting
        if place is None:
            member = self._fetcher = line.member(path, now_ns)
            self._member = self._charged(member, client_id, now_ns, is_fetch=is_fetch)
            if not line.has_waiting_beside() and group.member_due_ns(self._member, now_ns, reserved) <= now_ns:
                return True
            connection = self._connection(client_id, is_fetch=is_fetch)
            place = self._waiting = line.join(member, read_ms, self._line_changed, now_ms, reserved, connection)
            self._group, self._is_fetch = group, is_fetch
            group.open_fetches += is_fetch
            member.open_fetches += is_fetch
        self._member, self._fetcher, place.reserved = place.charged, place.member, reserved
        self.wait_until_ms = now_ms + CHECK_EVERY_MS
        if line.is_next(place, now_ns):
            due_ns = group.member_due_ns(place.charged, now_ns, reserved)
            if due_ns <= now_ns:
                return True
            self.wait_until_ms = min(self.wait_until_ms, ms_after(due_ns))
        if group.fits_age_step(size, read_ms, now_ms):
            group.last_throttle_round_ms = now_ms
            self.is_on_time = False
            return True
        age_ms = group.age_step_ms(read_ms)
        if age_ms > now_ms:
            self.wait_until_ms = min(self.wait_until_ms, age_ms)
        group.note_waiting(now_ms)
        return False

    def passes_anyway(
        self, group: PacedGroup, path: Path, client_id: str, size: int, now_ms: int, *, is_fetch: bool, observes: bool
    ) -> None:
        """Let a request pass whatever the schedule is.

        Args:
            observes: whether quotas are only observed; `waited_ms` is then how long the request would wait.
        """
        group.refresh(now_ms)
        now_ns = now_ms * MS_NS
        self._fetcher = group.line.member(path, now_ns)
        member = self._member = self._charged(self._fetcher, client_id, now_ns, is_fetch=is_fetch)
        due_ns = group.member_due_ns(member, now_ns, size if is_fetch else 0)
        wait_ms = max(0, ms_after(due_ns) - now_ms)
        self.is_on_time = wait_ms == 0
        self.waited_ms = wait_ms if observes else 0

    def _charged(self, member: Member, client_id: str, now_ns: int, *, is_fetch: bool) -> Member:
        """Return what a request of a member is charged to: the connection, where several connections of the member wait, or the member."""
        level = member.level
        return member if level is None else level.of(self._connection(client_id, is_fetch=is_fetch), now_ns)

    def _connection(self, client_id: str, *, is_fetch: bool) -> Connection:
        """Return this connection in the line of one of its groups."""
        connection = self._among_fetches if is_fetch else self._among_produces
        if connection is None:
            connection = Connection()
            if is_fetch:
                self._among_fetches = connection
            else:
                self._among_produces = connection
        connection.client_id = client_id
        return connection

    def end(self) -> None:
        """The connection has ended. What it has used more than its share is left to others of its client."""
        for connection in (self._among_fetches, self._among_produces):
            if connection is not None:
                connection.end()

    def fetch_bytes(self, group: PacedGroup, path: Path, requested: int, now_ms: int) -> tuple[int, int]:
        """Return the most bytes that a fetch of a member may request now, and the bytes that it reserves."""
        most = min(group.share_bytes(group.line.at(path, now_ms * MS_NS), now_ms), requested)
        return most, self.fetches.reserved_bytes(most) if self.fetches.has_answers else max(most, group.over_bytes(now_ms))

    def produced(self, group: PacedGroup, size: int, now_ms: int) -> None:
        """Charge a Produce that passes now."""
        group.record(size, now_ms)
        self._passed(group, size, now_ms)

    def fetched(self, group: PacedGroup | None, size: int, most: int, now_ms: int) -> None:
        """Reserve `size` bytes for a fetch of `most` bytes that passes now; None: no quota applies to it."""
        if group is None:
            self.fetches.forwarded(None)
            return
        group.pending += size
        assert self._member is not None
        assert self._fetcher is not None
        member, fetcher = self._member, self._fetcher
        group.open_fetches += 1
        fetcher.open_fetches += 1
        self._passed(group, size, now_ms)
        self.fetches.enter(group, size, most, Reservation(member, fetcher, self.is_on_time, self.waited_ms))

    def _passed(self, group: PacedGroup, size: int, now_ms: int) -> None:
        assert self._member is not None
        group.charge_members(self._member, size, now_ms * MS_NS)
        if self._waiting is not None:
            self.waited_ms = now_ms - self._waiting.joined_ms
            self.leave_line()

    def answered(self, group: PacedGroup, reservation: Reservation, reserved: int, most: int, size_bytes: int) -> None:
        """The response to a fetch has arrived that had reserved bytes: its member pays the difference."""
        self.answered_waited_ms = reservation.waited_ms
        self.fetches.over_bytes = size_bytes if size_bytes > most else 0
        if size_bytes > most:
            group.note_over(size_bytes, most)
        group.open_fetches -= 1
        reservation.fetcher.open_fetches -= 1
        if size_bytes != reserved:
            group.take_back(reservation.member, reserved, size_bytes)

    def leave_line(self) -> None:
        """Leave the waiting requests of a paced group."""
        group, place = self._group, self._waiting
        if group is not None and place is not None:
            self._group = self._waiting = None
            group.open_fetches -= self._is_fetch
            place.member.open_fetches -= self._is_fetch
            group.line.leave(place)

    def _line_changed(self) -> None:
        """Check again, because the waiting request may pass now."""
        self.fetches.notify()


def announced_ms(client: ClientQuota, now_ms: int) -> int:
    """Return the throttle time that the response to a Produce announces: how long the schedule lets nothing pass."""
    group = limited_group(client.produce(now_ms))
    return 0 if group is None or not client.is_enforced else min(group.wait_ms(now_ms), INT32_MAX)


def limited_group(group: EnforcedGroup | None) -> PacedGroup | None:
    """Return a paced group that has a bound, or a parent that may have one."""
    return group if isinstance(group, PacedGroup) and (group.bound < UNLIMITED or group.parent is not None) else None
