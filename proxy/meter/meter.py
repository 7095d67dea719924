"""Packs decisions into a buffer and passes full buffers to the writer. Never blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import pack_into
from typing import Any, Final, NamedTuple, Protocol

from metering_format.event_kinds import EXCUSED_MS, NOTE, RECORD, SKIPPED, UNCHECKED
from proxy.enforcement.groups.child_groups import ChildGroup
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.meter.batch import BATCH_WORDS, Batch, Fact
from proxy.meter.buffer import DecisionBuffer
from proxy.meter.comparisons import Comparisons
from proxy.meter.record import (
    GROUPS_MAX,
    MORE,
    PASSED,
    RAW,
    RECORD_BYTES,
    RECORDED,
    REMOTE,
    REMOTE_AMOUNT,
    REMOTE_SKIPPED,
    REMOTE_TOTAL,
    REMOTE_WORDS,
    SOURCE_AT,
    TIME,
    VALUE_BITS,
    VALUE_END,
    WORD_BYTES,
)
from proxy.meter.shares import MemberShares
from proxy.meter.usage import UsageCells
from quota.sensor import SampleRing

REQUEST: Final = "Request"
NS_PER_PERCENT_SECOND: Final = 1e7
NEVER_MS: Final = -1
NO_CONNECTION: Final = 0
NO_API: Final = -1 << 16
"""Connection and API of a decision that no request caused."""
RUN_WORDS_END: Final = BATCH_WORDS - 1
"""Below it there is space for two words."""
REPEATED_MAX: Final = 4 * BATCH_WORDS
"""Most decisions of a batch beyond one per word, which bounds what its writer unfolds at once."""


class Metered(Protocol):
    """An object that makes decisions: a group of clients, the rate of an address, a bucket of mutations."""

    meter_ref: int
    """Its number in this run; below 0: none yet."""
    metered_bound: float | None
    """The object that was its bound when it was last described."""

    @property
    def parent(self) -> Metered | None:
        """The parent group: everything recorded in this group was recorded there too."""

    @property
    def bound(self) -> float:
        """Units per second."""


class BucketStep(NamedTuple):
    """One operation on a token bucket.

    Attributes:
        kind: `CHARGED`, `REFUSED`, `OWED` or `SETTLED`.
        permits: number of mutations; negative when given back.
        before, since_ms: the balance before the operation, and the time of that balance, without the refill since.
        after: the balance after the operation.
    """

    kind: int
    permits: int
    before: float
    since_ms: int
    after: float


class Describe(Protocol):
    """Describes a group: the columns of dim_group and dim_bound that only the tables of quotas know."""

    def __call__(self, group: Metered) -> tuple[Fact, Fact]:
        """Return (columns of dim_group, columns of dim_bound)."""


class Meter:
    """Records decisions in order.

    Args:
        hand_over: receives a batch; False when the queue is full, and its decisions are dropped and counted.
        describe: called once per group and bound.
        wall_offset_ms: added to monotonic milliseconds; one number for the whole run.
        described_groups: returns the groups that may have been described; called after a loss.
        continued: groups with samples of before this run; these are recorded before the first decision of the group.

    Attributes:
        usage: the usage of clients, with or without a quota.
        shares: the shares of members of paced groups.
        dropped: number of decisions dropped because the queue was full.
    """

    __slots__ = (
        "_at",
        "_beside",
        "_buffer",
        "_comparisons",
        "_continued",
        "_describe",
        "_described",
        "_facts",
        "_first_seq",
        "_groups",
        "_hand_over",
        "_now_ms",
        "_offset_ms",
        "_records",
        "_records_at",
        "_renamed",
        "_steps",
        "_word",
        "_words",
        "dropped",
        "shares",
        "usage",
    )

    def __init__(
        self,
        hand_over: Callable[[Batch], bool],
        describe: Describe,
        wall_offset_ms: int,
        described_groups: Callable[[], Iterable[Metered]] = tuple,
        *,
        buffer: DecisionBuffer | None = None,
        continued: Iterable[Metered] = (),
    ) -> None:
        self._hand_over = hand_over
        self._describe = describe
        self._offset_ms = wall_offset_ms
        self._described = described_groups
        self._buffer = buffer or DecisionBuffer()
        self._words = self._buffer.words
        self._at = 0  # position of the next word
        self._now_ms = NEVER_MS  # its time
        self._word = 0  # `meter_word` of the group of the last word with a tag, to which words without a tag belong; 0: none
        self._beside = 0  # decisions minus words: a time is no decision, a run of equal ones is many
        self._records = self._buffer.records
        self._records_at = 0
        self._first_seq = 0
        self._facts: list[Fact] = []
        self._steps: list[tuple[int, float, int, float]] = []  # of buckets: number, balance before, its time, balance after
        self._groups = 0
        self._continued = set(continued)
        self._comparisons = Comparisons()
        self._renamed: set[int] = set()  # groups to describe again before their next decision
        self.usage = UsageCells(on_new=self._buffer.usage_rows)
        self.shares = MemberShares()
        self.dropped = 0

    @property
    def next_seq(self) -> int:
        """The number of the next decision."""
        return self._first_seq + self._at + self._beside

    def record(self, group: Metered, value: int, throttle_ms: int, applied_ms: int, now_ms: int, conn_id: int, api_index: int) -> None:
        """Record a checked record of `value` (bytes, nanoseconds), with the group's throttle time and the client's."""
        if group.parent is not None:
            throttle_ms = self._record_above(group, value, applied_ms, now_ms, conn_id, api_index)
        self._note(group, value, throttle_ms, applied_ms, now_ms, conn_id, api_index, RECORD)

    def passes(self, group: EnforcedGroup, value: int, now_ms: int) -> bool:
        """Do what `passed` does with one word, as nearly always; `value` is above 0 and below 2^34. False: nothing was done."""
        word, at = group.meter_word, self._at
        if not word or now_ms != self._now_ms or at >= BATCH_WORDS:
            return False
        if word is self._word:  # the group of the last word: the value alone is enough
            self._words[at] = value
        else:
            self._words[at] = word + value
            self._word = word
        self._at = at + 1
        return True

    def passed(self, group: EnforcedGroup, value: int, now_ms: int, conn_id: int, api_index: int) -> None:
        """Record a checked record of `value` without a delay."""
        if 0 < value < VALUE_END and self.passes(group, value, now_ms):
            return
        if group.parent is not None:
            self.passed(group.parent, value, now_ms, conn_id, api_index)
        if not 0 <= value < VALUE_END or self._groups >= GROUPS_MAX:
            self._note(group, value, 0, 0, now_ms, conn_id, api_index, RECORD)
            return
        at, word = self._begin_words(group, value, now_ms, 1)
        self._words[at] = word + value
        self._at = at + 1

    def admitted(self, group: EnforcedGroup, value: int, waited_ms: int, now_ms: int, conn_id: int, api_index: int) -> None:
        """Record a checked record of `value` that a schedule let pass after `waited_ms`; its parents let it pass at the same time."""
        if not waited_ms:
            self.passed(group, value, now_ms, conn_id, api_index)
            return
        if group.parent is not None:
            self.admitted(group.parent, value, waited_ms, now_ms, conn_id, api_index)
        self._note(group, value, waited_ms, waited_ms, now_ms, conn_id, api_index, RECORD)

    def excused(self, group: EnforcedGroup, value: int, waited_ms: int, now_ms: int, conn_id: int, api_index: int) -> None:
        """Record a checked record of `value` that passed after `waited_ms`, before its time, since it keeps a group membership."""
        if group.parent is not None:
            self.excused(group.parent, value, waited_ms, now_ms, conn_id, api_index)
        self._note(group, value, waited_ms, EXCUSED_MS, now_ms, conn_id, api_index, RECORD)

    def passed_run(self, group: EnforcedGroup, values: list[int], now_ms: int, conn_id: int, api_index: int) -> None:
        """Record two or more checked records of `values`, all above 0 and below 2^31, without a delay.

        They are few, were recorded together, and belong to one sample.
        """
        if group.parent is not None:
            self.passed_run(group.parent, values, now_ms, conn_id, api_index)
        if self._groups >= GROUPS_MAX:
            self._note_run(group, values, now_ms, conn_id, api_index)
            return
        count = len(values)
        at, word = self._begin_words(group, sum(values), now_ms, count)
        pack_into(f"<{count}q", self._words, at * WORD_BYTES, word + values[0], *values[1:])
        self._at = at + count

    def passed_alike(self, group: EnforcedGroup, value: int, count: int, now_ms: int, conn_id: int, api_index: int) -> None:
        """Do what `passed_run` does for `count` records of one `value` below `RUN_VALUE_END`."""
        word, at = group.meter_word, self._at
        if word and now_ms == self._now_ms and at < RUN_WORDS_END and self._beside <= REPEATED_MAX:
            more = count - 1
            if word is not self._word:
                self._words[at] = word + value
                self._word = word
                at += 1
                more -= 1
            self._words[at] = more * MORE - value
            self._at = at + 1
            self._beside += more
            return
        if group.parent is not None:
            self.passed_alike(group.parent, value, count, now_ms, conn_id, api_index)
        if self._groups >= GROUPS_MAX:
            self._note_run(group, [value] * count, now_ms, conn_id, api_index)
            return
        at, word = self._begin_words(group, value * count, now_ms, 2)
        self._words[at] = word + value
        self._words[at + 1] = (count - 2) * MORE - value
        self._at = at + 2
        self._beside += count - 2

    def _next_ms(self, now_ms: int) -> None:
        """Set the time of the following words."""
        at = self._at
        if at == BATCH_WORDS or self._beside > REPEATED_MAX:
            self.flush()
            at = 0
        self._words[at] = TIME + now_ms
        self._at = at + 1
        self._beside -= 1
        self._now_ms = now_ms

    def record_unchecked(self, group: Metered, value: int, now_ms: int, conn_id: int, api_index: int, kind: int = UNCHECKED) -> None:
        """Record what was recorded without a check of the bound, or taken back."""
        if group.parent is not None:
            self.record_unchecked(group.parent, value, now_ms, conn_id, api_index, kind)
        self._note(group, value, 0, 0, now_ms, conn_id, api_index, kind)

    def schedule_begins(self, group: Metered, throttle_ms: int, now_ms: int) -> None:
        """Record that a group gets a schedule, whose lead begins as the throttle time of its window: a decision without usage."""
        if group.meter_ref >= 0:
            self._note(group, 0, throttle_ms, throttle_ms, now_ms, NO_CONNECTION, NO_API, RECORD)

    def schedule_rescaled(self, group: Metered, now_ms: int) -> None:
        """Record that the schedule of a group has another lead from now on, since its bound changed: an amount of 0 without a check."""
        if group.meter_ref >= 0:
            self._note(group, 0, 0, 0, now_ms, NO_CONNECTION, NO_API, UNCHECKED)

    def remote(self, group: Metered, source: int, amount: int, source_total: int, now_ms: int, kind: int) -> None:
        """Record usage of another process in a group; parents have their own calls.

        Args:
            source: number of the other process.
            amount: bytes, or nanoseconds.
            source_total: its total for the group at that time.
            kind: `REMOTE`, or `SKIPPED` when it was not recorded here.
        """
        if self._at + REMOTE_WORDS >= BATCH_WORDS or self._beside > REPEATED_MAX:
            self.flush()
        if group.metered_bound is not group.bound:
            self._describe_bound(group, 0 if kind == SKIPPED else amount)
        if now_ms != self._now_ms:
            self._next_ms(now_ms)
        at, words = self._at, self._words
        words[at] = (REMOTE | REMOTE_SKIPPED if kind == SKIPPED else REMOTE) + (source << SOURCE_AT) + group.meter_ref
        words[at + 1] = REMOTE_AMOUNT + amount
        words[at + 2] = REMOTE_TOTAL + source_total
        self._at = at + REMOTE_WORDS
        self._beside -= REMOTE_WORDS - 1

    def _begin_words(self, group: EnforcedGroup, value: int, now_ms: int, words: int) -> tuple[int, int]:
        """Reserve `words` words of a group that has just recorded `value` in all; return their position, and the word of the group."""
        if self._at + words >= BATCH_WORDS or self._beside > REPEATED_MAX:
            self.flush()
        if group.metered_bound is not group.bound:
            self._describe_bound(group, value)
        if now_ms != self._now_ms:
            self._next_ms(now_ms)
        at, word = self._at, group.meter_word or group.meter_ref << VALUE_BITS | PASSED
        self._word = word
        if group.parent is None:
            group.meter_word = word
        return at, word

    def _note_run(self, group: EnforcedGroup, values: list[int], now_ms: int, conn_id: int, api_index: int) -> None:
        if self._at + len(values) > BATCH_WORDS:
            self.flush()
        if group.metered_bound is not group.bound:
            self._describe_bound(group, sum(values))
        for value in values:
            self._note(group, value, 0, 0, now_ms, conn_id, api_index, RECORD)

    def _note(
        self, group: Metered, value: int, throttle_ms: int, applied_ms: int, now_ms: int, conn_id: int, api_index: int, kind: int
    ) -> None:
        """Record a decision with all of its attributes."""
        if self._at == BATCH_WORDS:
            self.flush()
        if group.metered_bound is not group.bound:
            self._describe_bound(group, value)
        at = self._records_at
        RAW.pack_into(self._records, at, now_ms, value, group.meter_ref, throttle_ms, applied_ms, conn_id, api_index, kind)
        self._records_at = at + RECORD_BYTES
        self._words[self._at] = RECORDED
        self._at += 1

    def _record_above(self, group: Metered, value: int, applied_ms: int, now_ms: int, conn_id: int, api_index: int) -> int:
        """Record a checked record for the parents of a group, each with its own throttle time; return the group's own.

        Nothing is throttled by a record of a paced group.
        """
        assert group.parent is not None
        own_ms, above_ms = (group.own_ms, group.above_ms) if isinstance(group, ChildGroup) else (0, 0)
        self.record(group.parent, value, max(above_ms, 0), applied_ms, now_ms, conn_id, api_index)
        return max(own_ms, 0)

    def note(self, group: Metered, value: int, throttle_ms: int, applied_ms: int, now_ms: int, conn_id: int, api_index: int) -> None:
        """Record a decision without a sensor: a fetch that waits. Only a trace contains it."""

    def mutation(
        self, group: Metered, step: BucketStep, throttle_ms: int, applied_ms: int, now_ms: int, conn_id: int, api_index: int
    ) -> None:
        """Record a decision of a token bucket on controller mutations; they are few, so all levels contain them."""
        if self._at == BATCH_WORDS:
            self.flush()
        self._steps.append((self.next_seq, step.before, step.since_ms + self._offset_ms, step.after))
        self._note(group, step.permits, throttle_ms, applied_ms, now_ms, conn_id, api_index, step.kind)

    def compared(self, quota_type: str, group: Metered | None, client_ref: int | None, broker_ms: int, sluice_ms: int, now_ms: int) -> None:
        """Record the broker's throttle time in a response, and Sluice's; only when one of them is above 0."""
        group_ref = group.meter_ref if group is not None and group.meter_ref >= 0 else None
        self._comparisons.add((now_ms + self._offset_ms, quota_type, group_ref, client_ref, broker_ms, sluice_ms))

    def add_fact(self, fact: Fact) -> None:
        """Add a fact that applies from the next decision on."""
        self._facts.append(fact)

    def repeat_bounds(self) -> None:
        """Describe the bound of every group again before its next decision, because quotas changed or decisions were lost."""
        for group in self._described():
            if group.metered_bound is not None:
                group.metered_bound += 0.0  # an equal number, and another object
                if isinstance(group, EnforcedGroup):
                    group.meter_word = 0

    def repeat_groups(self) -> None:
        """Describe every group again, because a broker's node id became known."""
        self._renamed = {group.meter_ref for group in self._described() if group.metered_bound is not None}
        self.repeat_bounds()

    def flush(self) -> None:
        """Hand over the current batch."""
        self._flush(self._hand_over)

    def finish(self, hand_over: Callable[[Batch], bool]) -> None:
        """Hand over the last batch, with the number of losses before it, to a receiver that accepts every batch."""
        self._flush(hand_over)

    def _flush(self, hand_over: Callable[[Batch], bool]) -> None:
        count = self._at + self._beside
        compared = self._comparisons.take()
        if not count and not self._facts and not compared:
            return
        facts = [*self._facts, {"buckets": self._steps}] if self._steps else self._facts
        facts = facts + compared if compared else facts
        words, records = self._buffer.take(self._at, self._records_at, self._first_seq + count)
        batch = Batch(self._first_seq, count, words, records, facts)
        self._steps = []
        if hand_over(batch):
            self._facts = []
        else:
            self._comparisons.lose(compared)
            if count:
                self._lose(count)
        self._first_seq += count
        self._at = self._beside = self._records_at = self._word = 0
        self._now_ms = NEVER_MS

    def _lose(self, count: int) -> None:
        """Drop decisions; the facts are kept for the next batch, with a gap."""
        self.dropped += count
        last = self._facts[-1].get("gap") if self._facts else None
        if last is not None and last["from_seq"] + last["n"] == self._first_seq:
            last["n"] += count
        else:
            self._facts.append({"gap": {"from_seq": self._first_seq, "n": count, "reason": "queue_full"}})
        self.repeat_bounds()

    def _describe_bound(self, group: Metered, value: int) -> None:
        about, bound = self._describe(group)
        previous = group.metered_bound
        if group.meter_ref < 0:
            group.meter_ref = self._groups
            self._groups += 1
            self._facts.append({"group": {"group_ref": group.meter_ref, **about}})
        elif group.meter_ref in self._renamed:
            self._renamed.discard(group.meter_ref)
            self._facts.append({"group": {"group_ref": group.meter_ref, **about}})
        if (group in self._continued if previous is None else self.dropped) and isinstance(group, SampleRing):
            units = NS_PER_PERCENT_SECOND if about["quota_type"] == REQUEST else 1.0
            samples = self._ring(group, value, units)
            self._facts.append({"ring": {"group_ref": group.meter_ref, "from_seq": self.next_seq, "samples": samples}})
        common: dict[str, Any] = {
            "group_ref": group.meter_ref,
            "from_seq": self.next_seq,
            "bound": float(group.bound),
            "previous": previous,
        }
        self._facts.append({"bound": {**common, **bound}})
        group.metered_bound = group.bound

    def _ring(self, group: SampleRing, value: int, units: float) -> list[tuple[int, int, int]]:
        """Return the samples of the sensor before the decision of `value` that it has just recorded.

        They are needed after a loss, and if the sensor continues one of another run.

        A sample that this decision began is included as an empty one, which the decision then joins.
        """
        offset_ms = self._offset_ms
        samples = [(start_ms + offset_ms, last_ms + offset_ms, round(held * units)) for start_ms, last_ms, held in group.live_samples()]
        start_ms, last_ms, held = samples[-1]
        samples[-1] = (start_ms, last_ms, held - value)
        return samples


class TracingMeter(Meter):
    """Also records connection and API, and decisions without a sensor (level `trace`)."""

    __slots__ = ()

    def passed(self, group: EnforcedGroup, value: int, now_ms: int, conn_id: int, api_index: int) -> None:
        """Record a checked record with its connection and API."""
        self.record(group, value, 0, 0, now_ms, conn_id, api_index)

    def passed_run(self, group: EnforcedGroup, values: list[int], now_ms: int, conn_id: int, api_index: int) -> None:
        """Record checked records, each with its connection and API."""
        if group.parent is not None:
            self.passed_run(group.parent, values, now_ms, conn_id, api_index)
        self._note_run(group, values, now_ms, conn_id, api_index)

    def passed_alike(self, group: EnforcedGroup, value: int, count: int, now_ms: int, conn_id: int, api_index: int) -> None:
        """Record checked records of one value, each with its connection and API."""
        self.passed_run(group, [value] * count, now_ms, conn_id, api_index)

    def note(self, group: Metered, value: int, throttle_ms: int, applied_ms: int, now_ms: int, conn_id: int, api_index: int) -> None:
        """Record a decision without a sensor."""
        self._note(group, value, throttle_ms, applied_ms, now_ms, conn_id, api_index, NOTE)
