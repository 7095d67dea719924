"""The throttles that departed connections leave and new ones take, at workers and, beside them, in a single process."""

from proxy.enforcement.groups.departed_throttles import DepartedThrottles
from proxy.enforcement.groups.enforced_groups import ThrottlingGroup
from proxy.session.throttle.departed_throttles import take_throttle
from proxy.shared_usage.departed_rows import DEPARTED_MAX


class DepartedPair:
    """Does each step at a worker's group and at the throttles of a single process.

    Attributes:
        alone: the throttles of the single process.
    """

    def __init__(self) -> None:
        self.alone = DepartedThrottles(throttles_max=DEPARTED_MAX)
        self._left_ms = 0

    def take(self, group: ThrottlingGroup, now_ms: int) -> None:
        """Assert that a new connection takes the same throttle at the worker as in the single process."""
        taken = take_throttle(group, now_ms)
        assert (0 if taken is None else taken[1]) == self.alone.take(now_ms)

    def leave(self, group: ThrottlingGroup, throttle_ms: int, now_ms: int, *, grows: bool) -> None:
        """Leave a throttle; `grows`: in place of the last one that was left."""
        instead_of_ms = self._left_ms if grows else 0
        self._left_ms = now_ms + throttle_ms
        group.leave_throttle(self._left_ms, now_ms, instead_of_ms=instead_of_ms)
        self.alone.leave(self._left_ms, now_ms, instead_of_ms=instead_of_ms)
