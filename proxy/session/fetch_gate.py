"""The first of the two judgements of a fetch: may it go to the broker now?

An answer that has arrived cannot be un-sent as Kafka un-sends it (it empties the answer and takes the bytes
back), so a fetch waits here while the group's rate plus what its forwarded fetches will bring exceeds the bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from proxy.session.enforcement import AGE_MAX_MS
from quota.group import QuotaGroup

UNKNOWN = -1


class FetchGate:
    """The fetches of one connection that are under way, and the one that waits."""

    __slots__ = ("_expected_bytes", "_in_line", "_under_way", "_waiting_since_ms", "notify", "wait_until_ms")

    def __init__(self) -> None:
        self._under_way: deque[tuple[QuotaGroup | None, int]] = deque()
        self._expected_bytes = UNKNOWN  # the size of this connection's last answer
        self._waiting_since_ms: int | None = None
        self._in_line = False
        self.notify: Callable[[], None] = _nobody  # told that asking again is worth while before the deadline
        self.wait_until_ms = 0

    def admits(self, group: QuotaGroup, now_ms: int, read_ms: int, *, has_step: bool) -> bool:
        """Whether a fetch of `group`, read at `read_ms`, may go on; if not, `wait_until_ms` says when to ask again.

        `has_step`: the present age step of the group is this connection's already.
        """
        throttle_ms = group.would_throttle_ms(group.fetch_pending_bytes, now_ms)
        if throttle_ms <= 0 and self._waiting_since_ms is None and not group.fetch_waiting:
            return True
        if self._waiting_since_ms is None:
            self._waiting_since_ms = read_ms
        if throttle_ms <= 0 or has_step or self._step_is_free(group, now_ms):
            self._waiting_since_ms = None
            if group.fetch_waiting:
                _tell_next(group.fetch_waiting)  # where there is room for one there may be room for more
            return True
        step_end_ms = self._waiting_since_ms + AGE_MAX_MS
        if step_end_ms <= now_ms:  # this step was another connection's
            self._waiting_since_ms = now_ms
            step_end_ms = now_ms + AGE_MAX_MS
        self.wait_until_ms = min(now_ms + throttle_ms, step_end_ms)
        self._stand_in_line(group)
        return False

    def _step_is_free(self, group: QuotaGroup, now_ms: int) -> bool:
        assert self._waiting_since_ms is not None
        if now_ms - self._waiting_since_ms < AGE_MAX_MS:
            return False
        if now_ms - group.last_step_ms < AGE_MAX_MS:
            return False
        group.last_step_ms = now_ms
        return True

    @property
    def knows_answers(self) -> bool:
        """Whether this connection's fetches have been answered before."""
        return self._expected_bytes != UNKNOWN

    def forwarded(self, group: QuotaGroup | None, bytes_max: int = 0) -> None:
        """A fetch went to the broker.

        What it will bring is guessed: what this connection's last answer brought, else what the group's last answer brought, else,
        for the group's very first fetches, `bytes_max`, which is all that it may bring.
        """
        if group is None:
            self._under_way.append((None, 0))
            return
        expected_bytes = self._expected_bytes
        if expected_bytes == UNKNOWN:
            expected_bytes = bytes_max if group.fetch_answer_bytes == UNKNOWN else group.fetch_answer_bytes
        self._under_way.append((group, expected_bytes))
        group.fetch_pending_bytes += expected_bytes

    def answered(self, size_bytes: int) -> None:
        """The answer of the oldest fetch under way is here."""
        self._expected_bytes = size_bytes
        if self._under_way:
            group, expected_bytes = self._under_way.popleft()
            if group is not None:
                group.fetch_pending_bytes -= expected_bytes
                group.fetch_answer_bytes = size_bytes
                if group.fetch_waiting and size_bytes < expected_bytes:
                    _tell_next(group.fetch_waiting)

    def _stand_in_line(self, group: QuotaGroup) -> None:
        if self._in_line:
            return
        self._in_line = True
        if group.fetch_waiting is None:
            group.fetch_waiting = deque()
        group.fetch_waiting.append(self._told)

    def _told(self) -> bool:
        """An answer brought less than expected: ask again now. False when nothing waits here any more."""
        self._in_line = False
        if self._waiting_since_ms is None:
            return False
        self.notify()
        return True

    def abandon(self) -> None:
        """The connection ends: nothing of it is under way or waits any more."""
        self._waiting_since_ms = None
        while self._under_way:
            group, expected_bytes = self._under_way.popleft()
            if group is not None:
                group.fetch_pending_bytes -= expected_bytes


def _tell_next(waiting: deque[Callable[[], bool]]) -> None:
    """Tell who waits longest; one answer makes room for about one fetch, so telling all would be in vain."""
    while waiting:
        if waiting.popleft()():
            return


def _nobody() -> None:
    """Nobody listens yet."""
