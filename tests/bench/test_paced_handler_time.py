"""Simulated requests under a schedule of handler time, and the reservation that ADR 12 chooses."""

import pytest

from bench.paced.handler_time import CHOSEN, LOADS, RESERVES, TimeLoad, time_run

SECONDS = 30
ALIKE = [load for load in LOADS if max(load.handler_ns) == min(load.handler_ns)]
"""Loads whose first requests cost about what is assumed."""


@pytest.mark.parametrize("load", ALIKE, ids=lambda load: load.name)
def test_a_quarter_more_than_the_last_one_gives_the_bound(load: TimeLoad) -> None:
    """Requests that reserve 1.25 times the last handler time have the bound, and in no span more than bound, burst and one request."""
    found = time_run(load, RESERVES[CHOSEN], SECONDS)
    assert found.long_run == pytest.approx(1.0, abs=0.02)
    assert found.beyond_ms == 0
    assert found.unchecked < 0.01


def test_without_a_reservation_the_first_requests_pass_unchecked() -> None:
    """If requests reserve nothing, those of many connections pass together, far beyond the burst."""
    load = next(one for one in LOADS if one.name == "256 of 0.25 ms")
    assert time_run(load, 0.0, SECONDS).beyond_ms > 5_000
