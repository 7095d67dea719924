"""The groups of the live page, and the events that describe them: one with everything, and one with the changes of a second.

An event is JSON. A group is an array: its number, its texts (`TEXTS`), its numbers (`NUMBERS`). A change has only number and numbers.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from proxy.observe.live.history import POINT_MS
from proxy.observe.rows.group_rows import TYPES, Cursor
from proxy.observe.rows.live_rows import ROWS_AT_ONCE, LiveGroups, LiveRow

TEXTS: Final = ("broker", "quota_type", "name", "tags", "rule")
NUMBERS: Final = ("bound", "observed", "throttled_until_ms", "throttle_count", "waited_ms_a_minute", "connections")
_DIGITS: Final = 4
"""Digits of a rate: without rounding, rates that fall slowly would change in every second."""

Numbers = tuple[float | None, ...]


class _Entry:
    """A group as the viewers know it."""

    __slots__ = ("number", "numbers", "place", "row_texts", "texts")

    def __init__(self, number: int, place: Cursor, row: LiveRow) -> None:
        self.number = number
        self.place = place
        self.row_texts = (row.name, row.rule)
        self.texts = json.dumps([row.broker, TYPES[row.type_at], row.name, row.tags, row.rule])[1:-1]
        self.numbers: Numbers = ()


class LiveTable:
    """What the viewers know. Its methods run in a thread, one at a time.

    Attributes:
        seq: number of the last event.
    """

    def __init__(self) -> None:
        self._entries: dict[Cursor, _Entry] = {}
        self._places: dict[int, Cursor] = {}
        self._next_number = 1
        self._head: dict[str, Any] = {}
        self._left_out = 0
        self.seq = 0

    def clear(self) -> None:
        """Forget all groups and values; numbers go on."""
        self._entries, self._places, self._head = {}, {}, {}

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
        entries: dict[Cursor, _Entry] = {}
        for at, row in enumerate(groups.rows):
            place = row.place
            entry = self._entries.get(place)
            numbers = _numbers_of(row, waited_ms.get(place, 0.0))
            if entry is None or entry.row_texts != (row.name, row.rule):
                entry = self._new_entry(place, row, entry)
                entry.numbers = numbers
                added.append(_whole(entry))
            elif entry.numbers != numbers:
                entry.numbers = numbers
                changed.append(_encoded([entry.number, *numbers]))
            entries[place] = entry
            if at % ROWS_AT_ONCE == 0:
                time.sleep(0)  # lets the event loop's thread run
        removed = [entry.number for place, entry in self._entries.items() if place not in entries]
        for number in removed:
            del self._places[number]
        self._entries, self._left_out = entries, groups.left_out
        new_head = {key: value for key, value in head.items() if self._head.get(key) != value}
        self._head = dict(head)
        parts = {"added": f"[{','.join(added)}]", "changed": f"[{','.join(changed)}]", "removed": _encoded(removed)}
        return _event("changes", self.seq, new_head, self._left_out, parts)

    def everything(self) -> bytes:
        """Return the event that describes the whole state."""
        rows: list[str] = []
        for at, entry in enumerate(self._entries.values()):
            rows.append(_whole(entry))
            if at % ROWS_AT_ONCE == 0:
                time.sleep(0)
        parts = {"fields": _encoded([*TEXTS, *NUMBERS]), "point_ms": str(POINT_MS), "groups": f"[{','.join(rows)}]"}
        return _event("everything", self.seq, self._head, self._left_out, parts)

    def _new_entry(self, place: Cursor, row: LiveRow, before: _Entry | None) -> _Entry:
        if before is not None:
            return _Entry(before.number, place, row)
        number = self._next_number
        self._next_number += 1
        self._places[number] = place
        return _Entry(number, place, row)


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
