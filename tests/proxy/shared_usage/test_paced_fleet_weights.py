"""Paced groups with one parent over the members of a fleet: shares by weight, whichever proxies their clients use."""

import random
from collections.abc import Callable, Sequence

import pytest

from quota.entity import ClientQuotaType
from quota.groups.declared_groups import GROUP_TAG, Conditions, DeclaredGroup
from tests.proxy.session.paced.test_paced_members import BOUND, tree
from tests.proxy.session.paced.test_paced_time import PERCENT, Asker
from tests.proxy.shared_usage.test_paced_trees import BOUND as TREE_BOUND
from tests.proxy.shared_usage.test_paced_trees import random_tree
from tests.support.fleet.fleet_proxies import WAIT_MS, FleetProxies
from tests.support.memory.fetch_load import FetchLoad
from tests.support.memory.paced_clients import Client, Load

BURST_MS = 1_000
SECONDS, STEADY_S = 18, 6
LAGS_MS = (40, 250)
Used = list[tuple[int, int]]
Step = Callable[[FleetProxies, int], None]


def fleet(members: int, lag_ms: int, **settings: object) -> FleetProxies:
    """Return members whose usage is known to each other after D = `lag_ms` on average."""
    return FleetProxies(members, burst_ms=BURST_MS, bus=lambda: lag_ms - WAIT_MS, **settings)


