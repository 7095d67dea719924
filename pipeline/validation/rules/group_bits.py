"""Sets of group numbers as bit maps. A file set may have 100,000 groups, and each records which of them have decisions."""

from collections.abc import Iterable
from typing import Final, Literal

import numpy as np

from pipeline.replay.rows import Ints

_ORDER: Final[Literal["little"]] = "little"


def bits_of(group_ref: Ints) -> bytes:
    """Return a bit map with the bits of the given groups set, least significant bit first; duplicates are allowed."""
    named = np.zeros(int(group_ref.max(initial=-1)) + 1, np.bool_)
    named[group_ref] = True
    return np.packbits(named, bitorder=_ORDER).tobytes()


def united(parts: Iterable[bytes]) -> bytes:
    """Return the union of bit maps."""
    groups = GroupBits()
    for bits in parts:
        groups.add(bits)
    return groups.bits


class GroupBits:
    """A union of bit maps."""

    def __init__(self) -> None:
        self._every = 0

    def add(self, bits: bytes) -> None:
        """Add the groups of a bit map."""
        self._every |= int.from_bytes(bits, _ORDER)

    @property
    def bits(self) -> bytes:
        """The bit map of all groups."""
        return self._every.to_bytes((self._every.bit_length() + 7) // 8, _ORDER)

    @property
    def number(self) -> int:
        """The number of groups."""
        return self._every.bit_count()
