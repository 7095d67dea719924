"""Which bound was in effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxy.meter.batch import Fact
from proxy.metering.conversion.runs import Flags, Ints


@dataclass(frozen=True, slots=True)
class Bounds:
    """The recorded bounds, sorted by (group, number of the first decision with it)."""

    group_ref: Ints
    from_seq: Ints
    bound: NDArray[np.float64]
    is_paced: Flags
    """Whether the group had a schedule with it."""

    def at(self, group_ref: NDArray[Any], seq: Ints) -> NDArray[np.float64]:
        """Return the bound in force for each decision: the last one recorded for its group before it."""
        return self.bound[self._places(group_ref, seq)]

    def paced_at(self, group_ref: NDArray[Any], seq: Ints) -> Flags:
        """Return whether the group of each decision had a schedule then."""
        if not self.is_paced.any():
            return np.zeros(len(seq), np.bool_)
        return self.is_paced[self._places(group_ref, seq)]

    def _places(self, group_ref: NDArray[Any], seq: Ints) -> Ints:
        if not len(seq):
            return np.zeros(0, np.int64)
        stride = int(max(self.from_seq.max(initial=0), seq.max())) + 2
        keys = self.group_ref * stride + self.from_seq
        wanted = group_ref.astype(np.int64) * stride + seq
        places: Ints = np.searchsorted(keys, wanted, side="right") - 1
        return places


def bounds_of(facts: Sequence[Fact]) -> Bounds:
    """Return the bounds in these facts."""
    group_ref = np.array([fact["group_ref"] for fact in facts], np.int64)
    from_seq = np.array([fact["from_seq"] for fact in facts], np.int64)
    bound = np.array([fact["bound"] for fact in facts], np.float64)
    is_paced = np.array([fact.get("is_paced", False) for fact in facts], np.bool_)
    order = np.lexsort((from_seq, group_ref))
    return Bounds(group_ref[order], from_seq[order], bound[order], is_paced[order])
