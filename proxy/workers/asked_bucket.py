"""Token buckets of controller mutations: the supervisor holds them, so that all workers take from one balance.

A step charges a group and its parents with one question. The supervisor charges its buckets and returns the balances before the step. The
worker copies these balances into its own buckets and charges them, too. Both do the same arithmetic, so both have the same result, and the
worker can meter the balance before and after the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Self

import msgspec

from proxy.enforcement.groups.child_groups import ChildMutationGroup
from proxy.enforcement.groups.enforced_groups import EnforcedMutationGroup
from proxy.enforcement.quota_scopes import CLUSTER
from proxy.shared_usage.segment_row import SegmentRow
from proxy.shared_usage.shared_groups import SHARE_LITTLE_MS, SHARE_MS
from proxy.shared_usage.shared_throttles import OwnRow, SharedThrottles, ThrottleRow, ThrottleRows
from proxy.shared_usage.shared_usage import ScopeRows, SharedUsage
from proxy.workers.fleet_mutations import FleetMutations
from proxy.workers.handover.messages import BucketState
from proxy.workers.messaging.questions import BucketOf, Questions, UseBuckets
from quota.entity import UNLIMITED, ClientQuotaType
from quota.sensor import TokenBucket

Balance = tuple[float, int]
"""Tokens, and the time of that balance in monotonic milliseconds."""
_BALANCES: Final[msgspec.msgpack.Decoder[list[Balance]]] = msgspec.msgpack.Decoder(list[Balance])


class Asked(SharedThrottles, EnforcedMutationGroup):
    """A group whose bucket is in the supervisor. While the supervisor does not answer, the worker uses the last balance.

    Throttles of departed connections are in a row of the segment, which is claimed when a connection leaves a throttle
    or looks for one. With a fleet the row also has the mutations that this worker has counted.
    """

    __slots__ = ()

    questions: Questions
    own_row: OwnRow

    def begin(self, permits: float, now_ms: int, *, strict: bool) -> None:
        """Charge the supervisor's buckets with `permits`, and use the balances that it returns."""
        _begin(self, self.questions, permits, now_ms, strict=strict)

    def _count(self, permits: float, now_ms: int) -> None:
        super()._count(permits, now_ms)
        if self.own_row.is_in_fleet:
            row = self._row_at(now_ms)
            if isinstance(row, SegmentRow):
                row.publish_more(round(permits), now_ms)

    def leave(self) -> None:
        """Stop using the row."""
        self.own_row.release()

    def copy_to(self, other: Self) -> None:
        """Copy the state to another group, which replaces this one and gets the row."""
        super().copy_to(other)
        self.own_row.hand_over(other.own_row)
        if other.departed_until_ms:
            other._note_unpublished()

    def publish(self, now_ms: int) -> None:
        """Move the throttles kept here to the row; without a row try again after `SHARE_LITTLE_MS`."""
        self.own_row.note_published()
        if self.departed_until_ms <= now_ms:
            return
        row = self._row_at(now_ms)
        if row is None:
            self.own_row.note_unpublished(self, SHARE_LITTLE_MS)
        else:
            self._share_throttles(row, now_ms)

    def _row_at(self, now_ms: int) -> ThrottleRow | None:
        return self.own_row.at(self.key, now_ms)

    def _note_unpublished(self) -> None:
        self.own_row.note_unpublished(self, SHARE_MS)


class AskedGroup(Asked):
    """A group without a parent."""

    __slots__ = ("own_row", "questions")


class AskedChildGroup(Asked, ChildMutationGroup):
    """A group with a parent; both have their buckets in the supervisor."""

    __slots__ = ("own_row", "questions")


def _begin(group: EnforcedMutationGroup, questions: Questions, permits: float, now_ms: int, *, strict: bool) -> None:
    chain = list(_chain(group))
    buckets = [BucketOf(tuple(sorted(one.tags.items())), one.bound, one.num_samples, one.window_ms) for one in chain]
    balances = questions.ask(UseBuckets(buckets, permits, now_ms, strict), _BALANCES)
    for one, balance in zip(chain, balances or (), strict=False):
        one.balance = balance


