"""Controller mutations of other members of the fleet, for the buckets in the supervisor.

Workers publish the mutations that they count in the rows of the groups, and the hub writes those of the other members there. The
supervisor charges its buckets with what is new before each step. A bucket that is used for the first time is charged with the usage of the
last windows, at its times.
"""

from __future__ import annotations

from proxy.enforcement.quota_scopes import CLUSTER
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.segment_row import SegmentRow
from proxy.shared_usage.shared_usage import group_digest
from quota.entity import ClientQuotaType
from quota.groups.group import GroupKey

MUTATION = ClientQuotaType.CONTROLLER_MUTATION.value


class FleetMutations:
    """What other members used of each bucket.

    Args:
        segment: with a fleet.
        fleet_key: key of the digests of groups.
    """

    def __init__(self, segment: Segment, fleet_key: bytes) -> None:
        assert segment.fleet is not None
        self._segment = segment
        self._fleet = segment.fleet
        self._fleet_key = fleet_key
        self._rows: dict[GroupKey, SegmentRow] = {}
        self._seen: dict[GroupKey, int] = {}

    def used(self, key: GroupKey, now_ms: int) -> list[tuple[int, int]]:
        """Return (time in monotonic ms, mutations) of what other members used since the last call, oldest first."""
        row = self._row(key)
        if row is None:
            return []
        total = row.used()[self._fleet]
        seen = self._seen.get(key)
        self._seen[key] = total
        if seen is None:
            return sorted(row.sums(self._fleet))
        return [(now_ms, total - seen)] if total > seen else []

    def _row(self, key: GroupKey) -> SegmentRow | None:
        row = self._rows.get(key)
        if row is not None and row.is_held():
            return row
        number = self._segment.find(group_digest(CLUSTER, MUTATION, key, self._fleet_key))
        if number < 0:
            return None
        self._seen.pop(key, None)
        row = self._rows[key] = SegmentRow(self._segment, number, self._fleet, CLUSTER)
        return row

    def skip(self, key: GroupKey) -> None:
        """A bucket is continued, which contains what was used until now."""
        row = self._row(key)
        if row is not None:
            self._seen[key] = row.used()[self._fleet]

    def forget(self, key: GroupKey) -> None:
        """A bucket is full and removed: what was used before no longer matters."""
        self._rows.pop(key, None)
