"""Token buckets of controller mutations: the supervisor holds them, so that all workers take from one balance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from proxy.enforcement.groups.child_groups import enforced_bucket
from proxy.enforcement.groups.enforced_groups import EnforcedMutationGroup
from proxy.workers.messaging.questions import Questions, UseBucket
from quota.entity import UNLIMITED
from quota.sensor import TokenBucket

Balance = tuple[float, int]
"""Tokens, and the time at which they were that many, in monotonic milliseconds."""
_BALANCE: Final[msgspec.msgpack.Decoder[Balance]] = msgspec.msgpack.Decoder(Balance)


class AskedBucket(TokenBucket):
    """A worker's view of a bucket: each use of it is asked for. While the supervisor does not answer, the last balance is used here."""

    __slots__ = ("_key", "_questions")

    def __init__(
        self, questions: Questions, tags: Mapping[str, str], num_samples: int, window_ms: int, bound: float, last_update_ms: int
    ) -> None:
        super().__init__(num_samples, window_ms, bound, last_update_ms)
        self._questions = questions
        self._key = tuple(sorted(tags.items()))

    def record(self, permits: float, now_ms: int) -> None:
        """Take `permits`; negative ones are given back."""
        if not self._ask(permits, now_ms):
            super().record(permits, now_ms)

    def measure(self, now_ms: int) -> float:
        """Return the balance after refilling."""
        if not self._ask(None, now_ms):
            return super().measure(now_ms)
        return self._tokens

    def _ask(self, permits: float | None, now_ms: int) -> bool:
        question = UseBucket(self._key, self.bound, self.num_samples, self.window_ms, permits, now_ms)
        balance = self._questions.ask(question, _BALANCE)
        if balance is None:
            return False
        self._tokens, self._last_update_ms = balance
        return True


def asked_bucket(
    questions: Questions, tags: Mapping[str, str], bound: float = UNLIMITED, parent: EnforcedMutationGroup | None = None, **settings: Any
) -> EnforcedMutationGroup:
    """Make a group of controller mutations whose bucket the supervisor holds, a part of `parent` where there is one."""
    bucket = AskedBucket(questions, tags, settings["num_samples"], settings["window_ms"], bound, settings.get("last_update_ms", 0))
    return enforced_bucket(tags, bound, parent, bucket=bucket, **settings)


class Buckets:
    """The buckets of all workers, in the supervisor; a new one is full."""

    EXPIRE_WINDOWS: Final = 2

    def __init__(self) -> None:
        self._buckets: dict[tuple[tuple[str, str], ...], TokenBucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def use(self, question: UseBucket) -> Balance:
        """Refill a bucket, take from it what is asked for; return its balance."""
        bucket = self._buckets.get(question.key)
        if bucket is None or (bucket.num_samples, bucket.window_ms) != (question.num_samples, question.window_ms):
            full_since_ms = question.now_ms - self.EXPIRE_WINDOWS * question.num_samples * question.window_ms
            bucket = TokenBucket(question.num_samples, question.window_ms, question.bound, full_since_ms)
            self._buckets[question.key] = bucket
        bucket.bound = question.bound
        if question.permits is None:
            bucket.measure(question.now_ms)
        else:
            bucket.record(question.permits, question.now_ms)
        return bucket.balance

    def expire(self, now_ms: int) -> None:
        """Forget the buckets that are full: a new one would be the same."""
        for key in [key for key, bucket in self._buckets.items() if bucket.is_full(now_ms)]:
            del self._buckets[key]
