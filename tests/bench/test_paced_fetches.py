"""Simulated fetches under paced enforcement, and the reservation that ADR 12 chooses."""

import pytest

from bench.paced.fetches import CHOSEN, CORRECTED, LOADS, Load, fetch_run

SECONDS = 30


@pytest.mark.parametrize("reserve", [CHOSEN, CORRECTED])
@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_a_share_of_the_burst_gives_the_bound(load: Load, reserve: str) -> None:
    """Fetches that reserve a share of the burst pass the bound, and in no span more than the bound, the burst and one request."""
    found = fetch_run(load, reserve, SECONDS)
    assert found.long_run == pytest.approx(1.0, abs=0.02)
    assert found.beyond_ms == 0


def test_a_fetch_that_waits_for_records_must_not_reserve_what_it_requests() -> None:
    """Fetches that wait for records block a group if each of them reserves the bytes that it requests."""
    load = next(one for one in LOADS if one.name == "1 of 100 kB, 15 that wait for records")
    assert fetch_run(load, "what is requested, charged when it goes", SECONDS).long_run < 0.1


def test_an_estimate_lets_too_much_pass() -> None:
    """Fetches that reserve the size of the last answer pass more than bound, burst and one request when sizes vary."""
    load = next(one for one in LOADS if one.name == "16 of 10 kB or 1 MB by chance")
    assert fetch_run(load, "the last answer, a share of the burst at most, charged when it goes", SECONDS).beyond_ms > 0
