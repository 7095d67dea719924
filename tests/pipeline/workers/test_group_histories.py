"""The time in which one history of a group tells what its worker used."""

import math

from pipeline.validation.rules.workers.group_histories import next_ms
from tests.pipeline.support.group_history import history_of


def test_a_history_ends_with_the_first_usage_of_the_next_one() -> None:
    """A group that was forgotten and made again may use something before it has a row; that is published at its own time."""
    first, second = history_of([(1_000, 5)], [(1_000, 0)]), history_of([(1_995, 7)], [(2_003, 5)])
    assert [next_ms(history, [first, second]) for history in (first, second)] == [1_995, math.inf]
