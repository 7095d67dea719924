"""What workers pass together is held to one schedule."""

from dataclasses import replace

import pytest

from pipeline.replay.findings import Findings, Kind
from pipeline.validation.rules.workers.union_schedule import check_union
from tests.pipeline.support.group_history import RUN, history_of

BURST_MS, COST_MS = 1_000, 100
AMOUNTS = {"Produce": (100_000.0, 10_000), "Request": (1.0, 1_000_000)}
"""The bound, and the amount of a request, in bytes or in nanoseconds of handler time."""


@pytest.mark.parametrize("quota_type", AMOUNTS)
@pytest.mark.parametrize(("pause_ms", "is_found"), [(2 * COST_MS, False), (COST_MS, True)])
def test_workers_together_pass_the_bound_at_most(pause_ms: int, is_found: bool, quota_type: str) -> None:
    """Two workers that each pass half of the bound are accepted, and two that each pass the whole bound are not, once the burst is used."""
    runs = [replace(RUN, key=("a", str(number)), worker=str(number), burst_ms=BURST_MS) for number in range(2)]
    bound, amount = AMOUNTS[quota_type]
    events = [(at * pause_ms, amount) for at in range(40)]
    histories = [history_of(events, [(0, 0)], bound=bound, run=run, quota_type=quota_type) for run in runs]
    findings = {run.key: Findings() for run in runs}
    check_union(histories, findings)
    assert any(Kind.EARLY in found.counts for found in findings.values()) == is_found


def test_a_worker_may_pass_one_request_more_than_the_burst() -> None:
    """At the start two workers may pass the burst, and one request each that the other did not know of; a further one is found."""
    runs = [replace(RUN, key=("a", str(number)), worker=str(number), burst_ms=BURST_MS) for number in range(2)]
    findings = {run.key: Findings() for run in runs}
    bound, amount = AMOUNTS["Produce"]
    for count, is_found in ((13, False), (14, True)):
        parts = [[(0, amount)] * (count // 2), [(0, amount)] * (count - count // 2)]
        histories = [
            history_of(events, [(0, 0)], bound=bound, run=run, quota_type="Produce") for events, run in zip(parts, runs, strict=True)
        ]
        check_union(histories, findings)
        assert any(found.counts for found in findings.values()) == is_found
