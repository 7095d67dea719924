"""The shared numbers of one group, as the workers of a machine and the members of a fleet see them: the interface of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.shared_usage.assumption import Elsewhere
from proxy.shared_usage.shared_throttles import ThrottleRow, ThrottleRows
from quota.groups.group import GroupKey

OnRemote = Callable[[EnforcedGroup, int, int, int, int, int], None]
"""Called with usage of another process: (group, worker, amount, that worker's total after it, ms, kind).

The kind is `REMOTE` of `metering_format.event_kinds` when it is recorded here at that time, or `SKIPPED` when it is older than all samples.
A group that begins to use a row skips 0 units of its own worker, with the total in the row.
"""


class UsageRow(ThrottleRow, Protocol):
    """One group's row: for each worker a total, sums by slots of time, usage in flight, waiting fetches, and its last throttle round.

    Its numbers, each for all workers: total usage since the row began; usage in flight; number of waiting fetches; time of the
    oldest of them, 0: none; size of the last response to a fetch plus one, 0: none. In a fleet the notes of the hub follow.
    """

    scope_key: str
    """The scope for which the row was claimed."""

    def used(self) -> list[int]:
        """Return the numbers of the row."""

    def sums(self, worker: int) -> Iterator[tuple[int, int]]:
        """Yield (start of the slot in ms, the worker's usage in it), newest first."""

    def publish(self, total: int, amount: int, time_ms: int) -> None:
        """Set this worker's total; `amount` of it was used at `time_ms`."""

    def publish_more(self, amount: int, time_ms: int) -> None:
        """Add `amount`, used at `time_ms`, to this worker's total."""

    def take_elsewhere(self) -> int:
        """Return what other members of the fleet have used since the last call of any worker."""

    def publish_under_way(self, amount: int) -> None:
        """Set this worker's usage in flight."""

    def publish_waiting(self, count: int, front: int) -> None:
        """Set this worker's number of waiting fetches; `front` is the time of the oldest, 0: none."""

    def is_front(self, now_ms: int) -> bool:
        """Whether no awake worker has an older waiting fetch than this one."""

    @property
    def fetch_times(self) -> int:
        """The number of times for `publish_fetch_times`; 0: they are not needed."""

    def publish_fetch_times(self, times: Sequence[int]) -> None:
        """Set the times of this worker's waiting fetches, each that in the middle of one of equal parts of the queue."""

    def older_in_fleet(self, time: int, now_ms: int) -> int:
        """Return how many fetches wait at other members of the fleet since before `time`."""

    def under_way(self) -> int:
        """Return the usage in flight of all workers."""

    def publish_answer(self, size_bytes: int) -> None:
        """Set the size of this worker's last response to a fetch."""

    def publish_window_max(self, amount: int) -> None:
        """Set the most that the bound allows in a window, in the unit of totals."""

    def elsewhere(self) -> Elsewhere:
        """Return what is known about the usage of other members of the fleet."""

    def last_throttle_round_ms(self) -> int:
        """Return the time of the last throttle round of any worker, in monotonic ms."""

    def publish_throttle_round(self, throttle_round_ms: int) -> None:
        """Set the time of this worker's last throttle round, in monotonic ms."""


class UsageRows(ThrottleRows, Protocol):
    """The rows of the groups of one quota type in one scope."""

    scope_key: str
    workers: int
    worker: int
    processes: int
    """Number of workers of one supervisor; `workers` is that of the cells in a row."""
    slot_ms: int
    units: float
    """Units of the quota for one unit of a total."""
    per_unit: float
    under_way_per_unit: float
    """As `per_unit`, for usage in flight: a power of two, so that subtraction leaves 0."""
    assumes_at_record: bool
    """Whether usage of other members of the fleet that is not known yet is assumed when usage is recorded."""

    @property
    def on_remote(self) -> OnRemote | None:
        """The callback for usage of other processes."""

    def claim(self, key: GroupKey, now_ms: int) -> UsageRow | int:
        """Return the row of a group, or the time in ms after which to request it again."""

    fleet: int | None
    """Number of the cells with the usage of the other members of the fleet; None: there is no fleet."""

    def claim_member(self, key: GroupKey, name: str, now_ms: int, *, is_of_fleet: bool = False) -> UsageRow | int:
        """Return a row about a member of a paced group, or the time in ms after which to request it again.

        Args:
            is_of_fleet: whether the fleet shares the row.
        """

    def is_unresponsive(self, worker: int, now_ms: int) -> bool:
        """Whether no other worker waits for a worker."""
