"""The first of the two checks of a fetch: whether it may be forwarded now.

A response that has arrived cannot be taken back as in Kafka, which empties the response and un-records its
bytes. So a fetch waits here while the group's rate plus the expected bytes of it and of its forwarded fetches exceeds the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from proxy.enforcement.groups.enforced_groups import UNKNOWN, EnforcedGroup
from proxy.enforcement.groups.fetch_queue import FetchQueue, Place
from proxy.enforcement.mode import AGE_MAX_MS, INT32_MAX
from proxy.enforcement.paced.group import PacedGroup, is_larger_batch
from proxy.enforcement.quota_scope import ClientQuota
from proxy.session.throttle.reservations import Reservation, UsualReservation


class PacedFetches(Protocol):
    """The part of `PacedAdmission` that fetches need.

    Attributes:
        answered_waited_ms: how long the fetch had waited whose response has arrived last.
    """

    answered_waited_ms: int

    def answered(self, group: PacedGroup, reservation: Reservation, reserved: int, most: int, size_bytes: int) -> None:
        """The response to a fetch has arrived that had reserved bytes."""

    def leave_line(self) -> None:
        """Leave the waiting requests of a paced group."""

    def end(self) -> None:
        """The connection has ended."""


class TimedRequests(Protocol):
    """The part of `TimeAdmission` that follows the connection."""

    def leave_line(self) -> None:
        """Leave the waiting requests of the group."""

    def moved(self, replaced: Mapping[EnforcedGroup, EnforcedGroup]) -> None:
        """Groups got another pacing."""

    def lapse(self, now_ms: int) -> None:
        """Free what requests have reserved that are in flight for long."""

    def abandon(self) -> None:
        """The connection ends."""


class FetchAdmission:
    """The forwarded fetches of one connection, and the one that waits.

    Attributes:
        under_way: the fetches in flight, the oldest first: their group, expected or reserved bytes, the most requested, and the reservation
            of a paced group. A list, since an empty deque takes 700 bytes.
        is_metered: whether decisions are metered: then a response whose request had waited is no usual one.
        over_bytes: size of the last response to a fetch of a paced group, if that was more than requested, by its header or by a larger
            first batch; else 0.
        paced: the admission of requests of paced groups, whose fetches in flight are kept here too; None: there were none.
        timed: the admission of requests by a schedule of handler time; None: there were none.
    """

    __slots__ = (
        "_answer_bytes",
        "_answer_bytes_max",
        "_expected_bytes",
        "_line",
        "_place",
        "_summed",
        "_summed_bytes",
        "bytes_max",
        "is_metered",
        "notify",
        "over_bytes",
        "paced",
        "throttle_ms",
        "timed",
        "under_way",
        "wait_until_ms",
    )

    def __init__(self, *, is_metered: bool = False) -> None:
        self.is_metered = is_metered
        self.under_way: list[tuple[EnforcedGroup | None, int, int, Reservation | None]] = []
        self._summed: EnforcedGroup | None = None  # the group for which `_summed_bytes` is computed
        self._summed_bytes = 0  # the most bytes beyond the expected ones that its forwarded fetches may return
        self._answer_bytes = UNKNOWN  # the size of this connection's last response
        self._answer_bytes_max = INT32_MAX  # the most requested for it
        self._line: FetchQueue | None = None
        self._place: Place | None = None
        self._expected_bytes = 0  # of the fetch that was admitted last
        self.bytes_max = 0  # the most bytes that it may return
        self.notify: Callable[[], None] = _ignore  # called when checking again is worth while before the deadline
        self.wait_until_ms = 0
        self.over_bytes = 0
        self.paced: PacedFetches | None = None
        self.timed: TimedRequests | None = None
        self.throttle_ms = 0  # a verdict: the wait of the last fetch by the group's rate; reported once per fetch

    @property
    def has_answers(self) -> bool:
        """Whether this connection has had a response to a fetch."""
        return self._answer_bytes != UNKNOWN

    def reserved_bytes(self, most: int) -> int:
        """Return what a fetch of `most` bytes reserves: more than that, if the last response had more than was requested."""
        over_bytes, most_before = self.over_bytes, self._answer_bytes_max
        if is_larger_batch(over_bytes, most_before):
            return max(most, over_bytes)
        return most + max(0, over_bytes - most_before)

    @property
    def counts_for_others(self) -> bool:
        """Whether a fetch in flight counts for a group, so that others may wait for what it returns."""
        return any(group is not None for group, *_ in self.under_way)

    def admits(self, group: EnforcedGroup, bytes_max: int, now_ms: int, read_ms: int, *, has_throttle_round: bool) -> bool:
        """Whether a fetch may be forwarded. If so, `bytes_max` is the most it may return; if not, `wait_until_ms` is when to check again.

        Args:
            group: the group that it counts for.
            bytes_max: the most it may return, by its request and by the quota's window.
            now_ms: monotonic milliseconds.
            read_ms: when it was read.
            has_throttle_round: whether this connection has the group's current throttle round already.
        """
        if not group.fetch_queue:
            self._expect(group, bytes_max)
            if group.would_throttle_ms(group.pending_at(now_ms) + self._own_bytes(group), now_ms) <= 0:
                return True
        return self._admits_in_turn(group, bytes_max, now_ms, read_ms, has_throttle_round=has_throttle_round)

    def may_follow(self, group: EnforcedGroup, now_ms: int) -> bool:
        """Whether a fetch may be forwarded behind this connection's fetches in flight, if each returns the most it may.

        An estimate is enough for one fetch: it is wrong once, and the next one is checked with what was returned. Kafka reads a request
        when the one before it is answered, so there none is processed behind one that exceeds the group's bound.
        """
        return group.would_throttle_ms(group.pending_at(now_ms) + self._more_bytes(group), now_ms) <= 0

    def passes_behind(self, group: EnforcedGroup, bytes_max: int, now_ms: int) -> bool:
        """Record a fetch as forwarded, like `passes`, also behind others that may return their most; False: nothing was done."""
        if group.fetch_queue or self._place is not None:
            return False
        self._expect(group, bytes_max)
        expected_bytes = self._expected_bytes
        if group.certain_room(now_ms) < group.pending + max(self._more_bytes(group), 0) + expected_bytes:
            return False
        self.under_way.append((group, expected_bytes, bytes_max, None))
        self._summed_bytes += bytes_max - expected_bytes
        group.pending += expected_bytes
        return True

    def _more_bytes(self, group: EnforcedGroup) -> int:
        """Return how many bytes beyond the expected ones those in flight may return."""
        if self._summed is not group:
            under_way = self.under_way
            self._summed_bytes = sum(bytes_max - expected_bytes for other, expected_bytes, bytes_max, _ in under_way if other is group)
            self._summed = group
        return self._summed_bytes

    def passes(self, group: EnforcedGroup, bytes_max: int, now_ms: int) -> bool:
        """Record a fetch as forwarded if its group certainly has room for it, known without a measurement; False: nothing was done."""
        if group.fetch_queue or self._place is not None:
            return False
        self._expect(group, bytes_max)
        expected_bytes = self._expected_bytes
        if group.certain_room(now_ms) < group.pending + expected_bytes:
            return False
        self.under_way.append((group, expected_bytes, bytes_max, None))
        self._summed = None
        group.pending += expected_bytes
        return True

    def _admits_in_turn(self, group: EnforcedGroup, bytes_max: int, now_ms: int, read_ms: int, *, has_throttle_round: bool) -> bool:
        """Queue the fetch: the first one goes when the rate allows it, or at 25 s if this throttle round of the group is not taken."""
        line = group.fetch_queue
        if line is None:
            line = group.fetch_queue = group.new_fetch_queue()
        if self._line is not line or self._place is None:
            self.leave_queue()
            self._line = line
            self._place = line.join(read_ms, self._queue_changed, now_ms)
            self._expect(group, bytes_max)
            self.throttle_ms = group.predict_throttle(group.pending_at(now_ms) + self._own_bytes(group), now_ms)
        else:
            self.throttle_ms = 0
        if not has_throttle_round and not line.is_first(self._place, now_ms):
            self.wait_until_ms = now_ms + AGE_MAX_MS  # it is notified long before
            return False
        share_bytes = max(1, int(line.share_bytes(group.max_value_in_window(), now_ms)))
        self._expect(group, min(bytes_max, share_bytes))
        ahead, own_bytes = line.ahead(self._place, now_ms), self._own_bytes(group)
        throttle_ms = group.fetch_throttle_ms(own_bytes, ahead * own_bytes, now_ms)
        if throttle_ms > 0 and not has_throttle_round:
            next_round_ms = max(read_ms, group.last_throttle_round_ms) + AGE_MAX_MS
            if now_ms < next_round_ms or ahead:
                first_ms = min(now_ms + throttle_ms, group.next_expiry_ms(now_ms), group.assumed_until_ms(now_ms))
                self.wait_until_ms = first_ms if ahead else min(first_ms, next_round_ms)
                return False
            group.last_throttle_round_ms = now_ms
        if throttle_ms > 0:  # a throttle round passes no more than the bound does in its time, however long the window
            self._expect(group, min(self.bytes_max, max(1, int(group.limiting.bound * AGE_MAX_MS / 1_000))))
        return True

    def _expect(self, group: EnforcedGroup, bytes_max: int) -> None:
        """Estimate what a fetch returns: as much as this connection's last response, else the group's last one, else the most it may."""
        self.bytes_max = bytes_max
        expected_bytes = self._answer_bytes
        if expected_bytes == UNKNOWN:
            expected_bytes = bytes_max if group.fetch_answer_bytes == UNKNOWN else group.fetch_answer_bytes
        elif self._answer_bytes_max < bytes_max and 2 * expected_bytes >= self._answer_bytes_max:
            expected_bytes = max(expected_bytes, bytes_max)  # the last one was short because little was requested
        self._expected_bytes = expected_bytes

    def _own_bytes(self, group: EnforcedGroup) -> float:
        """Return the bytes that the fetch counts for itself; a response larger than a window is admitted when the window is empty."""
        return min(self._expected_bytes, group.max_value_in_window())

    def forwarded(self, group: EnforcedGroup | None) -> None:
        """Record a forwarded fetch: the one that `group` admitted, or with None one that no quota limits.

        It is counted before it leaves the queue, since the next one may wait in another process.
        """
        if group is None:
            self.enter(None, 0, INT32_MAX)
        else:
            self.enter(group, self._expected_bytes, self.bytes_max)
            group.pending += self._expected_bytes
        if self._place is not None or self.paced is not None:
            self.leave_queue()

    def enter(self, group: EnforcedGroup | None, expected_bytes: int, bytes_max: int, reservation: Reservation | None = None) -> None:
        """Add a fetch in flight; a paced group has reserved the expected bytes."""
        self.under_way.append((group, expected_bytes, bytes_max, reservation))
        self._summed = None

    def answered(self, size_bytes: int, charged: EnforcedGroup | None = None) -> int:
        """The response to the oldest fetch in flight has arrived.

        Args:
            size_bytes: bytes of the response.
            charged: the group that they count for.

        Returns:
            The bytes for which the schedule of that group has admitted the fetch; 0 if it has none.
        """
        self._answer_bytes = size_bytes
        self._summed = None
        if self.paced is not None:
            self.paced.answered_waited_ms = 0
        if not self.under_way:
            return 0
        group, expected_bytes, self._answer_bytes_max, reservation = self.under_way.pop(0)
        if group is None:
            return 0
        group.pending -= expected_bytes
        if reservation is not None:
            assert isinstance(group, PacedGroup)
            assert self.paced is not None
            self.paced.answered(group, reservation, expected_bytes, self._answer_bytes_max, size_bytes)
            return expected_bytes if group is charged and reservation.is_on_time else 0
        group.fetch_answer_bytes = size_bytes
        if group.fetch_queue and size_bytes < expected_bytes:
            group.fetch_queue.notify_first()
        return 0

    def answered_at_once(self, client: ClientQuota, size_bytes: int, now_ms: int) -> PacedGroup | None:
        """Do what `answered` does, and charge the response, in the usual case of a paced group.

        Args:
            client: whose group of fetched bytes is charged.
            size_bytes: bytes of the response.
            now_ms: monotonic milliseconds.

        Returns:
            The charged group; None: nothing was done.
        """
        under_way = self.under_way
        if not under_way:
            return None
        _, _, most, reservation = under_way[0]
        if reservation is None or size_bytes > most:
            return None
        if (
            type(reservation) is UsualReservation
            and reservation.renewed == reservation.renewals.number
            and (group := reservation.group).usual_period is not None
            and (now_ms == group.usual_ms or group.continues(now_ms))
        ):
            if size_bytes != reservation.size_bytes:
                reservation.learn(size_bytes)
            schedule, total, member = group.schedule, group.usual_total, reservation.member
            virtual_ns = schedule.virtual_ns
            schedule.virtual_ns = (virtual_ns if virtual_ns > group.usual_ns else group.usual_ns) + reservation.cost_ns
            member.virtual_ns -= reservation.back_ns if total <= 1.0 else int(reservation.back_ns * total)
            group._pending -= reservation.reserved
            group.open_fetches -= 1
            member.open_fetches -= 1
            group._unchecked_ns = 0  # what is in flight fits into the burst, so it was checked
            if group._start_ms <= now_ms < group._end_ms:
                group._value += reservation.amount
                group._last_ms = now_ms
            else:
                group._add(reservation.amount, now_ms)
        else:
            charged = self._answers_at_once(client.fetch(now_ms), size_bytes, now_ms)
            if charged is None:
                return None
            group = charged
        del under_way[0]
        self._answer_bytes, self._answer_bytes_max = size_bytes, most
        self.over_bytes = 0
        return group

    def _answers_at_once(self, group: EnforcedGroup | None, size_bytes: int, now_ms: int) -> PacedGroup | None:
        """Charge the response to the first fetch in flight in one step, if it counts for `group`, and return that."""
        reserved_of, reserved, _, reservation = self.under_way[0]
        if type(group) is not PacedGroup or reserved_of is not group or group.parent is not None or reservation is None:
            return None
        if self.is_metered and (reservation.waited_ms or not reservation.is_on_time):
            return None
        if type(reservation) is UsualReservation:
            reservation.learn(size_bytes)
        return group if group.answers_at_once(reservation.member, reserved, size_bytes, now_ms) else None

    def moved(self, replaced: Mapping[EnforcedGroup, EnforcedGroup]) -> None:
        """Groups got another pacing: what is in flight counts for the groups that continue them, and what waits is checked again."""
        for at, (group, expected_bytes, bytes_max, reservation) in enumerate(self.under_way):
            new = None if group is None else replaced.get(group)
            if group is None or new is None:
                continue
            group.pending -= expected_bytes
            new.pending += expected_bytes
            if not isinstance(new, PacedGroup):
                reservation = None
            elif reservation is not None:
                new.open_fetches += 1
                reservation = Reservation(reservation.member, reservation.fetcher, reservation.is_on_time, reservation.waited_ms)
            self.under_way[at] = (new, expected_bytes, bytes_max, reservation)
        self._summed = None
        self.leave_queue()
        if self.timed is not None:
            self.timed.moved(replaced)

    def stop_waiting(self) -> None:
        """Nothing waits here, because the connection is throttled: leave all lines."""
        self.leave_queue()
        if self.timed is not None:
            self.timed.leave_line()

    def leave_queue(self) -> None:
        """Leave the queue, because the fetch is forwarded, or waits for another reason; the next one becomes the first."""
        if self.paced is not None:
            self.paced.leave_line()
        if self._place is None:
            return
        assert self._line is not None
        self._line.leave(self._place)
        self._line = self._place = None

    def abandon(self) -> None:
        """The connection ends: remove its fetches in flight and the one that waits."""
        self.leave_queue()
        self.notify = _ignore
        if self.paced is not None:
            self.paced.end()
        if self.timed is not None:
            self.timed.abandon()
        while self.under_way:
            group, expected_bytes, _, reservation = self.under_way.pop(0)
            if group is not None:
                group.pending -= expected_bytes
                if isinstance(group, PacedGroup):
                    if reservation is not None:
                        group.open_fetches -= 1
                        reservation.fetcher.open_fetches -= 1
                    group.line.notify_first()
                elif group.fetch_queue:
                    group.fetch_queue.notify_first()

    def _queue_changed(self) -> None:
        """Check again, because there may be room now."""
        self.notify()


def _ignore() -> None:
    """Used until a connection sets `notify`."""
