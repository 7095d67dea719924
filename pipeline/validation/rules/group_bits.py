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
    every = 0
    for bits in parts:
        every |= int.from_bytes(bits, _ORDER)
    return every.to_bytes((every.bit_length() + 7) // 8, _ORDER)


def number_of(bits: bytes) -> int:
    """Return the number of groups in a bit map."""
    return int.from_bytes(bits, _ORDER).bit_count()
