"""The bound of a decision is the last one recorded for its group before it."""

import math
from typing import Any, cast

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.file_set import FileSet
from pipeline.validation.rules.bounds import RecordedBounds

NOTED = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 30)), unique=True, max_size=20)
ASKED = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=20)


class Noting:
    """A file set with these bounds only: group, first decision number, and the bound, which equals its index."""

    def __init__(self, noted: list[tuple[int, int]]) -> None:
        self._table = pa.table(
            {
                "group_ref": pa.array([group for group, _ in noted], pa.int32()),
                "from_seq": pa.array([seq for _, seq in noted], pa.int64()),
                "bound": pa.array(map(float, range(len(noted))), pa.float64()),
            }
        )

    def read(self, _name: str, columns: list[str]) -> pa.Table:
        """Return the recorded bounds."""
        return self._table.select(columns)


def in_force(noted: list[tuple[int, int]], group: int, seq: int) -> float:
    """Look up the bounds of all decisions."""
    before = [(since, bound) for bound, (whose, since) in enumerate(noted) if whose == group and since <= seq]
    return float(max(before)[1]) if before else math.nan


@given(noted=NOTED, asked=ASKED)
def test_the_last_bound_before_a_decision_holds(noted: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    """The last bound before a decision applies to it, for groups with one bound, with several, and with none."""
    groups, seqs = np.array([group for group, _ in asked], np.int64), np.array([seq for _, seq in asked], np.int64)
    found: Any = RecordedBounds(cast("FileSet", Noting(noted))).at(groups, seqs)
    assert np.array_equal(found, np.array([in_force(noted, *one) for one in asked], np.float64), equal_nan=True)
