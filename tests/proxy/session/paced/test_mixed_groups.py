"""Groups with a schedule and groups with a window in one process, on one connection."""

from collections.abc import Iterator

import pytest

from protocol.api_keys import ApiKey
from proxy.enforcement.paced.factory import PacedGroups
from proxy.enforcement.paced.group import PacedGroup
from quota.entity import ClientQuotaType
from quota.groups.declared_groups import GROUP_TAG, Conditions, DeclaredGroup
from quota.groups.pattern import Pattern
from tests.support.frames.kafka_frames import fetch, produced, throttle_ms
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.verdicts import FETCH_VERSION, PRODUCE_VERSION, fetched_of, produce_for, produce_of

BOUNDS = {ClientQuotaType.PRODUCE: 1_000.0, ClientQuotaType.FETCH: 1_000.0}


@pytest.fixture
def mixed() -> Iterator[ProxyFixture]:
    """Yield a proxy in which group `even`, client-id even, is paced, and client-id etl has a window; 1,000 bytes per second each."""
    with ProxyFixture(produce=1_000.0, fetch=1_000.0, factories=PacedGroups(1_000, {"even": True}, paces_others=False)) as proxy:
        proxy.declare(DeclaredGroup("even", Conditions(None, (Pattern("even"),), None, None), BOUNDS))
        yield proxy


def answer(peer: Peer, number: int) -> bytes:
    """Answer a Produce; return what the client receives."""
    peer.broker.arrive(produced(number, version=PRODUCE_VERSION))
    return peer.client.take()


def test_each_group_has_its_own_enforcement(mixed: ProxyFixture) -> None:
    """On one connection a declared group waits for its schedule, and another client-id gets the throttle time of its window."""
    peer = mixed.connect()
    assert peer.sends(produce_of(1_500, 1, client_id="even")) == [1]
    assert throttle_ms(answer(peer, 1), ApiKey.PRODUCE, PRODUCE_VERSION) == 0
    assert peer.sends(produce_of(100, 2, client_id="even")) == []
    mixed.wait(500)
    assert peer.forwarded() == [2]
    answer(peer, 2)
    assert peer.sends(produce_for(2_000, 3)) == [3]
    mixed.wait(0)
    assert answer(peer, 3) == b""
    mixed.wait(2_000)
    assert throttle_ms(peer.client.take(), ApiKey.PRODUCE, PRODUCE_VERSION) == 0
    (even,) = [group for group in mixed.scope.produce.groups() if isinstance(group, PacedGroup)]
    assert even.tags == {GROUP_TAG: "even"}


def test_fetches_of_both_kinds_are_answered_in_order(mixed: ProxyFixture) -> None:
    """Fetches of both groups in flight on one connection are each recorded in their own group, with their own size."""
    peer = mixed.connect()
    requests = [fetch(1, version=FETCH_VERSION, client_id="even"), fetch(2, version=FETCH_VERSION), fetch(3, version=FETCH_VERSION)]
    assert peer.sends(requests[0]) == [1]
    assert peer.sends(requests[1]) == [2]
    groups = {isinstance(group, PacedGroup): group for group in mixed.scope.fetch.groups()}
    assert groups[True].pending == 500
    assert groups[False].pending == 10_000
    peer.answers(fetched_of(300, 1), fetched_of(4_000, 2))
    assert (groups[True].pending, groups[False].pending) == (0, 0)
    assert (groups[True].recorded_total, groups[False].recorded_total) == (300, 4_000)


def test_names_that_are_too_long_to_be_remembered_are_not_mixed_up(mixed: ProxyFixture) -> None:
    """Of requests that arrive together, with client-ids that are too long to be kept, each is counted for its own group, in a window."""
    names = ["a" * 300, "b" * 300]
    for name in names:
        mixed.set_quota(produce=1e6, client_id=name)
    peer = mixed.connect()
    requests = [produce_of(size, number, client_id=names[number % 2]) for number, size in enumerate((500, 700, 900))]
    assert peer.sends(b"".join(requests)) == [0, 1, 2]
    for number in range(3):
        answer(peer, number)
    totals = {group.tags["client-id"][0]: group.recorded_total for group in mixed.scope.produce.groups()}
    assert totals == {"a": 1_400, "b": 700}
