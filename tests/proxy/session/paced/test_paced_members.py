"""Members of a paced group: principals, or addresses without one, get equal shares of what they want, and declared groups by weight."""

from collections.abc import Sequence

import pytest

from proxy.enforcement.paced.factory import PacedGroups
from proxy.enforcement.paced.group import PacedGroup
from proxy.enforcement.paced.levels import ClientIdLevel
from quota.entity import ClientQuotaType
from quota.groups.declared_groups import Conditions, DeclaredGroup
from quota.groups.pattern import Pattern
from tests.support.frames.kafka_frames import produced, request_ids
from tests.support.memory.memory_connection import ProxyFixture
from tests.support.memory.paced_clients import Client, Load
from tests.support.memory.verdicts import PRODUCE_VERSION, produce_of

BOUND = 1e6
SECONDS, STEADY_S = 30, 10


def shares(loads: Sequence[Load], groups: Sequence[DeclaredGroup] = (), hosts: Sequence[str] = ()) -> list[float]:
    """Return the part of the bound that each load gets from second 10 on, from these hosts or each from one of its own."""
    used: list[list[tuple[int, int]]] = [[] for _ in loads]
    with ProxyFixture(produce=BOUND, factories=PacedGroups(1_000)) as proxy:
        proxy.declare(*groups)
        begin_ms = proxy.now_ms
        for number, load in enumerate(loads):
            for _ in range(load.connections):
                Client(
                    proxy, proxy.connect(host=hosts[number % len(hosts)] if hosts else f"10.0.0.{number + 1}"), load, used[number]
                ).send()
        for _ in range(SECONDS):
            proxy.wait(1_000)
    return parts(used, begin_ms)


def parts(used: Sequence[Sequence[tuple[int, int]]], begin_ms: int) -> list[float]:
    """Return what each has used from second 10 on, over the bound."""
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


def test_what_nobody_else_wants_is_shared_too() -> None:
    """A member that wants a tenth of the bound leaves the rest in equal parts to one with small requests and one with large requests."""
    found = shares([Load(1, 10_000, pause_ms=95), Load(8, 10_000), Load(8, 200_000)])
    assert found == pytest.approx([0.1, 0.45, 0.45], rel=0.06)


def test_one_greedy_member_gets_the_bound() -> None:
    """A member alone gets at least 0.98 of the bound."""
    assert 0.98 <= shares([Load(4, 50_000)])[0] <= 1.02


def tree(weights: Sequence[float], own_bounds: Sequence[float | None]) -> list[DeclaredGroup]:
    """Return a group with the bound, and groups below it that client-ids a, b and so on are in, each with a weight and perhaps a bound."""
    groups = [DeclaredGroup("all", None, {ClientQuotaType.PRODUCE: BOUND})]
    for name, weight, own in zip("abc", weights, own_bounds, strict=False):
        bounds = {} if own is None else {ClientQuotaType.PRODUCE: own * BOUND}
        groups.append(DeclaredGroup(name, Conditions(None, (Pattern(name),), None, None), bounds, "all", weight))
    return groups


@pytest.mark.parametrize(
    ("first", "second", "own"),
    [
        pytest.param(Load(1, 100_000, 0, "a"), Load(16, 100_000, 0, "b"), None, id="1-and-16-connections"),
        pytest.param(Load(8, 10_000, 0, "a"), Load(8, 400_000, 0, "b"), 0.9, id="small-and-large-requests"),
        pytest.param(Load(1, 10_000, 0, "a"), Load(16, 400_000, 0, "b"), None, id="1-connection-of-small-requests"),
        pytest.param(Load(1, 10_000, 0, "a"), Load(16, 400_000, 0, "b"), 0.9, id="1-connection-of-small-requests-with-bounds"),
    ],
)
def test_groups_with_one_parent_share_by_weight(first: Load, second: Load, own: float | None) -> None:
    """Two groups that want more than they get have shares within 5 % of their weights, with bounds of their own and without."""
    found = shares([first, second], tree((3.0, 1.0), (own, own)))
    assert found == pytest.approx([0.75, 0.25], rel=0.05)


