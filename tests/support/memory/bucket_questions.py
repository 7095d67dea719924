"""Questions about buckets of controller mutations, answered in the same process."""

from typing import TypeVar

import msgspec

from proxy.workers.asked_bucket import Buckets
from proxy.workers.messaging.questions import AnyQuestion, Questions, UseBuckets

T = TypeVar("T")


class BucketQuestions(Questions):
    """The questions of one worker to a supervisor without a process, which has these buckets."""

    def __init__(self, buckets: Buckets) -> None:
        self._buckets = buckets

    def ask(self, question: AnyQuestion, answer: msgspec.msgpack.Decoder[T]) -> T | None:
        """Return the answer, encoded and decoded as between processes."""
        assert isinstance(question, UseBuckets)
        return answer.decode(msgspec.msgpack.encode(self._buckets.use(question)))
