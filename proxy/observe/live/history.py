"""Fifteen minutes of history, a point every five seconds, for the 1,000 groups that waited last or were looked at last.

Each group has three rings of 180 numbers of four bytes. All of them with their keys
take less than `HISTORY_BYTES_MAX`; a test measures it.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from proxy.observe.rows.group_rows import Cursor
from proxy.observe.rows.live_rows import LiveRow, give_way

POINT_MS: Final = 5_000
"""Time between two points."""
POINTS: Final = 180
GROUPS_MAX: Final = 1_000
LOOKED_AT_MAX: Final = 400
"""Groups that are kept because somebody looked at them, so that a viewer cannot displace all groups that wait."""
POINTS_A_MINUTE: Final = 60_000 // POINT_MS
_NOTHING: Final = array("f", [math.nan]) * POINTS


class Point(NamedTuple):
    """A group at one time.

    Attributes:
        rate, bound: units per second; NaN: not known, and without a bound.
        waited_ms: throttle time of the verdicts since the point before.
    """

    rate: float
    bound: float
    waited_ms: float


class _Kept:
    """The rings of one group; the place of a point is its number modulo their length."""

    __slots__ = ("bounds", "has_waited", "rates", "throttle_ms_total", "used_ms", "waits")

    def __init__(self) -> None:
        self.rates, self.bounds, self.waits = _NOTHING[:], _NOTHING[:], _NOTHING[:]
        self.throttle_ms_total: float | None = None
        self.used_ms = 0  # when the group waited last, or was looked at last
        self.has_waited = False


class History:
    """Keeps points. `record` adds one for every group that it is given; it runs in a thread, and one at a time."""

    def __init__(self) -> None:
        self._kept: dict[Cursor, _Kept] = {}
        self._looked_at: dict[Cursor, None] = {}  # the one looked at last is the last
        self._asked: dict[Cursor, int] = {}
        self._at = -1
        self.last_ms: int | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time for the next point."""
        return self.last_ms is None or now_ms // POINT_MS > self.last_ms // POINT_MS

    def record(self, rows: Iterable[LiveRow], now_ms: int) -> None:
        """Add a point for the kept groups, and for those that waited; groups that waited before all others make room."""
        self._advance(now_ms)
        self._add_asked()
        for at, row in enumerate(rows):
            give_way(at)
            if not row.throttled_until_ms and not self._looked_at:
                continue
            place = row.place
            kept = self._kept.get(place)
            if kept is None:
                if not row.throttled_until_ms:
                    continue
                kept = self._kept[place] = _Kept()
            kept.used_ms = max(kept.used_ms, row.throttled_until_ms)
            kept.has_waited |= row.throttled_until_ms > 0
            self._add(kept, row)
        for place in heapq.nsmallest(len(self._kept) - GROUPS_MAX, self._kept, key=lambda one: self._kept[one].used_ms):
            del self._kept[place]
            self._looked_at.pop(place, None)

    def look_at(self, place: Cursor, now_ms: int) -> None:
        """Keep points of a group from the next one on, also when it never waited.

        It may be called while a thread records: the next record adds the group.
        """
        self._asked[place] = now_ms

    def points(self, place: Cursor, count: int) -> list[Point]:
        """Return the newest points of a group, the oldest first; without those before its first one."""
        kept = self._kept.get(place)
        if kept is None or self._at < 0:
            return []
        found = [self._point(kept, number % POINTS) for number in range(max(0, self._at - count + 1), self._at + 1)]
        begin = next((at for at, point in enumerate(found) if not math.isnan(point.rate)), len(found))
        return found[begin:]

    def waited_ms_a_minute(self) -> Mapping[Cursor, float]:
        """Return the throttle time of the last minute of every group that has one."""
        numbers = [number % POINTS for number in range(max(0, self._at - POINTS_A_MINUTE + 1), self._at + 1)]
        sums: dict[Cursor, float] = {}
        for at, (place, kept) in enumerate(self._kept.items()):
            give_way(at)
            waits = [kept.waits[number] for number in numbers]
            waited_ms = sum(0.0 if math.isnan(wait) else wait for wait in waits)
            if waited_ms:
                sums[place] = waited_ms
        return sums

    def _add_asked(self) -> None:
        """Keep the groups that somebody looked at; of those that never waited the ones looked at last."""
        asked, self._asked = self._asked, {}
        for place, now_ms in asked.items():
            kept = self._kept.setdefault(place, _Kept())
            kept.used_ms = max(kept.used_ms, now_ms)
            self._looked_at.pop(place, None)
            self._looked_at[place] = None
        for place in list(self._looked_at)[: max(0, len(self._looked_at) - LOOKED_AT_MAX)]:
            del self._looked_at[place]
            if not self._kept[place].has_waited:
                del self._kept[place]

    def _advance(self, now_ms: int) -> None:
        """Begin the next point; points that were missed have no values."""
        missed = 0 if self.last_ms is None else now_ms // POINT_MS - self.last_ms // POINT_MS - 1
        self.last_ms = now_ms
        for _ in range(min(max(missed, 0), POINTS) + 1):
            self._at += 1
            at = self._at % POINTS
            for kept in self._kept.values():
                kept.rates[at] = kept.bounds[at] = kept.waits[at] = math.nan

    def _add(self, kept: _Kept, row: LiveRow) -> None:
        at = self._at % POINTS
        kept.rates[at] = row.observed
        kept.bounds[at] = row.bound if row.is_limited else math.nan
        before = kept.throttle_ms_total
        kept.waits[at] = 0.0 if before is None else max(0.0, row.throttle_ms_total - before)
        kept.throttle_ms_total = row.throttle_ms_total

    def _point(self, kept: _Kept, at: int) -> Point:
        return Point(kept.rates[at], kept.bounds[at], kept.waits[at])