def test_a_group_at_its_own_bound_leaves_the_rest_to_the_others() -> None:
    """A group that may pass a tenth of the bound of its parent takes that, although its weight is larger and its requests wait."""
    loads = [Load(16, 20_000, 0, "a"), Load(1, 20_000, 0, "b"), Load(4, 20_000, 0, "c")]
    assert shares(loads, tree((8.0, 2.0, 1.0), (0.1, None, 2.0))) == pytest.approx([0.1, 0.6, 0.3], rel=0.05)


def test_members_of_a_group_share_its_share() -> None:
    """Two principals of a group have equal parts of the share of their group, whatever their connections."""
    loads = [Load(1, 50_000, 0, "a"), Load(8, 50_000, 0, "a"), Load(4, 50_000, 0, "b")]
    assert shares(loads, tree((3.0, 1.0), (None, 2.0))) == pytest.approx([0.375, 0.375, 0.25], rel=0.05)


def test_a_group_alone_gets_the_bound() -> None:
    """A group whose siblings want nothing gets at least 0.98 of the bound, whatever its weight."""
    assert 0.98 <= shares([Load(4, 50_000, 0, "a")], tree((0.01, 100.0), (None, None)))[0] <= 1.02


def test_client_ids_of_a_member_get_equal_shares() -> None:
    """Client-ids of one address that want more than they get have equal shares, whatever their connections and requests."""
    loads = [Load(1, 10_000, 0, "a"), Load(8, 400_000, 0, "b"), Load(4, 100_000, 0, "c")]
    together = DeclaredGroup("all", Conditions(None, (Pattern("*"),), None, None), {ClientQuotaType.PRODUCE: BOUND})
    assert shares(loads, [together], ("10.0.0.1",)) == pytest.approx([1 / 3] * 3, rel=0.05)


def test_a_connection_that_ends_is_no_member_any_more() -> None:
    """When connections of a member end, only those that are left share."""
    with ProxyFixture(produce=BOUND, factories=PacedGroups(1_000)) as proxy:
        peers = [proxy.connect() for _ in range(4)]
        for peer in peers:
            peer.sends(produce_of(900_000, 1))
        (group,) = proxy.scope.produce.groups()
        assert isinstance(group, PacedGroup)
        (member,) = group.line.root.members.values()
        assert isinstance(member.level, ClientIdLevel)
        ((_, _, client),) = member.level.clients.waiting
        assert (client.open, client.waits) == (2, 2), "two have passed before others waited"
        peers[-1].client.close()
        proxy.wait(0)
        assert (client.open, client.waits) == (1, 1)


def test_a_pipelining_connection_takes_no_more_than_its_share() -> None:
    """A connection with 20 requests on the way gets as much as one with one request at a time, and its requests pass in their order."""
    used: list[list[tuple[int, int]]] = [[], []]
    order: list[int] = []
    with ProxyFixture(produce=BOUND, factories=PacedGroups(1_000)) as proxy:
        single, deep = proxy.connect(), proxy.connect()
        Client(proxy, single, Load(1, 10_000), used[0]).send()

        def goes(data: bytes | memoryview) -> None:
            for number in request_ids(bytes(data)):
                order.append(number)
                used[1].append((proxy.now_ms, 40_000))
                proxy.loop.call_later(0.005, answer, number)

        def answer(number: int) -> None:
            deep.broker.arrive(produced(number, version=PRODUCE_VERSION))
            deep.client.arrive(produce_of(40_000, number + 20))

        deep.broker.write = deep.connection.client.write_peer = goes  # type: ignore[method-assign]
        begin_ms = proxy.now_ms
        deep.client.arrive(b"".join(produce_of(40_000, number) for number in range(20)))
        for _ in range(SECONDS):
            proxy.wait(1_000)
    assert order == list(range(len(order)))
    assert parts(used, begin_ms) == pytest.approx([0.5, 0.5], rel=0.05)
