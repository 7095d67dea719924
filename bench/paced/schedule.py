"""The schedule of a fetch that is charged when it goes and corrected at its answer, an alternative that ADR 12 compares.

What must hold after a correction: the schedule is the one of a
proxy that knew the size from the start. Taking the difference off the virtual time alone does not give that, since the schedule may have
been idle in the other history. So the schedule is kept as a sum and a maximum. With C the cost of all requests, and `before` that of the
requests before request j, the virtual time is

    C + max over all requests j of (time of j - before(j))

and a correction by d changes C, and the `before` of all later requests, by -d. So a maximum is needed for the requests behind each open
reservation, and none for single requests. The sum begins at the first open reservation; without one the virtual time is enough.
"""

from __future__ import annotations

from quota.paced_schedule import PacedSchedule


class Reservation:
    """A request that has passed and whose size is not known yet.

    Attributes:
        cost_ns: the cost that it was charged.
        later_ns: maximum of (time - cost before) of the requests up to the next reservation; None: there is none.
    """

    __slots__ = ("cost_ns", "later_ns")

    def __init__(self, cost_ns: int) -> None:
        self.cost_ns = cost_ns
        self.later_ns: int | None = None


class ReservingSchedule(PacedSchedule):
    """A schedule that charges a fetch when it goes, and corrects that. Times are monotonic nanoseconds, not negative.

    The guarantee of the plain schedule holds with the final costs, if no correction raised one. A correction that raises a cost adds the
    difference.
    """

    __slots__ = ("_cost_ns", "_first_ns", "_open")

    def __init__(self, burst_ns: int) -> None:
        super().__init__(burst_ns)
        self._open: list[Reservation] = []
        self._cost_ns = 0  # of the first open reservation and all requests behind it
        self._first_ns = 0  # virtual time before the first open reservation

    def charge(self, cost: int, now_ns: int) -> None:
        """Charge a request that passes now and whose cost is final."""
        if self._open:
            last = self._open[-1]
            last.later_ns = _later(last.later_ns, now_ns - self._cost_ns)
            self._cost_ns += cost
        super().charge(cost, now_ns)

    def reserve(self, cost: int, now_ns: int) -> Reservation:
        """Charge a request that passes now and that `correct` will give its final cost."""
        is_first = not self._open
        self.charge(cost, now_ns)
        if is_first:
            self._cost_ns, self._first_ns = cost, self.virtual_ns - cost
        reservation = Reservation(cost)
        self._open.append(reservation)
        return reservation

    def correct(self, reservation: Reservation, cost: int) -> None:
        """Give a reserved request its final cost, as if it had been charged that from the start; once for each reservation."""
        returned_ns = reservation.cost_ns - cost
        place = self._open.index(reservation)
        for later in self._open[place:]:
            if later.later_ns is not None:
                later.later_ns += returned_ns
        self._cost_ns -= returned_ns
        del self._open[place]
        if place:
            before = self._open[place - 1]
            before.later_ns = _later(before.later_ns, reservation.later_ns)
        elif reservation.later_ns is not None:
            self._first_ns = max(self._first_ns, reservation.later_ns)
        latest_ns = self._first_ns
        for later in self._open:
            if later.later_ns is not None and later.later_ns > latest_ns:
                latest_ns = later.later_ns
        self.virtual_ns = self._cost_ns + latest_ns


def _later(one_ns: int | None, other_ns: int | None) -> int | None:
    if one_ns is None or other_ns is None:
        return one_ns if other_ns is None else other_ns
    return max(one_ns, other_ns)
