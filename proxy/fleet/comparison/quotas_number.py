"""A number that depends on the quotas of a member, so that members notice that theirs differ."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from hashlib import blake2b
from typing import Any


class QuotasNumber:
    """The number of the present quotas. Only what has changed is hashed again."""

    def __init__(self) -> None:
        self._parts: dict[Hashable, tuple[object, int]] = {}
        self.number = 0

    def update(self, *tables: Mapping[Any, object]) -> int:
        """Return the number of these tables of quotas and switches; their values are never changed in place."""
        before, self._parts = self._parts, {}
        for at, table in enumerate(tables):
            for key, value in table.items():
                known = before.pop((at, key), (None, 0))
                if known[0] is not value:
                    self.number ^= known[1]
                    known = (value, _number_of_entry(at, key, value))
                    self.number ^= known[1]
                self._parts[at, key] = known
        for _, number in before.values():
            self.number ^= number
        return self.number


def _number_of_entry(at: int, key: Hashable, value: object) -> int:
    return number_of((at, key, sorted(value.items()) if isinstance(value, Mapping) else value))


def number_of(what: object) -> int:
    """Return a number of 64 bits that is equal where `repr` of the object is."""
    return int.from_bytes(blake2b(repr(what).encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
