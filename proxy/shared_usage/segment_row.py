"""The row of one group in the segment, used by one worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from proxy.enforcement.groups.departed_throttles import DepartedThrottles
from proxy.shared_usage.assumption import NOBODY, Elsewhere, is_shared_scope
from proxy.shared_usage.segment import FACTOR_ONE, FETCH_TIMES, FLEET_LAG_AT, Segment

NO_SLOT = -1


class SegmentRow:
    """A row that a worker has claimed.

    Attributes:
        scope_key: the scope for which it was claimed.
    """

    __slots__ = ("_generation", "_generation_at", "_ring_at", "_row", "_segment", "_used", "_words", "_worker", "scope_key")

    def __init__(self, segment: Segment, row: int, worker: int, scope_key: str) -> None:
        self._segment = segment
        self._row = row
        self._worker = worker
        self._words = words = segment.words
        self._generation_at = segment.generation_at(row)
        self._generation = words[self._generation_at]
        self._ring_at = segment.ring_at(row, worker)
        self._used = words[segment.totals_at(row) : segment.throttle_rounds_at(row)]
        self.scope_key = scope_key

    def is_held(self) -> bool:
        """Whether the row still belongs to the group."""
        return self._words[self._generation_at] == self._generation

    def used(self) -> list[int]:
        """Return the numbers of the row, see `UsageRow`."""
        return self._used.tolist()

    def sums(self, worker: int) -> Iterator[tuple[int, int]]:
        """Yield (start of the slot in ms, the worker's usage in it), newest first."""
        segment = self._segment
        first = segment.ring_at(self._row, worker)
        ring = segment.words[first : first + 2 * segment.slots].tolist()
        for number, amount in sorted(zip(ring[::2], ring[1::2], strict=True), reverse=True):
            if number != NO_SLOT and amount:
                yield number * segment.slot_ms, amount

    def publish(self, total: int, amount: int, time_ms: int) -> None:
        """Set this worker's total; `amount` of it was used at `time_ms`."""
        segment, words = self._segment, self._words
        number = time_ms // segment.slot_ms
        at = self._ring_at + 2 * (number % segment.slots)
        if words[at] < number:
            words[at] = NO_SLOT  # a reader must not read the old sum as that of the new slot
            words[at + 1] = 0
            words[at] = number
        words[at + 1] += amount
        self._used[self._worker] = total  # last, so that a reader of the total finds all of it in slots

    def publish_more(self, amount: int, time_ms: int) -> None:
        """Add `amount`, used at `time_ms`, to this worker's total."""
        self.publish(self._used[self._worker] + amount, amount, time_ms)

    def take_elsewhere(self) -> int:
        """Return what other members of the fleet have used since the last call of any worker.

        The row is that of no fetches: the first of the fleet's times of waiting fetches is the total that was taken, plus one.
        """
        segment = self._segment
        if segment.fleet is None:
            return 0
        at, total = segment.fetch_times_at(self._row, segment.fleet), self._used[segment.fleet]
        taken, self._words[at] = self._words[at], total + 1
        return total - max(0, taken - 1)

    def publish_under_way(self, amount: int) -> None:
        """Set this worker's usage in flight."""
        self._used[self._segment.workers + self._worker] = amount

    @property
    def fetch_times(self) -> int:
        """The number of times for `publish_fetch_times`; 0: they are not needed."""
        return self._segment.fetch_times

    def publish_waiting(self, count: int, front: int) -> None:
        """Set this worker's number of waiting fetches; `front` is the time of the oldest, 0: none."""
        waiting_at = 2 * self._segment.workers + self._worker
        self._used[waiting_at] = count
        self._used[waiting_at + self._segment.workers] = front

    def publish_fetch_times(self, times: Sequence[int]) -> None:
        """Set the times of this worker's waiting fetches, in their order: `fetch_times` of them, see `segment.FETCH_TIMES`."""
        first = self._segment.fetch_times_at(self._row, self._worker)
        for at, time_ms in enumerate(times, first):
            self._words[at] = time_ms

    def is_front(self, now_ms: int) -> bool:
        """Whether no awake worker has an older waiting fetch than this one; at equal times the worker with the lower number is first.

        Waiting fetches of other members of the fleet do not count.
        """
        segment = self._segment
        fronts = self._used[3 * segment.workers : 4 * segment.workers].tolist()
        own = (fronts[self._worker], self._worker)
        return not any(
            front and (front, worker) < own and worker != segment.fleet and not segment.is_unresponsive(worker, now_ms)
            for worker, front in enumerate(fronts)
        )

    def older_in_fleet(self, time: int, now_ms: int) -> int:
        """Return how many fetches wait at other members of the fleet since before `time`; their times are known approximately."""
        segment = self._segment
        if segment.fleet is None or segment.is_unresponsive(segment.fleet, now_ms):
            return 0
        at = 2 * segment.workers + segment.fleet
        count, front = self._used[at], self._used[at + segment.workers]
        if not count or front >= time:
            return 0
        first = segment.fetch_times_at(self._row, segment.fleet)
        older = sum(one < time for one in self._words[first : first + FETCH_TIMES].tolist())
        return max(1, round(count * older / FETCH_TIMES))

    def under_way(self) -> int:
        """Return the usage in flight of all workers."""
        workers = self._segment.workers
        return sum(self._used[workers : 2 * workers].tolist())

    def publish_answer(self, size_bytes: int) -> None:
        """Set the size of this worker's last response to a fetch."""
        self._used[4 * self._segment.workers + self._worker] = size_bytes + 1

    def publish_window_max(self, amount: int) -> None:
        """Set the most that the bound allows in a window."""
        self._words[self._segment.window_max_at(self._row)] = amount

    def last_throttle_round_ms(self) -> int:
        """Return the time of the last throttle round of any worker, in monotonic ms."""
        segment = self._segment
        first = segment.throttle_rounds_at(self._row)
        return max(self._words[first : first + segment.workers].tolist())

    def publish_throttle_round(self, throttle_round_ms: int) -> None:
        """Set the time of this worker's last throttle round, in monotonic ms."""
        self._words[self._segment.throttle_rounds_at(self._row) + self._worker] = throttle_round_ms

    def publish_throttled(self, until_ms: int) -> None:
        """An open connection of this worker is throttled until then, in monotonic ms."""
        at = self._segment.throttled_at(self._row) + self._worker
        if self._words[at] < until_ms:
            self._words[at] = until_ms

    def elsewhere(self) -> Elsewhere:
        """Return what is known about the usage of the other members of the fleet."""
        segment, words = self._segment, self._words
        if segment.fleet is None or not is_shared_scope(self.scope_key):
            return NOBODY
        lag_ms, others = words[FLEET_LAG_AT : FLEET_LAG_AT + 2].tolist()
        return Elsewhere(words[segment.fleet_factor_at(self._row)] / FACTOR_ONE, lag_ms, others)

    def departed_until_ms(self) -> int:
        """Return the end of the longest throttle that departed connections left, which may have passed; 0: there is none."""
        return self._segment.departed.until_ms(self._row)

    def departed(self) -> AbstractContextManager[DepartedThrottles | None]:
        """Lock the throttles that departed connections left for a change; None: another process changes them."""
        return self._segment.departed.locked(self._row)

    def release(self) -> None:
        """Stop using the row; this worker's usage in flight, waiting fetches and throttled connections in it become 0."""
        if self.is_held():
            self.publish_under_way(0)
            self.publish_waiting(0, 0)
            self._words[self._segment.throttled_at(self._row) + self._worker] = 0
            self._segment.release(self._row, self._worker)
