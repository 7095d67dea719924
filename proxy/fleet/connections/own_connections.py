"""What this member publishes about its connections: how many it counted in each rate, and how many are open."""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from proxy.fleet.connections.entries import CONNECTION, NO_CONNECTIONS, RECENT_MAX, Connections

REPEAT_MS: Final = 1_000
"""Time after which a changed entry is sent once more: a message can be lost."""
REFRESH_MS: Final = 10_000
"""Time after which an entry with open connections is sent again, for members that have joined meanwhile."""
FORGET_MS: Final = 60_000
"""Time without a change after which an entry without open connections is forgotten."""
OWN_MAX: Final = 65_536
"""Clients choose their addresses, so the number of entries has a bound; beyond it the one that changed first is forgotten."""
_BEGIN_SHIFT: Final = 10
"""An entry that was forgotten begins again with a higher total: no address has more than 1,024 connections in a millisecond."""


class _Entry:
    """One entry.

    Attributes:
        total: begins with a number that depends on the time.
        open: number of open connections.
        published: `total` and `open` as they were published last.
        older, newer: the total at the beginning of the last part of a window, and of the present one.
        part_ms: when the present part began.
        published_ms: time of the last message with it.
        changed_ms: time of the last message with a change.
    """

    __slots__ = ("changed_ms", "newer", "older", "open", "part_ms", "published", "published_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.total = self.older = self.newer = now_ms << _BEGIN_SHIFT
        self.open = 0
        self.published = (self.total, 0)
        self.part_ms = self.published_ms = self.changed_ms = now_ms

    def recent(self, now_ms: int, part_ms: int) -> int:
        """Return how many connections were counted lately: at least those of the last `part_ms`, and at most those of three times it."""
        elapsed_ms = now_ms - self.part_ms
        if elapsed_ms >= part_ms:
            before = self.published[0]
            self.older, self.newer = (self.newer, before) if elapsed_ms < 2 * part_ms else (before, before)
            self.part_ms = now_ms
        return min(max(0, self.total - self.older), RECENT_MAX)


class OwnConnections:
    """The entries of this member, by digest.

    Args:
        window_ms: span of the rates.
    """

    def __init__(self, window_ms: int) -> None:
        self._part_ms = max(1, window_ms // 3)
        self._entries: dict[bytes, _Entry] = {}  # in the order of their last message
        self._changed: dict[bytes, None] = {}
        self._again: deque[tuple[int, bytes]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def count(self, digest: bytes, change: int, now_ms: int) -> None:
        """Count connections of a rate; a negative number takes back."""
        self._entry(digest, now_ms).total += change
        self._changed[digest] = None

    def set_open(self, digest: bytes, count: int, now_ms: int) -> None:
        """Set the number of open connections."""
        if count or digest in self._entries:
            self._entry(digest, now_ms).open = count
            self._changed[digest] = None

    def _entry(self, digest: bytes, now_ms: int) -> _Entry:
        entry = self._entries.get(digest)
        if entry is None:
            if len(self._entries) >= OWN_MAX:
                self._forget(next(iter(self._entries)))
            entry = self._entries[digest] = _Entry(now_ms)
        return entry

    def _forget(self, digest: bytes) -> None:
        del self._entries[digest]
        self._changed.pop(digest, None)

    def publish_all(self) -> None:
        """Publish every entry again, since another process publishes them from now on."""
        self._changed.update(dict.fromkeys(self._entries))
        for entry in self._entries.values():
            entry.published = (entry.published[0], -1)

    def close_all(self) -> None:
        """All connections end, since this process ends."""
        for digest, entry in self._entries.items():
            entry.open = 0
            self._changed[digest] = None

    def changes(self, entries_max: int, now_ms: int) -> Connections:
        """Return at most `entries_max` entries to publish now; they count as published."""
        found: dict[bytes, _Entry] = {}
        while self._changed and len(found) < entries_max:
            digest = next(iter(self._changed))
            del self._changed[digest]
            entry = self._entries[digest]
            if (entry.total, entry.open) != entry.published:
                found[digest] = entry
                entry.changed_ms = now_ms
                self._again.append((now_ms + REPEAT_MS, digest))
        self._add_repeated(found, entries_max, now_ms)
        return self._written(found, now_ms) if found else NO_CONNECTIONS

    def _add_repeated(self, found: dict[bytes, _Entry], entries_max: int, now_ms: int) -> None:
        """Add entries that are sent again, and forget those that nothing is known of any more."""
        while self._again and self._again[0][0] <= now_ms and len(found) < entries_max:
            due_ms, digest = self._again.popleft()
            entry = self._entries.get(digest)
            if entry is not None and entry.changed_ms == due_ms - REPEAT_MS:  # otherwise a later change was sent meanwhile
                found[digest] = entry
        for digest, entry in _oldest(self._entries, now_ms - REFRESH_MS, entries_max - len(found)):
            if entry.open or digest in found:
                found[digest] = entry
            elif now_ms - entry.changed_ms >= FORGET_MS:
                self._forget(digest)
            else:  # looked at again after this time
                self._touch(digest, entry, now_ms)

    def _written(self, found: dict[bytes, _Entry], now_ms: int) -> Connections:
        entries = np.zeros(len(found), CONNECTION)
        for at, (digest, entry) in enumerate(found.items()):
            entries[at] = (digest, entry.total, entry.recent(now_ms, self._part_ms), entry.open)
            entry.published = (entry.total, entry.open)
            self._touch(digest, entry, now_ms)
        return entries

    def _touch(self, digest: bytes, entry: _Entry, now_ms: int) -> None:
        """Note the time of the last message; the entry becomes the last one."""
        entry.published_ms = now_ms
        self._entries[digest] = self._entries.pop(digest)


def _oldest(entries: dict[bytes, _Entry], before_ms: int, count: int) -> list[tuple[bytes, _Entry]]:
    """Return the first entries, at most `count`, whose last message is not after `before_ms`."""
    found: list[tuple[bytes, _Entry]] = []
    for digest, entry in entries.items():
        if entry.published_ms > before_ms or len(found) >= count:
            break
        found.append((digest, entry))
    return found
