"""A batch for the writer: raw decisions and the facts that explain them."""

from typing import Any, Final

Fact = dict[str, Any]
"""One fact of a segment: {"group": {...}}, and so on for bound, state, gap, usage, client, buckets, compared, run and end."""

BATCH_WORDS: Final = 16_384
FACT_BYTES: Final = 500
USAGE_ROW_BYTES: Final = 600
BUCKET_BYTES: Final = 200
COMPARED_BYTES: Final = 200


class Batch:
    """Decisions `first_seq` to `first_seq + count - 1`; facts apply from their position on and are never lost separately."""

    __slots__ = ("count", "facts", "first_seq", "records", "words")

    def __init__(self, first_seq: int, count: int, words: bytes, records: bytes, facts: list[Fact]) -> None:
        self.first_seq = first_seq
        self.count = count
        self.words = words
        self.records = records
        self.facts = facts

    @property
    def size(self) -> int:
        """The approximate size in bytes while it waits."""
        rows = sum(len(fact["usage"]["rows"]) for fact in self.facts if "usage" in fact)
        buckets = sum(len(fact["buckets"]) for fact in self.facts if "buckets" in fact)
        compared = sum(len(fact["compared"]["rows"]) for fact in self.facts if "compared" in fact)
        of_facts = FACT_BYTES * len(self.facts) + USAGE_ROW_BYTES * rows + BUCKET_BYTES * buckets + COMPARED_BYTES * compared
        return len(self.words) + len(self.records) + of_facts
