"""Paced groups over the members of a fleet, with the messages of the product and the lag of a bus."""

import pytest

from tests.support.fleet.fleet_proxies import FleetProxies
from tests.support.memory.fetch_load import passed_each_second
from tests.support.memory.paced_clients import Client, Load

BOUND, BURST_MS = 1e6, 1_000
SECONDS, STEADY_S = 20, 10


def test_producers_at_several_members_pass_the_bound_together() -> None:
    """Greedy producers at all members get the bound within 3 %, at most 2 bursts at first, and each member passes equally much."""
    members, used = 3, list[tuple[int, int]]()
    with FleetProxies(members, burst_ms=BURST_MS, produce=BOUND) as its:
        its.wait(2_000)
        begin_ms = its.now_ms
        proxies = [its.members[at % members].proxy for at in range(15)]
        clients = [Client(proxy, proxy.connect(), Load(1, 50_000), used) for proxy in proxies]
        for client in clients:
            client.send()
        for _ in range(SECONDS):
            its.wait(1_000)
    steady_ms = begin_ms + STEADY_S * 1_000
    assert sum(size for at_ms, size in used if at_ms >= steady_ms) / BOUND / (SECONDS - STEADY_S) == pytest.approx(1.0, abs=0.03)
    assert sum(size for at_ms, size in used if at_ms < begin_ms + 2_000) <= 4 * BOUND
    requests = [client.number for client in clients]
    assert max(requests) - min(requests) <= 3


def test_consumers_at_several_members_pass_the_bound_together() -> None:
    """Consumers at two members get the bound within 3 %."""
    passed = passed_each_second(FleetProxies(2, burst_ms=BURST_MS, fetch=100_000.0), 8, 20_000, 20)
    assert (passed[-1] - passed[STEADY_S]) / 100_000 / (20 - STEADY_S) == pytest.approx(1.0, abs=0.03)
