"""One worker's part of the shared usage: the rows of its groups, and the groups that may have usage to publish."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Final

from proxy.base.clock import now_ms
from proxy.enforcement.groups.group_factory import MakeGroup
from proxy.shared_usage.assumption import is_shared_scope
from proxy.shared_usage.fleet_groups import fleet_group
from proxy.shared_usage.paced.groups import SharedPacedGroup, SharedPacedTimeGroup
from proxy.shared_usage.segment import DIGEST_BYTES, FULL, Segment
from proxy.shared_usage.segment_row import SegmentRow
from proxy.shared_usage.shared_groups import shared_group
from proxy.shared_usage.shared_throttles import Publisher
from proxy.shared_usage.usage_row import OnRemote, UsageRow
from quota.entity import ClientQuotaType
from quota.groups.group import GroupKey
from quota.request_time import PERCENT_PER_NANOSECOND

UNDER_WAY_PER_PERCENT_SECOND: Final = 2.0**24
"""Precision of times, as in `RequestsAhead`."""
NS_PER_PERCENT_SECOND: Final = 1e7
FLEET_BIT: Final = 1
"""The bit of a digest's first byte that is set if the fleet shares the group's usage."""
MEMBER_TAG: Final = "member of the group"
FULL_RETRY_MS: Final = 1_000
"""Time after which a group without a row requests one again."""


class SharedUsage:
    """The shared usage of one worker.

    Attributes:
        on_unpublished: called with a number of milliseconds after which `publish_noted` is due with the same number.
        numbers: numbers of the workers of the same supervisor.
        on_row_refused: called when a group requested a row and none was free; it counts alone and asks again after `FULL_RETRY_MS`.
        fleet_key: as given.

    Args:
        segment: the shared memory.
        worker: number of this process, from 0; usage of an earlier process with this number stays counted.
        on_remote: called with each record of usage of another process.
        numbers: numbers of the workers of the same supervisor; empty: all numbers in the segment.
        fleet_key: key of the digests of groups, the same for all members of the fleet; empty: there is no fleet.
    """

    __slots__ = ("_noted", "fleet_key", "numbers", "on_remote", "on_row_refused", "on_unpublished", "segment", "worker")

    def __init__(
        self, segment: Segment, worker: int, on_remote: OnRemote | None = None, numbers: Sequence[int] = (), fleet_key: bytes = b""
    ) -> None:
        self.segment = segment
        self.numbers = list(numbers or range(segment.workers))
        self.worker = worker
        self.on_remote = on_remote
        self.on_unpublished: Callable[[int], None] = _ignore
        self.on_row_refused: Callable[[], None] = _do_nothing
        self._noted: dict[int, dict[Publisher, None]] = {}  # a group that waits for both times is in both, and in each once
        self.fleet_key = fleet_key
        segment.enter(worker, now_ms())

    def of_scope(self, scope_key: str) -> SharedScope:
        """Return the factory of a scope's groups."""
        return SharedScope(self, scope_key)

    def publish_all(self, now_ms: int) -> None:
        """Publish all usage that was recorded and is not published yet."""
        for within_ms in list(self._noted):
            self.publish_noted(within_ms, now_ms)

    def publish_noted(self, within_ms: int, now_ms: int) -> None:
        """Publish the usage of the groups that were noted with this number of milliseconds."""
        for group in self._noted.pop(within_ms, ()):
            group.publish(now_ms)

    def publish_from(self, within_ms: int, now_ms: int) -> None:
        """Publish the usage of the groups that were noted with this number of milliseconds or more."""
        for noted_ms in [noted_ms for noted_ms in self._noted if noted_ms >= within_ms]:
            self.publish_noted(noted_ms, now_ms)

    def note_unpublished(self, group: Publisher, within_ms: int) -> None:
        """Publish `group` in the next `publish_noted` with this number of milliseconds."""
        noted = self._noted.get(within_ms)
        if noted is None:
            self._noted[within_ms] = {group: None}
            self.on_unpublished(within_ms)
        else:
            noted[group] = None

    def claim(self, quota_type: str, key: GroupKey, scope_key: str, now_ms: int) -> UsageRow | int:
        """Return the row of a group, or the time in ms after which to request it again."""
        row = self.segment.claim(group_digest(scope_key, quota_type, key, self.fleet_key), self.worker, now_ms)
        if row >= 0:
            return SegmentRow(self.segment, row, self.worker, scope_key)
        if row == FULL:
            self.on_row_refused()
            return FULL_RETRY_MS
        return 0

    def claim_broker(self, address: tuple[str, int]) -> memoryview | None:
        """Return the cells of all workers for the broker at an address; None: none are free now."""
        return self.segment.claim_broker(blake2b(repr(address).encode(), digest_size=DIGEST_BYTES).digest())


