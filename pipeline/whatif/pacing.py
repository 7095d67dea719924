"""Replays requests through the schedule of a paced group, in the order in which they came."""

from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from pipeline.replay.rows import Flags, Floats, Ints
from pipeline.whatif.closed import Answer
from quota.entity import UNLIMITED
from quota.paced_costs import costs_ns, leads_before_ns
from quota.paced_schedule import BYTES_NS, HANDLER_TIME_NS, MS_NS, PacedSchedule, cost_ns, ms_after
from quota.throttle import INT32_MAX

PACED: Final = "paced"
WINDOW: Final = "window"
REQUEST: Final = "Request"
PACED_TYPES: Final = ("Produce", "Fetch", REQUEST)
_REACH_NS_MAX: Final = 2.0**62


class Pacing(msgspec.Struct, frozen=True):
    """How groups of produced bytes, fetched bytes and request time are enforced in a what-if.

    Attributes:
        choice: PACED or WINDOW for all of them; None: each as recorded.
        burst_ms: burst of the schedules in ms; None: as recorded.
    """

    choice: str | None = None
    burst_ms: int | None = None

    def paces(self, quota_type: str, *, recorded: bool) -> bool:
        """Return whether a group is replayed by a schedule; `recorded`: whether it had one."""
        return quota_type in PACED_TYPES and (recorded if self.choice is None else self.choice == PACED)


def unit_of(quota_type: str) -> int:
    """Return the `unit_ns` of `cost_ns` for a quota type."""
    return HANDLER_TIME_NS if quota_type == REQUEST else BYTES_NS


def pacing_of(quota_type: str, *, paced: bool) -> str:
    """Return the name of a group's pacing; empty for quota types that have none."""
    return "" if quota_type not in PACED_TYPES else PACED if paced else WINDOW


def schedule_waits(came_ms: Ints, value: Ints, checked: Flags, bound: Floats | float, burst_ms: int, unit_ns: int = BYTES_NS) -> Ints:
    """Return the wait in ms of every request of one group, at most 2^31 - 1.

    A request waits until the schedule is at most the burst ahead of the clock, in whole ms. While one waits, the schedule is ahead of the
    clock and moves on by costs alone. So the schedule before a request that passes late is the same as if it was charged when it came, and
    the wait follows from the lead at that time.

    Args:
        came_ms: when each request came; ascending.
        value: bytes, or nanoseconds of handler time, of each; negative for bytes that are taken back.
        checked: False for requests that pass whatever the schedule is. They are charged, as in the proxy.
        bound: bytes per second, or percent of one thread, of all or of each.
        unit_ns: as in `cost_ns`.
    """
    if not len(came_ms):
        return np.zeros(0, np.int64)
    times_ns = (came_ms - came_ms[0]) * MS_NS
    bounds = np.broadcast_to(np.asarray(bound, np.float64), (len(value),))
    costs = np.sign(value) * costs_ns(np.abs(value), np.where(bounds >= UNLIMITED, np.inf, bounds), unit_ns)
    is_far = float(np.abs(costs).sum(dtype=np.float64)) + float(times_ns[-1]) >= _REACH_NS_MAX
    leads = _leads_one_by_one(times_ns, costs) if is_far else leads_before_ns(times_ns, costs, 0)
    waits_ms = -(-np.maximum(leads - burst_ms * MS_NS, 0) // MS_NS)
    waits: Ints = np.where(checked, np.minimum(waits_ms, INT32_MAX), 0)
    return waits


def _leads_one_by_one(times_ns: Ints, costs: Ints) -> Ints:
    """Return the lead before each request where the sum of costs exceeds 63 bits; leads are limited to 2^62 ns."""
    schedule, leads = PacedSchedule(0), []
    for now_ns, cost in zip(times_ns.tolist(), costs.tolist(), strict=True):
        leads.append(min(schedule.lead_ns(now_ns), int(_REACH_NS_MAX)))
        schedule.charge(cost, now_ns)
    return np.array(leads, np.int64)


def schedule_under(
    bound: float | Floats, burst_ms: int, value: Ints, checked: Flags, unit_ns: int = BYTES_NS
) -> Callable[[int, int], Answer]:
    """Return the function `decide` for `play`: a schedule with this bound, or with the bound of each request."""
    schedule, amounts, is_checked = PacedSchedule(burst_ms * MS_NS), value.tolist(), checked.tolist()
    bounds = [bound] * len(amounts) if isinstance(bound, float) else bound.tolist()

    def decide(event: int, now_ms: int) -> Answer:
        now_ns, amount = now_ms * MS_NS, amounts[event]
        wait_ms = min(ms_after(schedule.wait_ns(now_ns)), INT32_MAX) if is_checked[event] else 0
        cost = 0 if bounds[event] >= UNLIMITED else cost_ns(abs(amount), bounds[event], unit_ns)
        schedule.charge(cost if amount >= 0 else -cost, now_ns)
        return wait_ms, True

    return decide
