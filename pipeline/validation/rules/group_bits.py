"""Numbers of groups, a bit each: there may be 100,000, and every file set says which of them decided something."""

from collections.abc import Iterable
from typing import Final, Literal

import numpy as np

from pipeline.replay.rows import Ints

_ORDER: Final[Literal["little"]] = "little"


def bits_of(group_ref: Ints) -> bytes:
    """Return a bit for each group from 0 on, the lowest of a byte first, set for those that are named, as often as they may be."""
    named = np.zeros(int(group_ref.max(initial=-1)) + 1, np.bool_)
    named[group_ref] = True
    return np.packbits(named, bitorder=_ORDER).tobytes()


def united(parts: Iterable[bytes]) -> bytes:
    """Return the groups that are in any of the parts."""
    every = 0
    for bits in parts:
        every |= int.from_bytes(bits, _ORDER)
    return every.to_bytes((every.bit_length() + 7) // 8, _ORDER)


def number_of(bits: bytes) -> int:
    """Return how many groups there are."""
    return int.from_bytes(bits, _ORDER).bit_count()
