"""Members of a paced group: each principal, or each address without one, gets an equal share of what it wants."""

from collections.abc import Sequence

import pytest

from proxy.enforcement.paced.factory import PacedGroups
from tests.support.memory.memory_connection import ProxyFixture
from tests.support.memory.paced_clients import Client, Load

BOUND = 1e6
SECONDS, STEADY_S = 30, 10


def shares(loads: Sequence[Load]) -> list[float]:
    """Return the part of the bound that each member gets from second 10 on."""
    used: list[list[tuple[int, int]]] = [[] for _ in loads]
    with ProxyFixture(produce=BOUND, factories=PacedGroups(1_000)) as proxy:
        begin_ms = proxy.now_ms
        for number, load in enumerate(loads):
            for _ in range(load.connections):
                Client(proxy, proxy.connect(host=f"10.0.0.{number + 1}"), load, used[number]).send()
        for _ in range(SECONDS):
            proxy.wait(1_000)
    steady_ms = begin_ms + STEADY_S * 1_000
    return [sum(size for at_ms, size in of_member if at_ms >= steady_ms) / BOUND / (SECONDS - STEADY_S) for of_member in used]


@pytest.mark.parametrize(
    "loads",
    [
        pytest.param([Load(1, 100_000), Load(16, 100_000)], id="1-and-16-connections"),
        pytest.param([Load(8, 10_000), Load(8, 400_000)], id="small-and-large-requests"),
        pytest.param([Load(1, 10_000), Load(16, 400_000)], id="1-connection-of-small-requests"),
    ],
)
def test_members_get_equal_shares(loads: Sequence[Load]) -> None:
    """Two members that want more than they get have shares within 5 % of each other, whatever their connections and requests."""
    found = shares(loads)
    assert found == pytest.approx([0.5, 0.5], rel=0.05)


def test_an_unused_share_goes_to_the_others() -> None:
    """A member that wants a tenth of the bound gets that, and the others share the rest."""
    found = shares([Load(1, 10_000, pause_ms=95), Load(1, 50_000), Load(8, 50_000)])
    assert found == pytest.approx([0.1, 0.45, 0.45], rel=0.06)


def test_one_greedy_member_gets_the_bound() -> None:
    """A member alone gets at least 0.98 of the bound."""
    assert 0.98 <= shares([Load(4, 50_000)])[0] <= 1.02
