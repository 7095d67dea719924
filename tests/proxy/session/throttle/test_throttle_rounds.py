"""In each throttle round of 25 s one request of a throttled group is forwarded, so that its client does not time out."""

import pytest

from proxy.enforcement.mode import Mode
from tests.support.frames.kafka_frames import plain, produced, throttle_ms
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.verdicts import PRODUCE_VERSION, pipelined, produce_for, produce_of


@pytest.fixture(autouse=True)
def _mute(proxy: ProxyFixture) -> None:
    proxy.enforcement.mode = Mode.MUTE


def throttled(proxy: ProxyFixture, verdict_ms: int) -> Peer:
    """Return a connection whose last verdict was at least `verdict_ms`."""
    peer = proxy.connect()
    peer.asks(produce_for(verdict_ms, 1), produced(1, version=PRODUCE_VERSION))
    return peer


def test_a_single_connection_goes_on_in_each_throttle_round(proxy: ProxyFixture) -> None:
    """The next request of a throttled connection is forwarded after each 25 s, before the throttle is over."""
    peer = throttled(proxy, 100_000)
    peer.sends(produce_of(25_000, 2), produce_of(25_000, 3))
    for number in (2, 3):
        proxy.wait(24_999)
        assert peer.forwarded() == []
        proxy.wait(1)
        assert peer.forwarded() == [number]
        peer.broker.arrive(produced(number, version=PRODUCE_VERSION))
        peer.client.take()


def test_one_connection_of_the_group_goes_on_per_throttle_round(proxy: ProxyFixture) -> None:
    """One of three throttled connections of a group may forward a request in each throttle round, and each gets its turn."""
    peers = [throttled(proxy, 200_000) for _ in range(3)]
    for peer in peers:
        peer.sends(plain(2), plain(3))
    turns = []
    for _ in range(3):
        proxy.wait(25_000)
        turns.append([at for at, peer in enumerate(peers) if peer.forwarded()])
    assert all(len(turn) == 1 for turn in turns), turns
    assert {turn[0] for turn in turns} == {0, 1, 2}


def test_a_throttle_round_within_quota_does_not_end_the_throttle(proxy: ProxyFixture) -> None:
    """A request within the quota that a throttle round lets pass does not end the throttle before its time."""
    peer = throttled(proxy, 60_000)
    peer.sends(*(produce_of(900, number) for number in range(2, 6)))
    for number, wait_ms in ((2, 25_000), (3, 25_000), (4, 10_000)):
        proxy.wait(wait_ms - 1)
        assert peer.forwarded() == []
        proxy.wait(1)
        assert peer.forwarded() == [number]
        peer.answers(produced(number, version=PRODUCE_VERSION))
    assert peer.forwarded() == [5], "the throttle is over: within quota no client waits"


def test_groups_do_not_share_throttle_rounds(proxy: ProxyFixture) -> None:
    """Two client-ids with quotas of their own each forward one request in the same 25 s."""
    proxy.set_quota(produce=1_000.0, client_id="other")
    first = throttled(proxy, 100_000)
    second = proxy.connect()
    second.asks(produce_for(100_000, 1, client_id="other"), produced(1, version=PRODUCE_VERSION))
    first.sends(plain(2))
    second.sends(plain(2, client_id="other"))
    proxy.wait(25_000)
    assert first.forwarded() == [2]
    assert second.forwarded() == [2]


def test_a_throttle_that_is_over_needs_no_throttle_round(proxy: ProxyFixture) -> None:
    """Two connections of a group whose throttles end within 25 s both forward their next request."""
    peers = [throttled(proxy, 5_000), throttled(proxy, 0)]
    for peer in peers:
        peer.sends(plain(2))
    proxy.wait(24_000)
    assert [peer.forwarded() for peer in peers] == [[2], [2]]


def test_a_throttle_round_lets_one_request_go(proxy: ProxyFixture) -> None:
    """A throttle round forwards one request of a connection, and the request behind it waits."""
    peer = throttled(proxy, 100_000)
    peer.sends(plain(2), plain(3))
    proxy.wait(25_000)
    assert peer.forwarded() == [2]


def test_a_request_that_waited_here_has_its_age(proxy: ProxyFixture) -> None:
    """The time that a request waited in the proxy counts towards its 25 s, so its response is not held again."""
    proxy.enforcement.mode = Mode.DELAY
    peer = proxy.connect()
    pipelined(proxy, peer, produce_for(100_000, 1), *(produce_of(100, number) for number in range(2, 65)), produce_of(25_000, 65))
    assert len(peer.connection.session.in_flight) == 64
    peer.answers(produced(1, version=PRODUCE_VERSION))
    proxy.wait(5_000)
    peer.answers(*(produced(number, version=PRODUCE_VERSION) for number in range(2, 65)))
    proxy.wait(25_000)
    assert peer.forwarded()[-1] == 65
    peer.client.take()
    peer.broker.arrive(produced(65, version=PRODUCE_VERSION))
    frame = peer.client.take()
    assert frame, "held although its client has waited 30 s"
    assert throttle_ms(frame, 0, PRODUCE_VERSION) > 14_000
