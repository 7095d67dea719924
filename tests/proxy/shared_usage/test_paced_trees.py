"""Random trees of groups, in one process and over workers: greedy members have what is due to them, and nothing waits for nobody."""

import random
from typing import NamedTuple

import pytest

from quota.entity import ClientQuotaType
from quota.groups.declared_groups import Conditions, DeclaredGroup
from quota.groups.pattern import Pattern
from tests.support.memory.paced_clients import Client, Load
from tests.support.memory.worker_proxies import WorkerProxies

BOUND = 4e6
SECONDS, STEADY_S = 18, 8


class Tree(NamedTuple):
    """Groups, the load of each that has clients, and the part of the bound that is due to it."""

    groups: list[DeclaredGroup]
    loads: list[Load]
    parts: list[float]


def random_tree(chance: random.Random) -> Tree:
    """Return a group with the bound, two or three groups below it, and below each of these up to two more, by client-id."""
    groups = [DeclaredGroup("all", None, {ClientQuotaType.PRODUCE: BOUND})]
    loads: list[Load] = []
    parts: list[float] = []
    tops = [(name, chance.choice((1.0, 2.0, 3.0))) for name in "abc"[: chance.randint(2, 3)]]
    for name, weight in tops:
        due = weight / sum(one for _, one in tops)
        below = [(f"{name}{number}", chance.choice((1.0, 4.0))) for number in range(chance.choice((0, 2)))]
        has_bound = chance.random() < 0.5
        budget = {ClientQuotaType.PRODUCE: BOUND * 1.5} if has_bound else {}
        groups.append(DeclaredGroup(name, None if below else its_clients(name), budget, "all", weight))
        for child, its in below or [(name, 1.0)]:
            loads.append(Load(chance.randint(1, 4), chance.choice((20_000, 60_000, 150_000)), 0, child))
            parts.append(due * its / sum(one for _, one in below or [(name, 1.0)]))
            if below:
                groups.append(DeclaredGroup(child, its_clients(child), {}, name, its))
    return Tree(groups, loads, parts)


def its_clients(name: str) -> Conditions:
    """Return the conditions that clients with this client-id fulfil."""
    return Conditions(None, (Pattern(name),), None, None)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_members_of_a_tree_get_what_is_due_to_them(seed: int, workers: int) -> None:
    """Greedy members have their parts by weight at every level, and all of the bound together; also after connections have ended."""
    chance = random.Random(seed)
    tree = random_tree(chance)
    used: list[list[tuple[int, int]]] = [[] for _ in tree.loads]
    with WorkerProxies(workers, burst_ms=1_000, produce=1e12) as its:
        for proxy in its.proxies:
            proxy.declare(*tree.groups)
        begin_ms, leaving = its.now_ms, []
        for number, load in enumerate(tree.loads):
            for at in range(load.connections + 1):  # one of them leaves while it waits
                proxy = chance.choice(its.proxies)
                peer = proxy.connect(host=f"10.0.0.{number + 1}")
                Client(proxy, peer, load, used[number]).send()
                leaving += [peer] if at == 0 else []
        for second in range(SECONDS):
            for peer in leaving if second == 3 else ():
                peer.client.close()
            its.wait(1_000)
    steady_ms = begin_ms + STEADY_S * 1_000
    shares = [sum(size for at_ms, size in one if at_ms >= steady_ms) / BOUND / (SECONDS - STEADY_S) for one in used]
    assert sum(shares) == pytest.approx(1.0, abs=0.02)
    assert shares == pytest.approx(tree.parts, rel=0.08, abs=0.01)