class SharedScope:
    """Creates the groups of one scope in one worker."""

    __slots__ = ("_rows", "_scope_key", "_usage")

    def __init__(self, usage: SharedUsage, scope_key: str) -> None:
        self._usage = usage
        self._scope_key = scope_key
        self._rows: list[ScopeRows] = []

    def maker(self, quota_type: ClientQuotaType) -> MakeGroup:
        """Return the function that creates the groups of one quota type."""
        rows = ScopeRows(self._usage, self._scope_key, quota_type)
        self._rows.append(rows)
        return partial(shared_group if rows.fleet is None else fleet_group, rows=rows)

    def paced_maker(self, quota_type: ClientQuotaType) -> MakeGroup:
        """Return the function that creates the groups of one quota type with a schedule."""
        rows = ScopeRows(self._usage, self._scope_key, quota_type, is_paced=True)
        self._rows.append(rows)
        return partial(SharedPacedTimeGroup if quota_type is ClientQuotaType.REQUEST else SharedPacedGroup, rows=rows)

    def rescope(self, scope_key: str) -> None:
        """Use rows of another name of the scope for the groups from their next records on."""
        self._scope_key = scope_key
        for rows in self._rows:
            rows.scope_key = scope_key


class ScopeRows:
    """The rows of the groups of one quota type in one scope. Totals are nanoseconds for request time, bytes for other types.

    Requests of a paced group of request time reserve handler time in nanoseconds, as fetches reserve bytes.
    """

    __slots__ = (
        "_quota_type",
        "_usage",
        "assumes_at_record",
        "fleet",
        "per_unit",
        "processes",
        "scope_key",
        "slot_ms",
        "under_way_per_unit",
        "units",
        "worker",
        "workers",
    )

    def __init__(self, usage: SharedUsage, scope_key: str, quota_type: ClientQuotaType, *, is_paced: bool = False) -> None:
        is_time = quota_type is ClientQuotaType.REQUEST
        self._usage = usage
        self._quota_type = quota_type.value
        self.scope_key = scope_key
        self.workers = usage.segment.workers
        self.worker = usage.worker
        self.processes = len(usage.numbers)
        self.fleet = usage.segment.fleet
        self.assumes_at_record = not (quota_type is ClientQuotaType.FETCH or (is_time and is_paced))
        self.slot_ms = usage.segment.slot_ms
        self.units = PERCENT_PER_NANOSECOND if is_time else 1.0
        self.per_unit = NS_PER_PERCENT_SECOND if is_time else 1.0
        self.under_way_per_unit = UNDER_WAY_PER_PERCENT_SECOND if is_time and not is_paced else 1.0

    @property
    def on_remote(self) -> OnRemote | None:
        """The callback for usage of other processes."""
        return self._usage.on_remote

    def claim(self, key: GroupKey, now_ms: int) -> UsageRow | int:
        """Return the row of a group, or the time in ms after which to request it again."""
        return self._usage.claim(self._quota_type, key, self.scope_key, now_ms)

    def claim_member(self, key: GroupKey, name: str, now_ms: int, *, is_of_fleet: bool = False) -> UsageRow | int:
        """Return a row about a member of a paced group, or the time in ms as in `claim`; the fleet shares none of the others."""
        scope_key = self.scope_key if is_of_fleet else f"{self.scope_key}:"
        return self._usage.claim(self._quota_type, (*key, (MEMBER_TAG, name)), scope_key, now_ms)

    def is_unresponsive(self, worker: int, now_ms: int) -> bool:
        """Whether no other worker waits for a worker."""
        return self._usage.segment.is_unresponsive(worker, now_ms)

    def note_unpublished(self, group: Publisher, within_ms: int) -> None:
        """Publish `group` within this number of milliseconds."""
        self._usage.note_unpublished(group, within_ms)


def group_digest(scope_key: str, quota_type: str, key: GroupKey, fleet_key: bytes = b"") -> bytes:
    """Return the digest of a group; its first bit shows whether the fleet shares the group's usage."""
    named = repr((scope_key, quota_type, key)).encode("utf-8", "surrogatepass")
    digest = blake2b(named, key=fleet_key, digest_size=DIGEST_BYTES).digest()
    is_shared = bool(fleet_key) and is_shared_scope(scope_key)
    return bytes([digest[0] & ~FLEET_BIT | (FLEET_BIT if is_shared else 0)]) + digest[1:]


def _ignore(_within_ms: int) -> None:
    """Do nothing: the default of `on_unpublished`."""


def _do_nothing() -> None:
    """Do nothing: the default of `on_row_refused`."""