def _chain(group: EnforcedMutationGroup) -> Iterator[EnforcedMutationGroup]:
    one: EnforcedMutationGroup | None = group
    while one is not None:
        yield one
        one = one.parent


def asked_buckets(questions: Questions, usage: SharedUsage) -> Callable[..., Asked]:
    """Return the function that creates the groups of controller mutations of one worker, as `enforced_bucket` does."""
    return partial(_asked_bucket, questions, ScopeRows(usage, CLUSTER, ClientQuotaType.CONTROLLER_MUTATION))


def _asked_bucket(
    questions: Questions,
    rows: ThrottleRows,
    tags: Mapping[str, str],
    bound: float = UNLIMITED,
    parent: EnforcedMutationGroup | None = None,
    **settings: Any,
) -> Asked:
    group = AskedGroup(tags, bound, **settings) if parent is None else AskedChildGroup(tags, bound, parent, **settings)
    group.questions, group.own_row = questions, OwnRow(rows)
    return group


class Buckets:
    """The token buckets of all workers, in the supervisor; a new bucket is full.

    Args:
        others: usage of other members of the fleet; None: there is no fleet.
    """

    EXPIRE_WINDOWS: Final = 2

    def __init__(self, others: FleetMutations | None = None) -> None:
        self._buckets: dict[tuple[tuple[str, str], ...], TokenBucket] = {}
        self._others = others

    def __len__(self) -> int:
        return len(self._buckets)

    def use(self, question: UseBuckets) -> list[Balance]:
        """Refill the buckets of a chain, and take the permits from each; return the balances before the refill."""
        now_ms = question.now_ms
        buckets = [self._of(one, now_ms) for one in question.buckets]
        if self._others is not None:
            for asked, bucket in zip(question.buckets, buckets, strict=True):
                for at_ms, permits in self._others.used(asked.key, now_ms):
                    bucket.record(permits, max(at_ms, bucket.balance[1]))
        found = [bucket.balance for bucket in buckets]
        # A question arrives after the worker read its clock, and another worker's may come first: no returned time is after `now_ms`.
        times = [max(now_ms, since_ms) for _, since_ms in found]
        balances = [bucket.measure(at_ms) for bucket, at_ms in zip(buckets, times, strict=True)]
        if not question.strict or min(balances) >= 0.0:
            for bucket, at_ms in zip(buckets, times, strict=True):
                bucket.record(question.permits, at_ms)
        return [(tokens, min(since_ms, now_ms)) for tokens, since_ms in found]

    def _of(self, asked: BucketOf, now_ms: int) -> TokenBucket:
        bucket = self._buckets.get(asked.key)
        if bucket is None or (bucket.num_samples, bucket.window_ms) != (asked.num_samples, asked.window_ms):
            full_since_ms = now_ms - self.EXPIRE_WINDOWS * asked.num_samples * asked.window_ms
            bucket = self._buckets[asked.key] = TokenBucket(asked.num_samples, asked.window_ms, asked.bound, full_since_ms)
        bucket.bound = asked.bound
        return bucket

    def states(self) -> list[BucketState]:
        """Return the state of every bucket, for the supervisor that replaces this one."""
        return [
            BucketState(key, bucket.num_samples, bucket.window_ms, bucket.bound, *bucket.balance) for key, bucket in self._buckets.items()
        ]

    def restore(self, states: Sequence[BucketState]) -> None:
        """Continue the buckets of another supervisor; all processes of a host have the same monotonic clock."""
        for state in states:
            bucket = TokenBucket(state.num_samples, state.window_ms, state.bound, state.last_update_ms)
            bucket.record(-state.tokens, state.last_update_ms)
            self._buckets[state.key] = bucket
            if self._others is not None:
                self._others.skip(state.key)

    def expire(self, now_ms: int) -> None:
        """Remove full buckets: a new bucket is full, so nothing is lost."""
        for key in [key for key, bucket in self._buckets.items() if bucket.is_full(now_ms)]:
            del self._buckets[key]
            if self._others is not None:
                self._others.forget(key)
