"""Fetches of a group at several members of a fleet pass no more than at one process, with the bus of a fleet and its lag."""

from random import Random

import pytest

from proxy.enforcement.mode import Mode
from tests.support.fleet.fleet_proxies import LAG_MS, FleetProxies
from tests.support.memory.fetch_load import FetchLoad, passed_each_second, worst_bytes
from tests.support.memory.worker_proxies import WorkerProxies

BOUND = 100_000
LOAD_S = 90
BEGIN_S = 15
WINDOW_S = 10
SILENCE_MS = 26_000
"""Time after which nothing is known of what members used."""
LATE_MS = 100
"""Time of a message through the bus while fetches pass."""


def long_run(passed: list[int]) -> float:
    """Return rate / bound after the burst at the beginning."""
    return (passed[-1] - passed[BEGIN_S]) / (LOAD_S - BEGIN_S) / BOUND


@pytest.mark.parametrize(
    ("connections", "asks_bytes", "mode"),
    [
        pytest.param(1, 20_000, Mode.MUTE, id="one-connection"),
        pytest.param(16, 20_000, Mode.MUTE, id="a-window-passes-within-the-lag"),
        pytest.param(16, BOUND, Mode.MUTE, id="a-second-of-the-bound-each"),
        pytest.param(64, 20_000, Mode.DELAY, id="more-than-a-window-waits"),
    ],
)
def test_members_pass_what_one_process_does(connections: int, asks_bytes: int, mode: Mode) -> None:
    """Members pass at most 5 % more than one process in the worst ten seconds, and between 0.85 and 1.05 of the bound in the long run.

    The window makes the rate of one process, too, depend on where its samples begin.
    """
    alone = passed_each_second(WorkerProxies(1, fetch=float(BOUND), mode=mode), connections, asks_bytes, LOAD_S)
    for members in (2, 4):
        shared = passed_each_second(FleetProxies(members, fetch=float(BOUND), mode=mode), connections, asks_bytes, LOAD_S)
        assert 0.85 <= long_run(shared) <= 1.05
        assert worst_bytes(shared, WINDOW_S, BEGIN_S) <= 1.05 * worst_bytes(alone, WINDOW_S, BEGIN_S)


@pytest.mark.parametrize("members", [2, 4])
def test_a_bus_that_is_late_while_fetches_pass(members: int) -> None:
    """When messages take much longer than on average while fetches pass, members still pass at most 5 % more than one process."""
    alone = passed_each_second(WorkerProxies(1, fetch=float(BOUND), mode=Mode.MUTE), 16, 20_000, LOAD_S)
    loads: list[FetchLoad] = []
    with FleetProxies(
        members, bus=lambda: LATE_MS if loads and loads[0].is_busy else LAG_MS, fetch=float(BOUND), mode=Mode.MUTE
    ) as proxies:
        loads.append(FetchLoad(proxies, 16, 20_000))
        shared = [0]
        for _ in range(LOAD_S):
            loads[0].run(1)
            shared.append(loads[0].passed_bytes)
    assert 0.85 <= long_run(shared) <= 1.05
    assert worst_bytes(shared, WINDOW_S, BEGIN_S) <= 1.05 * worst_bytes(alone, WINDOW_S, BEGIN_S)


def first_waves(proxies: WorkerProxies | FleetProxies) -> list[int]:
    """Let 16 connections fetch for 3 s after each of two silences; return what passed each time."""
    passed = list[int]()
    with proxies:
        load = FetchLoad(proxies, 0, 20_000)
        for _ in range(2):
            proxies.wait(SILENCE_MS)
            before = load.passed_bytes
            load.add([proxies.connect() for _ in range(16)])
            load.run(3)
            passed.append(load.passed_bytes - before)
            for fetcher in list(load.fetchers):
                load.close(fetcher)
    return passed


@pytest.mark.parametrize("bus_ms", [LAG_MS, LATE_MS, 220])
@pytest.mark.parametrize("members", [2, 4])
def test_the_first_wave_after_a_silence_is_that_of_one_process(members: int, bus_ms: int) -> None:
    """After a silence members know nothing of each other's fetches, and pass at most 5 % more than one process, not a window each."""
    alone = first_waves(WorkerProxies(1, fetch=float(BOUND), mode=Mode.MUTE))
    shared = first_waves(FleetProxies(members, bus=lambda: bus_ms, random=Random(1), fetch=float(BOUND), mode=Mode.MUTE))
    assert [wave <= 1.05 * one for wave, one in zip(shared, alone, strict=True)] == [True, True]
    assert [wave >= 0.9 * one for wave, one in zip(shared, alone, strict=True)] == [True, True]


def test_one_member_within_the_bound_waits_for_nothing() -> None:
    """One member that uses most of the bound after a silence, while the others trickle, forwards each fetch at once."""
    with FleetProxies(4, bus=lambda: LATE_MS, random=Random(1), fetch=float(BOUND), mode=Mode.MUTE) as proxies:
        load = FetchLoad(proxies, 0, 10_000)
        for _ in range(2):
            proxies.wait(SILENCE_MS)
            load.add([proxies.connect(0) for _ in range(10)], 1_200)  # 10 of 10 kB in 1.2 s, and 3 in 8 s: 0.87 of the bound
            load.add([proxies.connect(number) for number in (1, 2, 3)], 8_000)
            load.run(30)
            for fetcher in list(load.fetchers):
                load.close(fetcher)
        assert load.waits_ms
        assert set(load.waits_ms) == {0}


def test_a_member_with_most_connections_passes_most() -> None:
    """With 15 connections at one member and one at the other both keep passing, and together no more than the bound."""
    with FleetProxies(2, fetch=float(BOUND), mode=Mode.MUTE) as proxies:
        many = FetchLoad(proxies, 0, 20_000)
        passed = [0]
        many.add([proxies.connect(0) for _ in range(15)] + [proxies.connect(1)])
        for _ in range(LOAD_S):
            many.run(1)
            passed.append(many.passed_bytes)
        assert 0.85 <= long_run(passed) <= 1.05
        alone = many.fetchers[-1]
        assert 0 < alone.passed_bytes < passed[-1] / 3
