"""A group of request time with a schedule."""

from __future__ import annotations

from typing import Final

from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.paced.group import PacedGroup
from quota.entity import UNLIMITED
from quota.paced_schedule import HANDLER_TIME_NS

NS_PER_PERCENT_SECOND: Final = 1e7


class PacedTimeGroup(PacedGroup):
    """A group whose requests pass by a schedule of handler time.

    The sensor measures percent of one thread, as in a window. The schedule, `pending` and the charges of members are in nanoseconds of
    handler time. That of a request is known after its response. So a request reserves an estimate, and is charged at its response.
    """

    __slots__ = ()

    unit_ns = HANDLER_TIME_NS

    def units_of(self, amount: float) -> int:
        """Return percent-seconds as nanoseconds of handler time."""
        return round(amount * NS_PER_PERCENT_SECOND)


def limited_time_group(group: EnforcedGroup | None) -> PacedTimeGroup | None:
    """Return a group of request time with a schedule that has a bound, or a parent that may have one."""
    return group if isinstance(group, PacedTimeGroup) and (group.bound < UNLIMITED or group.parent is not None) else None
