"""Records that prove their origin, and a ledger of sent, acknowledged, stored and read ones.

A value is: magic, run id (16 bytes), producer (2), partition (2), epoch (2), sequence number (8), body length (4), a body that is derived
from producer and number, and a 64-bit hash of all before.
"""

import hashlib
import random
import struct
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_HEAD = struct.Struct(">4s16sHHHQI")
_MAGIC = b"slce"
_HASH_BYTES = 8
OVERHEAD_BYTES = _HEAD.size + _HASH_BYTES
_NOISE_BYTES = 2 * 1024 * 1024
_NOISE = random.Random(7).randbytes(_NOISE_BYTES)


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One record: its producer, its partition, and its number there."""

    producer: int
    partition: int
    number: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as it was read."""

    partition: int
    offset: int
    value: bytes


@dataclass(slots=True)
class Verdict:
    """The errors found; all fields are empty when nothing was lost."""

    lost: list[Entry] = field(default_factory=list)
    duplicates: list[Entry] = field(default_factory=list)
    corrupt: list[tuple[int, int]] = field(default_factory=list)
    foreign: list[Entry] = field(default_factory=list)
    out_of_order: list[Entry] = field(default_factory=list)

    def problems(self) -> dict[str, int]:
        """Return kind -> count of what is wrong."""
        return {name: len(getattr(self, name)) for name in self.__slots__ if getattr(self, name)}


class Ledger:
    """Makes and judges the records of one run."""

    def __init__(self) -> None:
        self.run_id = uuid.uuid4().bytes

    def value(self, entry: Entry, body_bytes: int, epoch: int = 0) -> bytes:
        """Return the record's value; `body_bytes` at most 1 MiB."""
        start = (entry.producer * 7_919 + entry.number * 104_729) % (_NOISE_BYTES // 2)
        head = _HEAD.pack(_MAGIC, self.run_id, entry.producer, entry.partition, epoch, entry.number, body_bytes)
        return self._seal(head + _NOISE[start : start + body_bytes])

    def read(self, value: bytes) -> Entry | None:
        """Return the origin of a value, or None when it is not one that was sent."""
        if len(value) < OVERHEAD_BYTES or self._seal(value[:-_HASH_BYTES]) != value:
            return None
        magic, run_id, producer, partition, _, number, body_bytes = _HEAD.unpack_from(value)
        if magic != _MAGIC or run_id != self.run_id or body_bytes != len(value) - OVERHEAD_BYTES:
            return None
        return Entry(producer, partition, number)

    def judge(self, acknowledged: Iterable[Entry], stored: Iterable[Stored]) -> Verdict:
        """Compare the acknowledged records with the stored ones."""
        verdict = Verdict()
        seen: set[Entry] = set()
        last: dict[tuple[int, int], int] = defaultdict(lambda: -1)
        for record, entry in self._in_log_order(stored, verdict):
            if entry.partition != record.partition:
                verdict.foreign.append(entry)
            if entry in seen:
                verdict.duplicates.append(entry)
            elif entry.number < last[entry.producer, entry.partition]:
                verdict.out_of_order.append(entry)
            seen.add(entry)
            last[entry.producer, entry.partition] = max(entry.number, last[entry.producer, entry.partition])
        verdict.lost = sorted(set(acknowledged) - seen)
        return verdict

    def _in_log_order(self, stored: Iterable[Stored], verdict: Verdict) -> Iterator[tuple[Stored, Entry]]:
        for record in sorted(stored, key=lambda one: (one.partition, one.offset)):
            entry = self.read(record.value)
            if entry is None:
                verdict.corrupt.append((record.partition, record.offset))
            else:
                yield record, entry

    @staticmethod
    def _seal(content: bytes) -> bytes:
        return content + hashlib.blake2b(content, digest_size=_HASH_BYTES).digest()


def order_free_hash(stored: Iterable[Stored]) -> tuple[int, int]:
    """Return the count and the xor of the hashes of (partition, offset, value), which do not depend on the order."""
    count = mixed = 0
    for record in stored:
        content = struct.pack(">iq", record.partition, record.offset) + record.value
        mixed ^= int.from_bytes(hashlib.blake2b(content, digest_size=_HASH_BYTES).digest())
        count += 1
    return count, mixed
