"""Sizes of topics that are known without a request: the broker's default, and topics that were just changed through Sluice."""

from __future__ import annotations

from collections import OrderedDict

from protocol.messages.topic_changes import NO_ID
from protocol.messages.topic_sizes import TopicSize

RECENT_MS = 3_000
"""A broker's Metadata may lag behind its controller; for this time the changes seen by Sluice are used."""
TOPICS_MAX = 4_096


class KnownSizes:
    """Sizes known to the whole process, for one cluster.

    Attributes:
        default_partitions: number of partitions of a topic created without one (`num.partitions`); None: unknown.
    """

    __slots__ = ("_by_id", "_recent", "default_partitions")

    def __init__(self) -> None:
        self.default_partitions: int | None = None
        self._recent: OrderedDict[str, tuple[int, TopicSize]] = OrderedDict()
        self._by_id: dict[bytes, str] = {}

    def __len__(self) -> int:
        return len(self._recent)

    def changed(self, name: str, topic_id: bytes, partitions: int, now_ms: int) -> None:
        """Store the number of partitions that a topic has now; 0: it was deleted."""
        known = self._forget(name)
        kept_id = topic_id if topic_id != NO_ID or known is None else known.topic_id
        while len(self._recent) >= TOPICS_MAX:
            self._forget(next(iter(self._recent)))
        self._recent[name] = (now_ms + RECENT_MS, TopicSize(name, kept_id, 0, partitions))
        if kept_id != NO_ID:
            self._by_id[kept_id] = name

    def recent(self, name: str | None, topic_id: bytes, now_ms: int) -> TopicSize | None:
        """Return the size of a topic that was changed within `RECENT_MS`; None: it has to be requested."""
        known_name = self._by_id.get(topic_id) if name is None else name
        found = None if known_name is None else self._recent.get(known_name)
        if found is None:
            return None
        until_ms, size = found
        if now_ms >= until_ms:
            self._forget(size.name or "")
            return None
        return size

    def _forget(self, name: str) -> TopicSize | None:
        found = self._recent.pop(name, None)
        if found is None:
            return None
        if self._by_id.get(found[1].topic_id) == name:
            del self._by_id[found[1].topic_id]
        return found[1]
