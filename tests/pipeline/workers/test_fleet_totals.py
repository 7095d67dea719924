"""What a member of a fleet used of a group by its own files."""

import numpy as np

from pipeline.validation.rules.fleet.totals import totals_of
from pipeline.validation.rules.workers.group_histories import OWN, GroupHistory, Skip, WorkerRun

RUN = WorkerRun(("a", "r"), "s", "0", ("0",), 0, 60_000, True, 0)
HISTORY_MS = 11_000


def history_of(events: list[tuple[int, int]], claims: list[tuple[int, int]]) -> GroupHistory:
    """Return a history with own records (ms, value), and with rows that were used from these times and totals on."""
    ts_ms, value = (np.array([event[at] for event in events], np.int64) for at in (0, 1))
    return GroupHistory(
        ts_ms=ts_ms,
        value=value,
        checked=np.ones(len(events), np.bool_),
        source=np.array([OWN] * len(events)),
        total=np.zeros(len(events), np.int64),
        seq=np.arange(len(events)),
        bound=1e9,
        run=RUN,
        group_ref=0,
        identity=("Request", "broker", "1", ""),
        skips=tuple(Skip(at_ms, "0", 0, total, number) for number, (at_ms, total) in enumerate(claims)),
        is_renamed=len(claims) > 1,
    )


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
