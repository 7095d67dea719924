"""The waiting fetches of one group in this worker, in one order with those of other workers and of other members of the fleet.

Only the oldest fetch of all workers is checked. What waits at other members is known late, and each turn of a strict order would take that
long. So a fetch is also forwarded before older ones of other members, if the bound has room for them as well.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.enforcement.groups.fetch_queue import FetchQueue, Place
from proxy.shared_usage.sharing import Sharing


class SharedFetchQueue(FetchQueue):
    """This worker's part of the queue. The row has the time of each worker's oldest fetch, and only the oldest of all is checked.

    Args:
        sharing: the sharing of the group.
        keep_checking: called while fetches wait here, so that `check` is called within `SHARE_MS`.
    """

    __slots__ = ("_keep_checking", "_sharing", "_was_front")

    def __init__(self, sharing: Sharing, keep_checking: Callable[[], None]) -> None:
        super().__init__()
        self._sharing = sharing
        self._keep_checking = keep_checking
        self._was_front = False

    def __len__(self) -> int:
        return len(self._waiting) + self._sharing.waiting_elsewhere

    def join(self, read_ms: int, notify: Callable[[], None], now_ms: int) -> Place:
        """Add a fetch that was read at `read_ms`; `notify` is called when the fetch should be checked again."""
        place = super().join(read_ms, notify, now_ms)
        self._publish()
        self._keep_checking()
        return place

    def leave(self, place: Place) -> None:
        """Remove a place. If it was the first one, the next one is notified; one in another worker within `SHARE_MS`."""
        super().leave(place)
        self._publish()

    def is_first(self, place: Place, now_ms: int) -> bool:
        """Whether a place is the first one of all workers."""
        if not super().is_first(place, now_ms):
            return False
        self._was_front = self._sharing.is_front(now_ms)
        return self._was_front

    def ahead(self, place: Place, now_ms: int) -> int:
        """Return the number of fetches that wait at other members of the fleet and are older than this one."""
        return self._sharing.ahead(place[0], now_ms)

    def check(self, now_ms: int) -> None:
        """Notify the first fetch here if it has become the first of all workers, or if it is and others have less usage in flight."""
        is_front = self._sharing.is_front(now_ms)
        if is_front and (self._sharing.made_room or not self._was_front):
            self.notify_first()
        self._was_front = is_front
        self._sharing.made_room = False
        self._keep_checking()

    def _publish(self) -> None:
        self._sharing.note_waiting(self._waiting)
