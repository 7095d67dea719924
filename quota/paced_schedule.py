"""The schedule of a group with paced enforcement: when its next request may pass.

The schedule is a virtual time, in whole nanoseconds. A request moves it on by its cost, the time that the bound takes for its amount. The
next request passes when the schedule is at most the burst ahead of the clock. An idle schedule does not fall behind the clock. Source: the
Generic Cell Rate Algorithm in its virtual scheduling form (ITU-T I.371), with a burst by time instead of cells.
"""

from __future__ import annotations

from typing import Final

SECOND_NS: Final = 1_000_000_000
MS_NS: Final = 1_000_000
BURST_MS: Final = 1_000
"""The burst unless another one is configured."""
BYTES_NS: Final = SECOND_NS
"""Cost of one unit at a bound of 1 unit per second."""
HANDLER_TIME_NS: Final = 100
"""Cost of one nanosecond of handler time at a bound of 1 percent of one thread."""
ENDLESS_NS: Final = 1 << 60
"""Cost of a request whose bound is not above 0, and the highest cost: 36 years."""


def cost_ns(amount: int, bound: float, unit_ns: int = BYTES_NS) -> int:
    """Return the nanoseconds that `bound` takes for `amount`, rounded up: ceil(amount x unit_ns / bound), exact for every double.

    Args:
        amount: bytes, or nanoseconds of handler time; not negative.
        bound: bytes per second, or percent of one thread. An infinite bound costs nothing. A bound of 0, below 0 or NaN costs `ENDLESS_NS`.
        unit_ns: `BYTES_NS` or `HANDLER_TIME_NS`.
    """
    if bound == float("inf"):
        return 0
    if not bound > 0.0:
        return ENDLESS_NS
    numerator, denominator = bound.as_integer_ratio()
    return min(-(-amount * unit_ns * denominator // numerator), ENDLESS_NS)


def rescaled_ns(lead_ns: int, before: float, after: float) -> int:
    """Return the lead of a schedule when its bound changes: the time that the new bound takes for the same amount, rounded up.

    A bound that is not above 0, or not finite, changes no lead.
    """
    if before == after or not (0.0 < before < float("inf") and 0.0 < after < float("inf")):
        return lead_ns
    (old, of_old), (new, of_new) = before.as_integer_ratio(), after.as_integer_ratio()
    return min(-(-lead_ns * old * of_new // (of_old * new)), ENDLESS_NS)


def ms_after(time_ns: int) -> int:
    """Return nanoseconds as milliseconds, rounded up: the first millisecond that is not before them."""
    return -(-time_ns // MS_NS)


class PacedSchedule:
    """The schedule of one group. Times are nanoseconds of one clock that does not go back.

    Guaranteed: in any span of L seconds, requests that waited for `wait_ns` to be 0 cost at most L plus the burst plus the cost of one.
    """

    __slots__ = ("burst_ns", "virtual_ns")

    def __init__(self, burst_ns: int) -> None:
        self.burst_ns = burst_ns
        self.virtual_ns = 0  # when the bound has passed everything; in the past: the schedule is idle

    def lead_ns(self, now_ns: int) -> int:
        """Return how far the schedule is ahead of the clock; 0: it is idle."""
        return max(0, self.virtual_ns - now_ns)

    def wait_ns(self, now_ns: int) -> int:
        """Return how long the next request has to wait; 0: it may pass now."""
        return max(0, self.virtual_ns - self.burst_ns - now_ns)

    def charge(self, cost: int, now_ns: int) -> None:
        """Charge a request that passes now."""
        self.virtual_ns = max(self.virtual_ns, now_ns) + cost
