"""What a member of a fleet used of a group by its own files."""

import numpy as np

from pipeline.validation.rules.fleet.totals import totals_of
from tests.pipeline.support.group_history import history_of

HISTORY_MS = 11_000


def test_what_is_recorded_while_the_row_changes_may_be_in_either_row() -> None:
    """Usage of the millisecond in which the node id becomes known can have been published in the new row, which is not certain."""
    totals = totals_of([history_of([(1_500, 5), (2_000, 85), (2_100, 10)], [(1_000, 0), (2_000, 0)])], HISTORY_MS, 0)
    times = np.array([1_999, 2_000, 2_100])
    assert totals.highest_at(times).tolist() == [0, 85, 95]
    assert totals.lasting_at(times).tolist() == [0, 0, 10]


def test_what_a_group_recorded_before_its_first_row_is_published_in_it() -> None:
    """Usage before the first row, within the samples, is published with the row."""
    totals = totals_of([history_of([(1_500, 5), (2_000, 85), (2_100, 10)], [(2_000, 0)])], HISTORY_MS, 0)
    assert (totals.highest[-1], totals.lasting[-1]) == (100, 100)
