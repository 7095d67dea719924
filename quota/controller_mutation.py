"""Controller-mutation quotas on topics and partitions created or deleted. Source: Kafka 3.8 `ControllerMutationQuotaManager`."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from quota.callbacks.callback import ClientQuotaCallback
from quota.entity import ClientQuotaType
from quota.groups.mutation_group import MutationGroup
from quota.manager import QuotaGroups

BucketGroup = TypeVar("BucketGroup", bound=MutationGroup)


class ControllerMutationQuotaManager(QuotaGroups[BucketGroup]):
    """One token bucket per group; `record_and_get_throttle_time_ms` is the strict mode.

    Args:
        starts_full: a new bucket holds its whole burst. Kafka's does, because it refills from 1970 on; a clock that starts near 0
            needs this argument.
    """

    def __init__(
        self,
        make: Callable[..., BucketGroup],
        *,
        num_samples: int = 11,
        window_ms: int = 1000,
        callback: ClientQuotaCallback | None = None,
        starts_full: bool = False,
    ) -> None:
        self._starts_full = starts_full
        super().__init__(ClientQuotaType.CONTROLLER_MUTATION, make, num_samples=num_samples, window_ms=window_ms, callback=callback)

    def _new_group(self, tags: Mapping[str, str], bound: float, now_ms: int) -> BucketGroup:
        # twice the time that fills it, so that rounding cannot leave it below the burst
        filled_since_ms = now_ms - 2 * self.num_samples * self.window_ms if self._starts_full else 0
        return self._make(
            tags, bound, num_samples=self.num_samples, window_ms=self.window_ms, created_ms=now_ms, last_update_ms=filled_since_ms
        )

    def _is_idle(self, group: BucketGroup, now_ms: int) -> bool:
        """Whether the bucket is full, as a new one is. Forgetting one that is not full would cancel its client's throttle."""
        return super()._is_idle(group, now_ms) and group.is_full(now_ms)

    def _with_parent(self, group: BucketGroup, parent: BucketGroup | None) -> BucketGroup:
        if group.parent is parent:
            return group
        made = self._made_like(group, parent)
        group.copy_to(made)
        return made
