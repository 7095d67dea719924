"""The groups of the live page, and the events that describe them: one with everything, and one with the changes of a second.

An event is JSON. A group is an array: its number, its texts (`TEXTS`), its numbers (`NUMBERS`). A change has only number and numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from proxy.observe.live.history import POINT_MS
from proxy.observe.rows.group_rows import TYPES, Cursor
from proxy.observe.rows.live_rows import LiveGroups, LiveRow, give_way

TEXTS: Final = ("broker", "quota_type", "name", "tags", "rule")
NUMBERS: Final = ("bound", "observed", "throttled_until_ms", "throttle_count", "waited_ms_a_minute", "connections")
_DIGITS: Final = 4
"""Digits of a rate: without rounding, rates that fall slowly would change in every second."""

Numbers = tuple[float | None, ...]


class _Entry:
    """A group as the viewers know it."""

    __slots__ = ("number", "numbers", "place", "row", "seq", "texts", "waited_ms")

    def __init__(self, number: int, place: Cursor, row: LiveRow, waited_ms: float) -> None:
        self.number = number
        self.place = place
        self.seq = 0
        self.row = row
        self.waited_ms = waited_ms
        self.texts = json.dumps([row.broker, TYPES[row.type_at], row.name, row.tags, row.rule])[1:-1]
        self.numbers = _numbers_of(row, waited_ms)

    def takes(self, row: LiveRow, waited_ms: float) -> bool:
        """Replace the numbers; return whether a viewer sees a change."""
        if row is self.row and waited_ms == self.waited_ms:
            return False
        before, self.row, self.waited_ms = self.numbers, row, waited_ms
        self.numbers = _numbers_of(row, waited_ms)
        return self.numbers != before


class LiveTable:
    """What the viewers know. Its methods run in a thread, one at a time.

    Attributes:
        seq: number of the last event.
    """

    def __init__(self) -> None:
        self._entries: dict[Cursor, _Entry] = {}
        self._by_row: dict[int, _Entry] = {}  # by the identity of the row, which most groups keep; a place takes longer to compare
        self._places: dict[int, Cursor] = {}
        self._next_number = 1
        self._head: dict[str, Any] = {}
        self._left_out = 0
        self.seq = 0

    def clear(self) -> None:
        """Forget all groups and values; numbers go on."""
        self._entries, self._by_row, self._places, self._head = {}, {}, {}, {}

    def place_of(self, number: int) -> Cursor | None:
        """Return the place of a group by its number; None: the table has no such group."""
        return self._places.get(number)

    def update(self, groups: LiveGroups, head: Mapping[str, Any], waited_ms: Mapping[Cursor, float]) -> bytes:
        """Replace the state; return the event with the changes.

        Args:
            groups: all groups that are shown.
            head: the values above the groups.
            waited_ms: throttle time of the last minute, by group.
        """
        self.seq += 1
        added: list[str] = []
        changed: list[str] = []
        for at, row in enumerate(groups.rows):
            give_way(at)
            entry = self._by_row.get(id(row)) or self._entries.get(row.place)
            waited = waited_ms.get(row.place if entry is None else entry.place, 0.0)
            if entry is None or (entry.row.name, entry.row.rule) != (row.name, row.rule):
                entry = self._new_entry(row, waited, entry)
                added.append(_whole(entry))
            elif entry.takes(row, waited):
                changed.append(_encoded([entry.number, *entry.numbers]))
            entry.seq = self.seq
        removed = self._remove_others(len(groups.rows))
        self._by_row = {id(entry.row): entry for entry in self._entries.values()}
        self._left_out = groups.left_out
        new_head = {key: value for key, value in head.items() if self._head.get(key) != value}
        self._head = dict(head)
        parts = {"added": f"[{','.join(added)}]", "changed": f"[{','.join(changed)}]", "removed": _encoded(removed)}
        return _event("changes", self.seq, new_head, self._left_out, parts)

    def everything(self) -> bytes:
        """Return the event that describes the whole state."""
        rows: list[str] = []
        for at, entry in enumerate(self._entries.values()):
            rows.append(_whole(entry))
            give_way(at)
        parts = {"fields": _encoded([*TEXTS, *NUMBERS]), "point_ms": str(POINT_MS), "groups": f"[{','.join(rows)}]"}
        return _event("everything", self.seq, self._head, self._left_out, parts)

    def _new_entry(self, row: LiveRow, waited_ms: float, before: _Entry | None) -> _Entry:
        number, place = (self._next_number, row.place) if before is None else (before.number, before.place)
        self._next_number += before is None
        self._places[number] = place
        entry = self._entries[place] = _Entry(number, place, row, waited_ms)
        return entry

    def _remove_others(self, count: int) -> list[int]:
        """Forget the groups that the last event does not have; return their numbers. `count`: number of groups that it has."""
        if len(self._entries) == count:
            return []
        gone = [entry for entry in self._entries.values() if entry.seq != self.seq]
        for entry in gone:
            del self._places[entry.number], self._entries[entry.place]
        return [entry.number for entry in gone]


def _numbers_of(row: LiveRow, waited_ms: float) -> Numbers:
    return (
        row.bound if row.is_limited else None,
        rounded(row.observed),
        row.throttled_until_ms,
        row.throttle_count,
        round(waited_ms),
        row.connections,
    )


def rounded(value: float) -> float | None:
    """Return a rate with four digits; None when JSON has no number for it."""
    near = float(f"{value:.{_DIGITS}g}")  # the largest numbers become infinite
    return near if math.isfinite(near) else None


def _whole(entry: _Entry) -> str:
    return f"[{entry.number},{entry.texts},{_encoded(entry.numbers)[1:]}"


_encoded: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _event(name: str, seq: int, head: Mapping[str, Any], left_out: int, parts: Mapping[str, str]) -> bytes:
    """Return an event of the stream; JSON has no line breaks, so it is one line of data."""
    fields: Sequence[str] = [f'"seq":{seq}', f'"head":{_encoded(head)}', f'"groups_left_out":{left_out}']
    data = ",".join([*fields, *(f'"{key}":{text}' for key, text in parts.items())])
    return f"event: {name}\ndata: {{{data}}}\n\n".encode()
