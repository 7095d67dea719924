"""The least wait of the groups that an hour's `rate_series` can have, so that a task returns few groups that others take the place of.

Each task of the first step returns the groups that waited longest in its file sets. Their sums over all tasks are lower bounds of their
waits. So at least GROUPS_IN_SERIES groups waited as long as the last of the GROUPS_IN_SERIES largest sums.
"""

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.rollup.content.columns import GROUPS_IN_SERIES

LONGEST: Final = "longest"
"""Name of the pieces with `longest_waits`."""


def longest_waits(seconds: pa.Table) -> pa.Table:
    """Return `gold_group_number` and `throttle_ms_sum` of the groups that waited longest; takes columns of DECISION_SECONDS."""
    sums = seconds.group_by("gold_group_number", use_threads=False).aggregate([("throttle_ms_sum", "sum")])
    return sums.take(pc.select_k_unstable(sums, GROUPS_IN_SERIES, [("throttle_ms_sum_sum", "descending")]))


def floor_of(found: Iterable[pa.Table]) -> int:
    """Return the least wait in ms, from the results of `longest_waits` of all tasks of an hour."""
    sums = pa.concat_tables(found).group_by("gold_group_number").aggregate([("throttle_ms_sum_sum", "sum")])
    waits = sorted(sums.column("throttle_ms_sum_sum_sum").to_pylist(), reverse=True)
    return int(waits[GROUPS_IN_SERIES - 1]) if len(waits) >= GROUPS_IN_SERIES else 0
