"""Simulated clients under paced enforcement, and the goals of ADR 12."""

import pytest

from bench.paced.admission import AdmittedFirst, ByThrottle, ChargedAtAnswer, Connection
from bench.paced.loads import BOUND, BURST_NS, MEMBERS, MemberLoad, member_shares
from bench.paced.simulated import figures, run

SECONDS = 30


def clients(count: int, size: int) -> list[Connection]:
    """Return connections of one member that always have more to send."""
    return [Connection(0, size) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 16, 64])
def test_paced_clients_get_the_bound(count: int) -> None:
    """From second 10 on, requests that are admitted before they go pass at the bound in every second, each one cost after the last."""
    found = figures(run(AdmittedFirst(BOUND, BURST_NS), clients(count, 100_000), SECONDS), BOUND, SECONDS)
    assert found.long_run == pytest.approx(1.0, abs=0.02)
    assert found.seconds_even == 1.0
    assert found.gap_max_ms == pytest.approx(50.0)


def test_a_charge_at_the_answer_lets_a_round_of_all_connections_pass() -> None:
    """Charged at the answer, 64 requests of 1 MB all pass in 5 ms. Admitted before they go, three do, which is the burst and one."""
    at_answer = run(ChargedAtAnswer(BOUND, BURST_NS), clients(64, 1_000_000), SECONDS)
    before = run(AdmittedFirst(BOUND, BURST_NS), clients(64, 1_000_000), SECONDS)
    assert [sum(one.at_ns < 5_000_000 for one in passed) for passed in (at_answer, before)] == [64, 3]


def test_the_window_stops_a_client_for_a_second() -> None:
    """The simulated window is Kafka's: a greedy client is stopped for a second and more, which is what pacing avoids."""
    found = figures(run(ByThrottle(BOUND), clients(16, 100_000), SECONDS), BOUND, SECONDS)
    assert found.gap_max_ms >= 1_000


@pytest.mark.parametrize("load", MEMBERS, ids=lambda load: load.name)
def test_members_get_their_parts(load: MemberLoad) -> None:
    """With a schedule for each member every member gets its max-min part within 5 %, whatever its connections and requests are."""
    found = member_shares(load, "member schedules", BURST_NS, 60)
    assert found == pytest.approx(list(load.parts), rel=0.05)


@pytest.mark.parametrize("order", ["first come", "deficit round robin", "start-time fair queue"])
def test_an_order_of_waiting_requests_is_not_enough(order: str) -> None:
    """A member whose one connection is absent for a round trip loses its part to large requests when only waiting requests are ordered."""
    load = next(one for one in MEMBERS if one.name == "1 of 10 kB; 16 of 1 MB")
    assert member_shares(load, order, BURST_NS, SECONDS)[0] < 0.05
