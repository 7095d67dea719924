"""Throttles of departed connections travel, too: a client that leaves one proxy and connects to another one serves its throttle there.

A throttle is known by its group and its end. A member publishes each throttle that a connection left there, each one that a new connection
took over there, and the end of a throttle that applies to all new connections. A throttle that two members give away within the lag of the
bus is served twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from proxy.enforcement.groups.departed_throttles import DepartedThrottles
from proxy.fleet.clock import Clock
from proxy.fleet.rows import NO_ROWS, FleetRows, Ints
from proxy.fleet.wire import NO_THROTTLES, THROTTLE, Entries

LEFT: Final = 0
TAKEN: Final = 1
FOR_ALL: Final = 2
"""Kinds of changes. LEFT: a connection left a throttle. TAKEN: a new one took it over. FOR_ALL: one applies to all new connections."""


class Change(NamedTuple):
    """A change of the throttles of a group; the end is in monotonic ms."""

    row: int
    kind: int
    until_ms: int


class FleetThrottles:
    """The throttles of all rows, as other members know them."""

    def __init__(self, rows: FleetRows) -> None:
        self._rows = rows
        self._seen: Ints = np.zeros(len(rows.generations), np.int64)
        self._seen_change = -1
        self._seen_rows: Ints = NO_ROWS
        self._generations: dict[int, int] = {}
        self._again: set[int] = set()
        self._known: dict[int, Counter[int]] = {}
        self._for_all_ms: dict[int, int] = {}
        self._bus_ms: dict[tuple[int, int], int] = {}  # by row and end: the end by the clock of the bus, which names a throttle
        self._local_ms: dict[tuple[int, int], int] = {}  # the reverse

    # --- own throttles

    def changes(self, clock: Clock, now_ms: int) -> Entries:
        """Return the entries to publish."""
        found = [change for row in self._changed_rows() for change in self._changes_of(row, now_ms)]
        if not found:
            return NO_THROTTLES
        entries = np.zeros(len(found), THROTTLE)
        for at, change in enumerate(found):
            entries[at] = (change.row, change.kind, self._name(change, clock))
        return entries

    def _changed_rows(self) -> list[int]:
        """Return the rows whose throttles have changed since the last call, and those that another process was changing then."""
        again, self._again = self._again, set()
        change, rows = self._rows.departed_change, self._rows.shared_rows()
        if change == self._seen_change and rows is self._seen_rows:
            return sorted(again)
        self._seen_change, self._seen_rows = change, rows
        numbers = self._rows.departed_changes(rows)
        changed = rows[numbers != self._seen[rows]]
        self._seen[rows] = numbers
        return sorted({*changed.tolist(), *again})

    def _changes_of(self, row: int, now_ms: int) -> Iterator[Change]:
        """Yield what has changed since the last call; throttles that have ended need no message."""
        with self._rows.segment.departed.locked(row) as throttles:
            if throttles is None:
                self._again.add(row)
                return
            present = Counter(until_ms for until_ms in throttles.until_ms if until_ms > now_ms)
            for_all_ms = throttles.for_all_until_ms
        known = self._known_of(row)
        self._known[row] = present
        for until_ms in (present - known).elements():
            yield Change(row, LEFT, until_ms)
        for until_ms in (known - present).elements():
            if until_ms > now_ms and for_all_ms <= now_ms:
                yield Change(row, TAKEN, until_ms)
        if for_all_ms <= now_ms:
            self._for_all_ms.pop(row, None)
        elif for_all_ms > self._for_all_ms.get(row, 0):
            self._for_all_ms[row] = for_all_ms
            yield Change(row, FOR_ALL, for_all_ms)

    def _known_of(self, row: int) -> Counter[int]:
        """Return the ends that are known in a row; none if the row belongs to another group than before."""
        generation = int(self._rows.generations[row])
        if self._generations.get(row) != generation:
            self._generations[row] = generation
            self._known.pop(row, None)
            self._for_all_ms.pop(row, None)
        return self._known.setdefault(row, Counter())

    def _name(self, change: Change, clock: Clock) -> int:
        """Return the end by the clock of the bus. A throttle keeps the one with which it was published first."""
        bus_ms = self._bus_ms.get((change.row, change.until_ms))
        if bus_ms is None:
            bus_ms = clock.bus(change.until_ms)
            self._note(change.row, change.until_ms, bus_ms)
        return bus_ms

    def _note(self, row: int, until_ms: int, bus_ms: int) -> None:
        self._bus_ms[row, until_ms], self._local_ms[row, bus_ms] = bus_ms, until_ms

    def expire(self, now_ms: int) -> None:
        """Forget throttles that have ended, and their names."""
        for row in [row for row, known in self._known.items() if all(until_ms <= now_ms for until_ms in known)]:
            del self._known[row]
        for (row, until_ms), bus_ms in list(self._bus_ms.items()):
            if until_ms <= now_ms:
                del self._bus_ms[row, until_ms]
                self._local_ms.pop((row, bus_ms), None)

    # --- throttles of other members

    def take(self, row: int, kind: int, bus_ms: int, clock: Clock, now_ms: int) -> None:
        """Apply a change of another member."""
        until_ms = self._local_ms.get((row, bus_ms), clock.local(bus_ms))
        if until_ms <= now_ms:
            return
        with self._rows.segment.departed.locked(row) as throttles:
            if throttles is not None:
                self._apply(throttles, Change(row, kind, until_ms), bus_ms, now_ms)

    def _apply(self, throttles: DepartedThrottles, change: Change, bus_ms: int, now_ms: int) -> None:
        row, kind, until_ms = change
        known = self._known_of(row)
        if kind == FOR_ALL:
            throttles.leave_to_all(until_ms, now_ms)
            self._for_all_ms[row] = throttles.for_all_until_ms
        elif kind == LEFT:
            throttles.leave(until_ms, now_ms)
            known[until_ms] += 1
            self._note(row, until_ms, bus_ms)
        elif until_ms in throttles.until_ms:
            throttles.until_ms.remove(until_ms)
            known[until_ms] -= 1
