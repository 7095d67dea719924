"""The loop's side of metering: a decision is packed into a buffer, and a full buffer changes hands. Nothing here waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from proxy.metering.batch import BATCH_RECORDS, Batch, Fact
from proxy.metering.record import RAW, RECORD, RECORD_BYTES, UNCHECKED
from quota.group import QuotaGroup

BUFFER_BYTES: Final = BATCH_RECORDS * RECORD_BYTES
INT32_MAX: Final = 2**31 - 1


class Describe(Protocol):
    """Says what a group is: the columns of dim_group and dim_bound that only the tables of quotas know."""

    def __call__(self, group: QuotaGroup) -> tuple[Fact, Fact]:
        """Return (columns of dim_group, columns of dim_bound)."""


class Meter:
    """Notes decisions in order.

    Args:
        hand_over: takes a batch; False when the queue is full, then its decisions are dropped and counted.
        describe: asked once per group and bound.
        wall_offset_ms: added to monotonic milliseconds; one number for the whole run.
    """

    __slots__ = ("_at", "_buffer", "_describe", "_facts", "_first_seq", "_groups", "_hand_over", "_offset_ms", "dropped")

    def __init__(self, hand_over: Callable[[Batch], bool], describe: Describe, wall_offset_ms: int) -> None:
        self._hand_over = hand_over
        self._describe = describe
        self._offset_ms = wall_offset_ms
        self._buffer = bytearray(BUFFER_BYTES)
        self._at = 0
        self._first_seq = 0
        self._facts: list[Fact] = []
        self._groups = 0
        self.dropped = 0
        """Decisions that no queue had room for."""

    @property
    def next_seq(self) -> int:
        """The number of the next decision."""
        return self._first_seq + self._at // RECORD_BYTES

    def record(self, group: QuotaGroup, value: int, throttle_ms: int, applied_ms: int, now_ms: int, conn_id: int, api_index: int) -> None:
        """Note a checked record of `value` (bytes, nanoseconds): what the group said, and what the client was told or held for."""
        if group.metered_bound is not group.bound:
            self._tell(group)
        at = self._at
        RAW.pack_into(
            self._buffer, at, now_ms + self._offset_ms, value, group.meter_ref, throttle_ms, applied_ms, conn_id, api_index, RECORD
        )
        self._at = at = at + RECORD_BYTES
        if at == BUFFER_BYTES:
            self.flush()

    def record_unchecked(self, group: QuotaGroup, value: int, now_ms: int, conn_id: int, api_index: int, kind: int = UNCHECKED) -> None:
        """Note what was recorded without a look at the bound, or taken back."""
        if group.metered_bound is not group.bound:
            self._tell(group)
        at = self._at
        RAW.pack_into(self._buffer, at, now_ms + self._offset_ms, value, group.meter_ref, 0, 0, conn_id, api_index, kind)
        self._at = at = at + RECORD_BYTES
        if at == BUFFER_BYTES:
            self.flush()

    def tell(self, fact: Fact) -> None:
        """Let a fact hold from the next decision on."""
        self._facts.append(fact)

    def flush(self) -> None:
        """Hand over what there is."""
        count = self._at // RECORD_BYTES
        if not count and not self._facts:
            return
        batch = Batch(self._first_seq, count, bytes(memoryview(self._buffer)[: self._at]), self._facts)
        self._first_seq += count
        self._at = 0
        if self._hand_over(batch):
            self._facts = []
            return
        self.dropped += count
        if count:  # the facts stay for the next batch, with word of the gap
            self._facts.append({"gap": {"from_seq": batch.first_seq, "n": count, "reason": "queue_full"}})

    def _tell(self, group: QuotaGroup) -> None:
        about, bound = self._describe(group)
        previous = group.metered_bound
        if group.meter_ref < 0:
            group.meter_ref = self._groups
            self._groups += 1
            self._facts.append({"group": {"group_ref": group.meter_ref, **about}})
        told: dict[str, Any] = {"group_ref": group.meter_ref, "from_seq": self.next_seq, "bound": group.bound, "previous": previous}
        self._facts.append({"bound": {**told, **bound}})
        group.metered_bound = group.bound
