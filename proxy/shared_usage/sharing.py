"""The sharing of one group: its row, the usage read from the row, and the usage published in it.

Totals are cumulative integers, so reading a total late or twice has no effect. When a group was not checked for longer than a
slot, or is new in this process, the difference is recorded by the slots of the row, at their starts and in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Final, NamedTuple

from metering_format.event_kinds import REMOTE, SKIPPED
from metering_format.fleet_notes import ASSUMED
from proxy.enforcement.groups.enforced_groups import NEVER_MS as NO_THROTTLE_ROUND_MS
from proxy.enforcement.groups.enforced_groups import UNKNOWN, EnforcedGroup
from proxy.enforcement.groups.fetch_queue import Place
from proxy.shared_usage.assumption import EARLIER_MS_MAX
from proxy.shared_usage.segment import ANSWER_MAX, SCHEDULE
from proxy.shared_usage.shared_throttles import take_throttles_along
from proxy.shared_usage.usage_row import UsageRow, UsageRows
from quota.groups.group import NO_ROOM
from quota.sensor import NEVER_MS

WINDOW_MAX: Final = 2**62
"""What a group without a bound may use in a window, in the unit of totals."""


class Remote(NamedTuple):
    """Usage of another process that is to be recorded here."""

    time_ms: int
    worker: int
    amount: int
    source_total: int


class Sharing:
    """The sharing of one group.

    Attributes:
        rows, row: the rows, and that of this group; None: the group does not share usage yet.
        seen: the totals that were last read or written in the row.
        published: the part of this object's own records that was published.
        remote: units recorded here for other processes; `fleet`: the part of them that other members of the fleet used.
        pending, elsewhere: units in flight of all processes, and of the others.
        waiting, front, places: number of waiting fetches here, the time of the oldest, as in a row, and all of them.
        waiting_elsewhere: number of waiting fetches in other workers and, in a fleet, at other members.
        made_room: whether, since the last check of the queue, other processes have had less usage in flight, or other members of the
            fleet other waiting fetches.
        answer_bytes: the published size of the last response to a fetch.
        throttle_round_ms: time of this object's last throttle round.
        pulled_ms, claim_ms: time of the last read of totals, and time of the next request for a row.
        full, noted_ms: belong to the group; see `Shared`.
        share, little: the value of the sample in use at which this process has used its share of the room, and little of it.
        shared_ms: time of the last sharing, with or without a row; the next record shares if it is too long ago.
        uses_little: whether this process used little of the room before the last sharing.
    """

    __slots__ = (
        "answer_bytes",
        "claim_ms",
        "elsewhere",
        "fleet",
        "front",
        "full",
        "little",
        "made_room",
        "noted_ms",
        "pending",
        "places",
        "published",
        "pulled_ms",
        "remote",
        "row",
        "rows",
        "seen",
        "share",
        "shared_ms",
        "throttle_round_ms",
        "uses_little",
        "waiting",
        "waiting_elsewhere",
    )

    def __init__(self, rows: UsageRows) -> None:
        self.rows = rows
        self.row: UsageRow | None = None
        self.seen: list[int] = []
        self.published = 0
        self.remote = self.fleet = 0.0
        self.pulled_ms = self.claim_ms = self.shared_ms = -NEVER_MS
        self.pending = self.elsewhere = 0.0
        self.waiting = self.front = self.waiting_elsewhere = 0
        self.places: Sequence[Place] = ()
        self.made_room = False
        self.answer_bytes = UNKNOWN
        self.throttle_round_ms = NO_THROTTLE_ROUND_MS
        self.full = self.share = self.little = NO_ROOM
        self.uses_little = False
        self.noted_ms = NEVER_MS

    def pull(self, group: EnforcedGroup, now_ms: int) -> None:
        """Record in the samples of `group` the usage that others have published since the last call."""
        row = self.row
        if row is None or not row.is_held() or row.scope_key != self.rows.scope_key:
            row = self._change_row(group, row, now_ms)
            if row is None:
                return
        used = row.used()
        if used != self.seen:
            self._take_in(group, row, used, now_ms)
        self.pulled_ms = now_ms

    def publish(self, group: EnforcedGroup, now_ms: int) -> None:
        """Publish this process's usage that was recorded in `group`."""
        row = self.row
        if row is None:
            return
        own = self._own_amount(group)
        amount = own - self.published
        if amount:
            self._publish_part(row, amount, now_ms)
            self.published = own
        if self.pending != self.elsewhere or self.seen[self.rows.workers + self.rows.worker]:
            self._publish_under_way(row)
        if group.fetch_answer_bytes != self.answer_bytes:
            self.answer_bytes = group.fetch_answer_bytes
            row.publish_answer(self.answer_bytes)

    def refresh_under_way(self) -> None:
        """Update `pending`, without recording usage of other processes."""
        if self.row is not None:
            self._note_elsewhere(self.row.under_way() - self.seen[self.rows.workers + self.rows.worker])

    def note_pending(self, pending: float) -> None:
        """Set the usage in flight of all processes. More of it is published at once, less of it together with the recorded usage."""
        is_more = pending > self.pending
        self.pending = pending
        if not is_more or self.row is None or not self.row.is_held():
            return
        if self._own_under_way() > self.seen[self.rows.workers + self.rows.worker]:
            self._publish_under_way(self.row)

    def note_waiting(self, places: Sequence[Place]) -> None:
        """Set and publish the waiting fetches here, in order."""
        self.waiting, self.front, self.places = len(places), _time_of(places[0]) if places else 0, places
        if self.row is not None and self.row.is_held():
            self._publish_waiting(self.row)

    def waiting_counts(self) -> list[int]:
        """Return the number of waiting fetches of each process; none where a process still paces the group, since its words are others."""
        workers = self.rows.workers
        counts, fronts = self.seen[2 * workers : 3 * workers], self.seen[3 * workers : 4 * workers]
        if max(fronts) < SCHEDULE:
            return counts
        return [0 if front >= SCHEDULE else count for count, front in zip(counts, fronts, strict=True)]

    def is_front(self, now_ms: int) -> bool:
        """Whether the oldest waiting fetch here is the first of all workers."""
        return self.row is None or not self.row.is_held() or self.row.is_front(now_ms)

    def ahead(self, read_ms: int, now_ms: int) -> int:
        """Return how many fetches of other members of the fleet wait since before `read_ms`."""
        return self.row.older_in_fleet(read_ms + 1, now_ms) if self.row is not None and self.row.is_held() else 0

    @property
    def last_throttle_round_ms(self) -> int:
        """Time of the last throttle round of the group in any process, in monotonic ms."""
        return self.throttle_round_ms if self.row is None else max(self.throttle_round_ms, self.row.last_throttle_round_ms())

    def take_throttle_round(self, throttle_round_ms: int) -> None:
        """Record a throttle round, or revoke the last one by setting the time of the previous one."""
        self.throttle_round_ms = throttle_round_ms
        if self.row is not None and self.row.is_held():
            self.row.publish_throttle_round(throttle_round_ms)

    def note_bound(self, group: EnforcedGroup) -> None:
        """Publish what the bound of `group` allows in a window."""
        if self.row is not None and self.row.is_held():
            self.row.publish_window_max(self.window_max(group))

    def window_max(self, group: EnforcedGroup) -> int:
        """Return what the bound of `group` allows in a window, in the unit of totals."""
        return round(min(group.max_value_in_window() * self.rows.per_unit, WINDOW_MAX))

    def leave(self, group: EnforcedGroup) -> None:
        """Publish the remaining usage and stop sharing, because the group is removed."""
        self.claim_ms = NEVER_MS
        if self.row is not None:
            if self.row.is_held():
                self.publish(group, group.last_record_ms)
            self._release(self.row)

    def hand_over(self, other: Sharing) -> None:
        """Move the row to the group of `other`, and stop sharing here.

        The usage in flight that was published stays in the row until `other` publishes its own, or has more.
        """
        other.row, other.seen, other.claim_ms, other.pulled_ms = self.row, self.seen, self.claim_ms, self.pulled_ms
        other.fleet = self.fleet
        other.published, other.remote, other.throttle_round_ms = self.published, self.remote, self.throttle_round_ms
        other.pending = other.elsewhere = self.elsewhere * (self.rows.under_way_per_unit / other.rows.under_way_per_unit)
        other.waiting_elsewhere = self.waiting_elsewhere
        if self.waiting:
            self.note_waiting(())
        self._forget_others()
        self.claim_ms = NEVER_MS

    def _release(self, row: UsageRow) -> None:
        row.release()
        self._forget_others()

    def _forget_others(self) -> None:
        self.pending, self.elsewhere = self.pending - self.elsewhere, 0.0
        self.waiting_elsewhere = 0
        self.row = None

    def _own_amount(self, group: EnforcedGroup) -> int:
        """Return the own usage in the unit of totals. Rounding is monotone, so a total decreases only by un-records."""
        return round((group._recorded_before + group._value - self.remote) * self.rows.per_unit)

    def _publish_part(self, row: UsageRow, amount: int, time_ms: int) -> None:
        worker = self.rows.worker
        self.seen[worker] += amount
        row.publish(self.seen[worker], amount, time_ms)

    def _publish_under_way(self, row: UsageRow) -> None:
        under_way = self.seen[self.rows.workers + self.rows.worker] = self._own_under_way()
        row.publish_under_way(under_way)

    def _own_under_way(self) -> int:
        return round((self.pending - self.elsewhere) * self.rows.under_way_per_unit)

    def _publish_waiting(self, row: UsageRow) -> None:
        if self.waiting and row.fetch_times:
            parts = 2 * row.fetch_times
            row.publish_fetch_times([_time_of(self.places[at * self.waiting // parts]) for at in range(1, parts, 2)])
        row.publish_waiting(self.waiting, self.front)
        at = 2 * self.rows.workers + self.rows.worker
        self.seen[at], self.seen[at + self.rows.workers] = self.waiting, self.front

    # Rows

    def _change_row(self, group: EnforcedGroup, left: UsageRow | None, now_ms: int) -> UsageRow | None:
        """Claim the row for the scope's current key; usage published in another row stays there and is not published again."""
        if left is not None:
            if left.is_held():
                take_throttles_along(group, left, now_ms)
                self._take_in(group, left, left.used(), now_ms)
                self.publish(group, now_ms)
            self._release(left)
        if now_ms < self.claim_ms:
            return None
        claimed = self.rows.claim(group.key, now_ms)
        if isinstance(claimed, int):
            self.claim_ms = now_ms + claimed
            return None
        history = self._unpublished(group, now_ms)
        used = claimed.used()
        self.row, self.seen, self.pulled_ms = claimed, [0] * len(used), -NEVER_MS
        self._take_in(group, claimed, used, now_ms)
        if self.rows.on_remote is not None:
            self.rows.on_remote(group, self.rows.worker, 0, self.seen[self.rows.worker], now_ms, SKIPPED)
        for start_ms, amount in history:
            self._publish_part(claimed, amount, start_ms)
        self.published = self._own_amount(group)
        self.note_bound(group)
        if self.waiting:
            self._publish_waiting(claimed)
        return claimed

    def _unpublished(self, group: EnforcedGroup, now_ms: int) -> Sequence[tuple[int, int]]:
        """Return (start of the sample in ms, amount) of the usage that was recorded without a row and still counts, oldest first."""
        left = self._own_amount(group) - self.published
        if left <= 0:
            return [(now_ms, left)] if left else []
        found: list[tuple[int, int]] = []
        for start_ms, _, value in reversed(group.live_samples()):
            part = min(left, round(value * self.rows.per_unit))
            if part > 0:
                found.append((start_ms, part))
                left -= part
        found.reverse()
        return found

    # Usage of other processes

    def _take_in(self, group: EnforcedGroup, row: UsageRow, used: list[int], now_ms: int) -> None:
        """Record the difference between the totals and those seen; replace usage in flight and waiting fetches."""
        seen, self.seen = self.seen, used
        workers, worker = self.rows.workers, self.rows.worker
        self._note_elsewhere(sum(used[workers : 2 * workers]) - used[workers + worker])
        answers = [answer for answer in used[4 * workers : 5 * workers] if answer <= ANSWER_MAX]
        if group.fetch_answer_bytes == UNKNOWN and any(answers):
            group.fetch_answer_bytes = max(answers) - 1
        waiting = self.waiting_counts()
        self.waiting_elsewhere = sum(waiting) - waiting[worker]
        if self.rows.fleet is not None and used[3 * workers + self.rows.fleet] != seen[3 * workers + self.rows.fleet]:
            self.made_room = True
        if self.waiting_elsewhere and group.fetch_queue is None:
            group.fetch_queue = group.new_fetch_queue()
        if used[5 * workers :] != seen[5 * workers :]:
            self._meter_notes(group, seen[5 * workers :], used[5 * workers :], now_ms)
        if now_ms - self.pulled_ms > self.rows.slot_ms:
            self._take_in_late(group, row, seen, now_ms)
            return
        fleet = self.rows.fleet
        if fleet is not None and used[fleet] > seen[fleet]:
            used[fleet] -= self._held_back(group, seen[fleet], used[fleet], now_ms)
        if fleet is not None and used[fleet] != seen[fleet]:  # first, since a record is never before the last one
            self._record(group, self._used_elsewhere_ms(row, now_ms), fleet, used[fleet] - seen[fleet], used[fleet])
        for worker in range(workers):
            total = used[worker]
            if total != seen[worker] and worker != fleet:
                self._record(group, now_ms, worker, total - seen[worker], total)

    def _used_elsewhere_ms(self, row: UsageRow, now_ms: int) -> int:
        """Return when to record what other members of the fleet have used and what has become known now.

        Of fetches it is when they used it on average, so that it leaves the window in time for the fetches that wait for that. Other
        requests do not wait before they are forwarded, and with the same change more of them passed in the worst 10 s. Overridden by
        groups with a schedule, which usage does not leave.
        """
        return now_ms if self.rows.assumes_at_record else now_ms - min(row.elsewhere().lag_ms, EARLIER_MS_MAX)

    def _held_back(self, group: EnforcedGroup, seen: int, total: int, now_ms: int) -> int:
        """Return how much of what others in the fleet have used since `seen` is recorded later. Overridden by groups with a schedule."""
        return 0

    def _note_elsewhere(self, under_way: int) -> None:
        elsewhere = under_way / self.rows.under_way_per_unit
        if elsewhere < self.elsewhere:
            self.made_room = True
        self.pending += elsewhere - self.elsewhere
        self.elsewhere = elsewhere

    def _meter_notes(self, group: EnforcedGroup, before: list[int], notes: list[int], now_ms: int) -> None:
        """Meter what the fleet's hub has noted about the fleet's total (`metering_format.fleet_notes`)."""
        if self.rows.on_remote is None:
            return
        for source, seen, noted in zip(count(self.rows.workers - 1 + ASSUMED), before, notes, strict=False):
            if noted != seen:
                self.rows.on_remote(group, source, noted - seen, noted, now_ms, SKIPPED)

    def _take_in_late(self, group: EnforcedGroup, row: UsageRow, before: list[int], now_ms: int) -> None:
        """Record usage since an earlier read of the row at the times of its slots, in order."""
        oldest_ms = now_ms - group.num_samples * group.window_ms
        found: list[Remote] = []
        for worker in range(self.rows.workers):
            total, seen = self.seen[worker], before[worker]
            if total < seen:
                found.append(Remote(now_ms, worker, total - seen, total))
                continue
            parts = _by_slots(row, worker, seen, total, oldest_ms)
            found += parts
            skipped = total - seen - sum(part.amount for part in parts)
            if skipped and self.rows.on_remote is not None:
                self.rows.on_remote(group, worker, skipped, seen + skipped, now_ms, SKIPPED)
        found.sort()
        for remote in self._timed(group, found, now_ms):
            self._record(group, min(remote.time_ms, now_ms), remote.worker, remote.amount, remote.source_total)

    def _timed(self, group: EnforcedGroup, found: list[Remote], now_ms: int) -> list[Remote]:
        """Return usage by slots, in order, with the times at which it is recorded. Overridden by groups with a schedule."""
        return found

    def _record(self, group: EnforcedGroup, time_ms: int, worker: int, amount: int, source_total: int) -> int:
        """Record usage of another process, not before the last record; return the time of the record."""
        if time_ms < group._last_ms and group._values:
            time_ms = group._last_ms
        units = amount * self.rows.units
        group._add(units, time_ms)
        self.remote += units
        if worker == self.rows.fleet:
            self.fleet += units
        if self.rows.on_remote is not None:
            self.rows.on_remote(group, worker, amount, source_total, time_ms, REMOTE)
        return time_ms


def _time_of(place: Place) -> int:
    return place[0] + 1  # 0 means that none waits


def _by_slots(row: UsageRow, worker: int, seen: int, total: int, oldest_ms: int) -> list[Remote]:
    """Distribute a worker's usage since `seen` to the newest slots; the rest is older than all samples."""
    found: list[Remote] = []
    for start_ms, amount in row.sums(worker):
        part = min(amount, total - seen)
        if start_ms <= oldest_ms or total == seen:
            break
        if part > 0:
            found.append(Remote(start_ms, worker, part, total))
            total -= part
    return found