def begin(its: FleetProxies, load: Load, used: Used, members: Sequence[int], host: str = "10.0.0.1") -> None:
    """Let the connections of a load send, in turn at these members and their workers."""
    for number in range(load.connections):
        proxies = its.members[members[number % len(members)]].proxies
        proxy = proxies[number // len(members) % len(proxies)]
        Client(proxy, proxy.connect(host=host), load, used).send()


def played(
    its: FleetProxies,
    groups: Sequence[DeclaredGroup],
    loads: Sequence[tuple[Load, Sequence[int]]],
    bound: float = BOUND,
    seconds: int = SECONDS,
    step: Step | None = None,
) -> list[list[float]]:
    """Let loads send at some members each; return what passed of each load in each second, over the bound.

    Args:
        step: called with the number of each second when it begins.
    """
    used: list[Used] = [[] for _ in loads]
    with its:
        for member in its.members:
            for proxy in member.proxies:
                proxy.declare(*groups)
        its.wait(2_000)
        begin_ms = its.now_ms
        for number, (load, members) in enumerate(loads):
            begin(its, load, used[number], members, host=f"10.0.0.{number + 1}")
        for second in range(seconds):
            if step is not None:
                step(its, second)
            its.wait(1_000)
    passed = [[0.0] * (seconds + 1) for _ in loads]
    for number, its_used in enumerate(used):
        for at_ms, size in its_used:
            passed[number][(at_ms - begin_ms) // 1_000] += size / bound
    return [one[:seconds] for one in passed]


def long_run(passed: Sequence[Sequence[float]], first: int = STEADY_S) -> list[float]:
    """Return the part of the bound that passed of each load from a second on."""
    return [sum(one[first:]) / len(one[first:]) for one in passed]


@pytest.mark.parametrize("lag_ms", LAGS_MS)
@pytest.mark.parametrize("members", [2, 4])
@pytest.mark.parametrize(("weights", "own"), [((3.0, 1.0), None), ((1.0, 1.0), 2.0)])
def test_groups_share_by_weight_over_the_members(weights: tuple[float, float], own: float | None, members: int, lag_ms: int) -> None:
    """Of two groups, one with clients at one proxy and the other at all, each has its share within 5 %, and both get the bound."""
    loads = [(Load(4, 20_000, 0, "a"), [0]), (Load(4 * members, 20_000, 0, "b"), range(members))]
    found = long_run(played(fleet(members, lag_ms), tree(weights, (own, own)), loads))
    assert 0.97 <= sum(found) <= 1.03
    assert found == pytest.approx([weight / sum(weights) for weight in weights], rel=0.05)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param((Load(4, 20_000, 0, "a"), [0]), (Load(4, 20_000, 0, "b"), [1]), id="one-proxy-each"),
        pytest.param((Load(8, 20_000, 0, "a"), [0, 1]), (Load(2, 20_000, 0, "b"), [0, 1]), id="both-proxies"),
        pytest.param((Load(2, 10_000, 0, "a"), [0]), (Load(8, 200_000, 0, "b"), [0, 1]), id="small-and-large-requests"),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_where_clients_are_changes_no_share(first: tuple[Load, list[int]], second: tuple[Load, list[int]], workers: int) -> None:
    """Groups with weights 3 and 1 have their shares within 5 %, with one worker and with two."""
    found = long_run(played(fleet(2, 250, workers=workers), tree((3.0, 1.0), (None, 2.0)), [first, second]))
    assert found == pytest.approx([0.75, 0.25], rel=0.05)


@pytest.mark.parametrize("lag_ms", LAGS_MS)
def test_each_proxy_passes_its_part_of_a_share(lag_ms: int) -> None:
    """A group with clients at all proxies passes equally much at each, also where another group waits, and where small requests wait."""
    loads = [(Load(4, 20_000, 0, "a"), [0]), *((Load(4, 40_000 if at else 10_000, 0, "b"), [at]) for at in range(4))]
    first, *parts = long_run(played(fleet(4, lag_ms), tree((1.0, 1.0), (None, None)), loads))
    assert first == pytest.approx(0.5, rel=0.05)
    assert parts == pytest.approx([0.125] * 4, rel=0.1)


@pytest.mark.parametrize("lag_ms", LAGS_MS)
def test_what_a_group_leaves_goes_to_the_others(lag_ms: int) -> None:
    """A group that may pass a tenth of the bound, and one that wants a tenth, leave the rest to the third group, at another proxy."""
    loads = [(Load(4, 20_000, 0, "a"), [0]), (Load(1, 5_000, 45, "b"), [0]), (Load(8, 20_000, 0, "c"), [0, 1])]
    found = long_run(played(fleet(2, lag_ms), tree((8.0, 2.0, 1.0), (0.1, None, None)), loads))
    assert found == pytest.approx([0.1, 0.1, 0.8], rel=0.05)


@pytest.mark.parametrize(("seed", "workers"), [(0, 1), (1, 2), (3, 1)])
def test_members_of_a_tree_get_what_is_due_to_them(seed: int, workers: int) -> None:
    """Greedy groups have their parts by weight at every level, with clients at one proxy or at both."""
    chance = random.Random(seed)
    its = random_tree(chance)
    loads = [(load._replace(connections=4 * load.connections), chance.choice(([0], [1], [0, 1]))) for load in its.loads]
    found = long_run(played(fleet(2, 100, produce=1e12, workers=workers), its.groups, loads, TREE_BOUND))
    assert sum(found) == pytest.approx(1.0, abs=0.03)
    assert found == pytest.approx(its.parts, rel=0.08, abs=0.01)


def test_a_group_with_all_its_clients_elsewhere_blocks_nobody() -> None:
    """When the proxy with the clients of a group with weight 3 is not heard any more, what waits here soon has the bound."""

    def end(its: FleetProxies, second: int) -> None:
        if second == STEADY_S:
            its.silence(0)

    loads = [(Load(4, 20_000, 0, "a"), [0]), (Load(4, 20_000, 0, "b"), [1])]
    passed = played(fleet(2, 100), tree((3.0, 1.0), (None, None)), loads, step=end)
    assert long_run(passed, STEADY_S + 5)[1] == pytest.approx(1.0, abs=0.02)
    assert max(passed[1][STEADY_S:]) <= 1.1


@pytest.mark.parametrize("own", [None, 2.0])
def test_clients_may_come_to_other_proxies(own: float | None) -> None:
    """Clients of a group come to a proxy that had none of any group, and others to one that knows their group by usage elsewhere only.

    The shares hold, and those that came get the part of a proxy at least.
    """
    late: list[Used] = [[], []]

    def come(its: FleetProxies, second: int) -> None:
        if second == STEADY_S:
            begin(its, Load(4, 20_000, 0, "a"), late[0], [1])
            begin(its, Load(4, 20_000, 0, "b"), late[1], [2])

    loads = [(Load(4, 20_000, 0, "a"), [0]), (Load(4, 20_000, 0, "b"), [1])]
    passed = long_run(played(fleet(3, 40), tree((1.0, 3.0), (own, own)), loads, step=come))
    came = [sum(size for _, size in used) / BOUND / (SECONDS - STEADY_S) for used in late]
    assert [one + more for one, more in zip(passed, came, strict=True)] == pytest.approx([0.25, 0.75], rel=0.06)
    assert came[0] >= 0.9 * 0.25 / 3
    assert came[1] >= 0.9 * 0.75 / 3


def test_changes_at_run_time() -> None:
    """Shares follow new weights, and hold again after the groups had windows."""

    def change(its: FleetProxies, second: int) -> None:
        for member in its.members:
            if second == 10:
                member.proxy.declare(*tree((1.0, 3.0), (None, None)))
            elif second in (20, 21):
                member.proxy.pace({"all": "window" if second == 20 else "paced"})

    loads = [(Load(4, 20_000, 0, "a"), [0]), (Load(8, 20_000, 0, "b"), [0, 1])]
    passed = played(fleet(2, 40), tree((3.0, 1.0), (None, None)), loads, seconds=44, step=change)
    assert long_run([one[:10] for one in passed], 4) == pytest.approx([0.75, 0.25], rel=0.1)
    assert long_run([one[:20] for one in passed], 12) == pytest.approx([0.25, 0.75], rel=0.1)
    assert long_run(passed, 34) == pytest.approx([0.25, 0.75], rel=0.1)


@pytest.mark.parametrize(("lag_ms", "workers"), [(40, 1), (250, 2)])
def test_groups_of_consumers_share_by_weight(lag_ms: int, workers: int) -> None:
    """Consumers of two groups have shares by weight; what a fetch has reserved and does not return is taken back everywhere."""
    groups = [DeclaredGroup("all", None, {ClientQuotaType.FETCH: BOUND})]
    for host, weight in (("10.0.0.1", 3.0), ("10.0.0.2", 1.0)):
        groups.append(DeclaredGroup(host, Conditions(None, None, frozenset([host]), None), {}, "all", weight))  # type: ignore[arg-type]
    with fleet(2, lag_ms, fetch=1e12, workers=workers) as its:
        for proxy in (proxy for member in its.members for proxy in member.proxies):
            proxy.declare(*groups)
        load = FetchLoad(its, 0, 200_000, broker=lambda max_bytes: (5, max_bytes // 2))
        load.add([its.members[0].proxies[at % workers].connect(host="10.0.0.1") for at in range(4)])
        load.add([its.members[at % 2].proxies[at // 2 % workers].connect(host="10.0.0.2") for at in range(8)])
        load.run(STEADY_S)
        before = [fetcher.passed_bytes for fetcher in load.fetchers]
        load.run(20)
        passed = [fetcher.passed_bytes - was for fetcher, was in zip(load.fetchers, before, strict=True)]
    found = [sum(one) / 20 / BOUND for one in (passed[:4], passed[4:])]
    assert sum(found) == pytest.approx(1.0, abs=0.03)
    assert found == pytest.approx([0.75, 0.25], rel=0.05)


@pytest.mark.parametrize("lag_ms", LAGS_MS)
def test_groups_share_request_time_by_weight(lag_ms: int) -> None:
    """Groups with weights 3 and 1 get their shares of the handler time, as a proxy knows it, and all of it together."""
    groups = [DeclaredGroup("all", None, {ClientQuotaType.REQUEST: PERCENT})]
    for host, weight in (("10.0.0.1", 3.0), ("10.0.0.2", 1.0)):
        where = Conditions(None, None, frozenset([host]), None)  # type: ignore[arg-type]
        groups.append(DeclaredGroup(host, where, {ClientQuotaType.REQUEST: 2 * PERCENT}, "all", weight))
    with fleet(2, lag_ms, request=1e9) as its:
        proxies = [member.proxy for member in its.members]
        for proxy in proxies:
            proxy.declare(*groups)
        its.wait(2_000)
        askers = [Asker(proxies[0], proxies[0].connect(host="10.0.0.1")) for _ in range(4)]
        askers += [Asker(proxies[at % 2], proxies[at % 2].connect(host="10.0.0.2")) for at in range(8)]
        for asker in askers:
            asker.ask()
        totals: list[dict[str, float]] = []
        for _ in range(24):
            its.wait(1_000)
            totals.append({group.tags[GROUP_TAG]: group.recorded_total for group in proxies[0].scope.request.groups()})
    found = [(totals[-1][name] - totals[STEADY_S][name]) / (23 - STEADY_S) / PERCENT for name in ("10.0.0.1", "10.0.0.2")]
    assert sum(found) == pytest.approx(1.0, abs=0.03)
    assert found == pytest.approx([0.75, 0.25], rel=0.05)
