"""Paced groups over the members of a fleet, with the messages of the product and the lag of a bus."""

import pytest

from proxy.shared_usage.paced.groups import SharedPacedGroup
from tests.support.fleet.fleet_proxies import WAIT_MS, FleetProxies
from tests.support.memory.fetch_load import FetchLoad, passed_each_second
from tests.support.memory.paced_clients import Client, Load

BOUND, BURST_MS = 1e6, 1_000
SECONDS, STEADY_S = 20, 10
LAGS_MS = (40, 100, 250)


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


@pytest.mark.parametrize(("members", "least"), [(2, 0.97), (3, 0.97), (4, 0.85)])
def test_a_burst_shorter_than_the_lag_of_the_fleet_loses_little(members: int, least: float) -> None:
    """Where usage of the others is known after two and a half bursts, members pass nearly the bound, and not more."""
    with FleetProxies(members, burst_ms=100, bus=lambda: 250 - WAIT_MS, produce=BOUND) as its:
        found = sum(parts(its, [(at, Load(4, 20_000)) for at in range(members)]))
    assert least <= found <= 1.03


LIGHT = Load(1, 5_000, 90)
"""Wants this many bytes each 95 ms."""
Passed = list[tuple[int, int]]


def parts(its: FleetProxies, loads: list[tuple[int, Load]], seconds: int = SECONDS, steady_s: int = STEADY_S) -> list[float]:
    """Let loads send, each at a member and in turn at its workers; return what passed of each after `steady_s`, over the bound."""
    its.wait(2_000)
    steady_ms, passed = its.now_ms + steady_s * 1_000, list[Passed]()
    for at, load in loads:
        used: Passed = []
        passed.append(used)
        for number in range(load.connections):
            proxy = its.members[at].proxies[number % len(its.members[at].proxies)]
            Client(proxy, proxy.connect(), load, used).send()
    for _ in range(seconds):
        its.wait(1_000)
    return [sum(size for at_ms, size in used if at_ms >= steady_ms) / BOUND / (seconds - steady_s) for used in passed]


@pytest.mark.parametrize("lag_ms", LAGS_MS)
@pytest.mark.parametrize(
    ("greedy", "light", "workers"),
    [
        pytest.param([0, 1], LIGHT, 1, id="two-proxies"),
        pytest.param([0, 1], LIGHT._replace(connections=4), 2, id="workers"),
        pytest.param([0], LIGHT, 1, id="one-proxy"),
        pytest.param([0, 1, 2, 3], LIGHT, 1, id="four-proxies"),
    ],
)
def test_a_proxy_that_wants_less_than_its_part_gets_that(greedy: list[int], light: Load, workers: int, lag_ms: int) -> None:
    """A light client at one proxy passes 0.9 of what it wants at least, while other proxies pass all that the bound leaves."""
    with FleetProxies(1 + len(greedy), burst_ms=BURST_MS, bus=lambda: lag_ms - WAIT_MS, produce=BOUND, workers=workers) as its:
        *others, found = parts(its, [*((at, Load(4, 20_000)) for at in greedy), (len(greedy), light)])
    assert found >= 0.9 * light.connections * light.size / 0.095 / BOUND
    assert sum(others) + found == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("lag_ms", LAGS_MS)
def test_small_requests_get_the_part_of_their_proxy(lag_ms: int) -> None:
    """A proxy with small requests passes 0.8 of its part at least beside one with large ones, and both pass the bound."""
    with FleetProxies(2, burst_ms=BURST_MS, bus=lambda: lag_ms - WAIT_MS, produce=BOUND) as its:
        large, small = parts(its, [(0, Load(4, 200_000)), (1, Load(4, 20_000))])
    assert small >= 0.8 / 2
    assert large + small == pytest.approx(1.0, abs=0.03)


def test_usage_that_was_held_back_is_recorded() -> None:
    """When the clients have no more to send, a proxy has recorded all that passed anywhere."""
    with FleetProxies(3, burst_ms=BURST_MS, produce=BOUND) as its:
        used: Passed = []
        clients = [Client(its.members[at].proxy, its.members[at].proxy.connect(), Load(4, 20_000), used) for at in (0, 0, 1, 1)]
        clients.append(Client(its.members[2].proxy, its.members[2].proxy.connect(), LIGHT, used))
        its.wait(2_000)
        for client in clients:
            client.send()
        for _ in range(10):
            its.wait(1_000)
        (group,) = (group for group in its.members[2].proxy.scope.produce.groups() if isinstance(group, SharedPacedGroup))
        part = group._sharing.part
        assert part is not None
        assert part.held > 0
        for client in clients:
            client.send = lambda: None  # type: ignore[method-assign]
        its.wait(3_000)
        assert part.held == 0
        assert group.recorded_total == sum(size for _, size in used)


@pytest.mark.parametrize("lag_ms", LAGS_MS)
def test_a_consumer_at_another_member_gets_its_part(lag_ms: int) -> None:
    """A consumer at a third proxy gets the part of a proxy, while many others want all."""
    with FleetProxies(3, burst_ms=BURST_MS, bus=lambda: lag_ms - WAIT_MS, fetch=BOUND) as its:
        load = FetchLoad(its, 0, 50_000)
        load.add([its.members[at % 2].proxy.connect() for at in range(8)])
        load.run(2)
        load.add([its.members[2].proxy.connect()], pause_ms=90)
        load.run(6)
        before = [fetcher.passed_bytes for fetcher in load.fetchers]
        load.run(12)
        passed = [(fetcher.passed_bytes - was) / BOUND / 12 for fetcher, was in zip(load.fetchers, before, strict=True)]
    assert passed[-1] >= 0.9 / 3
    assert sum(passed) == pytest.approx(1.0, abs=0.03)


def test_consumers_at_several_members_pass_the_bound_together() -> None:
    """Consumers at two members get the bound within 3 %."""
    passed = passed_each_second(FleetProxies(2, burst_ms=BURST_MS, fetch=100_000.0), 8, 20_000, 20)
    assert (passed[-1] - passed[STEADY_S]) / 100_000 / (20 - STEADY_S) == pytest.approx(1.0, abs=0.03)
