"""What a group needs to count with other processes: its row, what was taken in from it, and what was published in it.

Totals are cumulative integers, so a total that is read late or twice changes nothing. Of a group that was not looked at for longer than a
slot, or is new in this process, the difference belongs to the past: it is recorded by slots of the row, at their starts and in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from metering_format.event_kinds import REMOTE, SKIPPED
from proxy.enforcement.groups.departed_throttles import DepartedThrottles, HoldsThrottles
from proxy.enforcement.groups.enforced_groups import NEVER_MS as NO_THROTTLE_ROUND_MS
from proxy.enforcement.groups.enforced_groups import UNKNOWN, EnforcedGroup
from quota.groups.group import NO_ROOM, GroupKey
from quota.sensor import NEVER_MS

OnRemote = Callable[[EnforcedGroup, int, int, int, int, int], None]
"""Told of usage from elsewhere: (group, worker, amount, that worker's total after it, ms, kind).

The kind is `REMOTE`, recorded here at that time, or `SKIPPED`: it is older than all samples. A group that begins to use a row skips 0
units of its own worker, with the total found there.
"""


class UsageRow(Protocol):
    """One group's row: for each worker a total, sums by slots of time, what is under way, what waits, and its last throttle round.

    By worker, one after the other, it has what each used since the row began; has under way; how many fetches wait there; the time of the
    first of them, 0: none waits; the size of the last answer to a fetch and one, 0: there was none.
    """

    scope_key: str
    """The scope that it was claimed for."""

    def is_held(self) -> bool:
        """Whether no other group has it."""

    def used(self) -> list[int]:
        """Return these numbers."""

    def sums(self, worker: int) -> Iterator[tuple[int, int]]:
        """Yield (start of the slot in ms, what the worker used in it), newest first."""

    def publish(self, total: int, amount: int, time_ms: int) -> None:
        """Let this worker's total be `total`; `amount` of it was used at `time_ms`."""

    def publish_under_way(self, amount: int) -> None:
        """Let this worker have so much under way."""

    def publish_waiting(self, count: int, front: int) -> None:
        """Let so many fetches wait in this worker; `front` is the time of the one that waits longest, 0: none waits."""

    def is_front(self, now_ms: int) -> bool:
        """Whether no fetch of another worker, unless that is asleep, waits longer than the first of this one."""

    def under_way(self) -> int:
        """Return how much all workers have under way."""

    def publish_answer(self, size_bytes: int) -> None:
        """Let the last answer to a fetch in this worker have had this size."""

    def last_throttle_round_ms(self) -> int:
        """Return when a worker last gave out a throttle round."""

    def publish_throttle_round(self, throttle_round_ms: int) -> None:
        """Let this worker's last throttle round have been then."""

    def departed_until_ms(self) -> int:
        """Return when the longest throttle that departed connections left is over, or was; 0: none is left."""

    def departed(self) -> AbstractContextManager[DepartedThrottles | None]:
        """Give out the throttles that departed connections left, to be changed; None: another process changes them."""

    def release(self) -> None:
        """This worker uses the row no more."""


class Publisher(Protocol):
    """A group that may have something to publish."""

    def publish(self, now_ms: int) -> None:
        """Publish what was recorded here."""


class UsageRows(Protocol):
    """Where the groups of one quota type in one scope find their rows."""

    scope_key: str
    workers: int
    worker: int
    slot_ms: int
    units: float
    """Of the quota, for one of a total."""
    per_unit: float
    under_way_per_unit: float
    """As `per_unit`, of what is under way: by a power of two, so that what is taken back leaves nothing."""

    @property
    def on_remote(self) -> OnRemote | None:
        """Who is told of usage from elsewhere."""

    def claim(self, key: GroupKey, now_ms: int) -> UsageRow | int:
        """Return the row of a group, or after how many ms to ask again."""

    def note_unpublished(self, group: Publisher) -> None:
        """Let `publish` of this group be called soon."""


class Remote(NamedTuple):
    """Usage from elsewhere, as it is to be recorded here."""

    time_ms: int
    worker: int
    amount: int
    source_total: int


class Sharing:
    """That of one group.

    Attributes:
        rows, row: where rows are, and the one of this group; without one it counts alone and asks again.
        seen: what was read in the row last, or written there.
        published: what this object published of what it recorded itself.
        remote: units that were recorded here for others.
        pending, elsewhere: units that are under way, and how many of them elsewhere.
        waiting, front: how many fetches wait here, and the time of the first one, as a row has it.
        waiting_elsewhere: how many wait in other workers.
        made_room: whether less has come to be under way elsewhere since the queue was looked at.
        answer_bytes: the size of the last answer to a fetch that was published.
        throttle_round_ms: the last throttle round that this object gave out.
        pulled_ms, claim_ms: when totals were last read, and from when on to ask for a row.
        full, due_ms, is_noted: belong to the group; see `Shared`.
    """

    __slots__ = (
        "answer_bytes",
        "claim_ms",
        "due_ms",
        "elsewhere",
        "front",
        "full",
        "is_noted",
        "made_room",
        "pending",
        "published",
        "pulled_ms",
        "remote",
        "row",
        "rows",
        "seen",
        "throttle_round_ms",
        "waiting",
        "waiting_elsewhere",
    )

    def __init__(self, rows: UsageRows) -> None:
        self.rows = rows
        self.row: UsageRow | None = None
        self.seen: list[int] = []
        self.published = 0
        self.remote = 0.0
        self.pulled_ms = self.claim_ms = self.due_ms = -NEVER_MS
        self.pending = self.elsewhere = 0.0
        self.waiting = self.front = self.waiting_elsewhere = 0
        self.made_room = False
        self.answer_bytes = UNKNOWN
        self.throttle_round_ms = NO_THROTTLE_ROUND_MS
        self.full = NO_ROOM
        self.is_noted = False

    def pull(self, group: EnforcedGroup, now_ms: int) -> None:
        """Record in the ring of `group` what others published since the last time."""
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
        """Let others know what was recorded in `group` for nobody else."""
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

    def look_under_way(self) -> None:
        """Let `pending` be what is under way now; what others used meanwhile is not looked at."""
        if self.row is not None:
            self._note_elsewhere(self.row.under_way() - self.seen[self.rows.workers + self.rows.worker])

    def note_pending(self, pending: float) -> None:
        """Let so much be under way, here and elsewhere. Others know of more at once, and of less when they know what came of it."""
        is_more = pending > self.pending
        self.pending = pending
        if is_more and self.row is not None and self.row.is_held():
            self._publish_under_way(self.row)

    def note_waiting(self, waiting: int, front: int) -> None:
        """Let so many fetches wait here; others know at once. `front` as in `UsageRow.publish_waiting`."""
        self.waiting, self.front = waiting, front
        if self.row is not None and self.row.is_held():
            self._publish_waiting(self.row)

    def is_front(self, now_ms: int) -> bool:
        """Whether the first fetch that waits here is the first of all workers."""
        return self.row is None or not self.row.is_held() or self.row.is_front(now_ms)

    @property
    def last_throttle_round_ms(self) -> int:
        """When the last throttle round of the group was given out, here or elsewhere."""
        return self.throttle_round_ms if self.row is None else max(self.throttle_round_ms, self.row.last_throttle_round_ms())

    def take_throttle_round(self, throttle_round_ms: int) -> None:
        """Give out a throttle round, or take back the last one by telling the one before."""
        self.throttle_round_ms = throttle_round_ms
        if self.row is not None and self.row.is_held():
            self.row.publish_throttle_round(throttle_round_ms)

    def leave(self, group: EnforcedGroup) -> None:
        """Publish what is left and count alone from now on: the group is forgotten."""
        self.claim_ms = NEVER_MS
        if self.row is not None:
            if self.row.is_held():
                self.publish(group, group.last_record_ms)
            self._release(self.row)

    def hand_over(self, other: Sharing) -> None:
        """Let the group of `other` go on in this row, and this one count alone; what is under way here is no more known elsewhere."""
        other.row, other.seen, other.claim_ms, other.pulled_ms = self.row, self.seen, self.claim_ms, self.pulled_ms
        other.published, other.remote, other.throttle_round_ms = self.published, self.remote, self.throttle_round_ms
        other.pending = other.elsewhere = self.elsewhere
        other.waiting_elsewhere = self.waiting_elsewhere
        if self.waiting:
            self.note_waiting(0, 0)
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
        """As totals count it. Rounding is monotone, so a total falls by un-records only."""
        return round((group._recorded_before + group._value - self.remote) * self.rows.per_unit)

    def _publish_part(self, row: UsageRow, amount: int, time_ms: int) -> None:
        worker = self.rows.worker
        self.seen[worker] += amount
        row.publish(self.seen[worker], amount, time_ms)

    def _publish_under_way(self, row: UsageRow) -> None:
        under_way = round((self.pending - self.elsewhere) * self.rows.under_way_per_unit)
        row.publish_under_way(under_way)
        self.seen[self.rows.workers + self.rows.worker] = under_way

    def _publish_waiting(self, row: UsageRow) -> None:
        row.publish_waiting(self.waiting, self.front)
        at = 2 * self.rows.workers + self.rows.worker
        self.seen[at], self.seen[at + self.rows.workers] = self.waiting, self.front

    # Rows

    def _change_row(self, group: EnforcedGroup, left: UsageRow | None, now_ms: int) -> UsageRow | None:
        """Claim the row of the scope's present key; what was published in another one stays there and is not published again."""
        if left is not None:
            if left.is_held():
                _take_throttles_along(group, left, now_ms)
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
        self.row, self.seen, self.pulled_ms = claimed, [0] * (5 * self.rows.workers), -NEVER_MS
        self._take_in(group, claimed, claimed.used(), now_ms)
        if self.rows.on_remote is not None:
            self.rows.on_remote(group, self.rows.worker, 0, self.seen[self.rows.worker], now_ms, SKIPPED)
        for start_ms, amount in history:
            self._publish_part(claimed, amount, start_ms)
        self.published = self._own_amount(group)
        if self.waiting:
            self._publish_waiting(claimed)
        return claimed

    def _unpublished(self, group: EnforcedGroup, now_ms: int) -> Sequence[tuple[int, int]]:
        """Return (start of the sample in ms, amount) of what was used without a row and still counts, oldest first."""
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

    # Usage from elsewhere

    def _take_in(self, group: EnforcedGroup, row: UsageRow, used: list[int], now_ms: int) -> None:
        """Record what the totals say beyond what was seen; what is under way, and what waits, replaces what was."""
        seen, self.seen = self.seen, used
        workers, worker = self.rows.workers, self.rows.worker
        self._note_elsewhere(sum(used[workers : 2 * workers]) - used[workers + worker])
        if group.fetch_answer_bytes == UNKNOWN and any(used[4 * workers :]):
            group.fetch_answer_bytes = max(used[4 * workers :]) - 1
        self.waiting_elsewhere = sum(used[2 * workers : 3 * workers]) - used[2 * workers + worker]
        if self.waiting_elsewhere and group.fetch_queue is None:
            group.fetch_queue = group.new_fetch_queue()
        if now_ms - self.pulled_ms > self.rows.slot_ms:
            self._take_in_late(group, row, seen, now_ms)
            return
        for worker in range(workers):
            total = used[worker]
            if total != seen[worker]:
                self._record(group, now_ms, worker, total - seen[worker], total)

    def _note_elsewhere(self, under_way: int) -> None:
        elsewhere = under_way / self.rows.under_way_per_unit
        if elsewhere < self.elsewhere:
            self.made_room = True
        self.pending += elsewhere - self.elsewhere
        self.elsewhere = elsewhere

    def _take_in_late(self, group: EnforcedGroup, row: UsageRow, before: list[int], now_ms: int) -> None:
        """Record what was used since another look at the row, when it was used, in the order of time."""
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
        for remote in found:
            self._record(group, min(remote.time_ms, now_ms), remote.worker, remote.amount, remote.source_total)

    def _record(self, group: EnforcedGroup, time_ms: int, worker: int, amount: int, source_total: int) -> None:
        """Record usage from elsewhere, not before what was recorded last."""
        if time_ms < group._last_ms and group._values:
            time_ms = group._last_ms
        units = amount * self.rows.units
        group._add(units, time_ms)
        self.remote += units
        if self.rows.on_remote is not None:
            self.rows.on_remote(group, worker, amount, source_total, time_ms, REMOTE)


def _take_throttles_along(group: EnforcedGroup, left: UsageRow, now_ms: int) -> None:
    """What departed connections left in a row is left in the next one, by the first worker that goes there."""
    with left.departed() as throttles:
        if throttles is not None:
            for until_ms in (*throttles.until_ms, throttles.for_all_until_ms):
                if until_ms > now_ms:
                    HoldsThrottles.leave_throttle(group, until_ms, now_ms)
            throttles.until_ms.clear()
            throttles.for_all_until_ms = 0


def _by_slots(row: UsageRow, worker: int, seen: int, total: int, oldest_ms: int) -> list[Remote]:
    """Distribute what a worker used since `seen`: the newest slots hold it, and what they do not hold is older than all samples."""
    found: list[Remote] = []
    for start_ms, amount in row.sums(worker):
        part = min(amount, total - seen)
        if start_ms <= oldest_ms or total == seen:
            break
        if part > 0:
            found.append(Remote(start_ms, worker, part, total))
            total -= part
    return found
