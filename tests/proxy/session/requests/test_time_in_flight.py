"""Requests are forwarded only while the expected request time of those in flight fits into the window of their quota."""

import pytest

from proxy.base.pause_reason import IN_FLIGHT
from proxy.enforcement.mode import Mode
from tests.support.frames.kafka_frames import answered, plain
from tests.support.memory.memory_connection import ProxyFixture

COST_MS = 0.25
"""The expected cost of a small request before anything has been measured."""
HOLDS = 10
"""The number of windows of one second that count."""


def percent_for(requests: int) -> float:
    """Return the request quota whose window holds this many small requests and half of one more."""
    return (requests + 0.5) * COST_MS / 10 / HOLDS


def numbered(count: int, client_id: str = "etl") -> list[bytes]:
    """Return this many requests."""
    return [plain(number, client_id=client_id) for number in range(1, count + 1)]


@pytest.mark.parametrize(("holds", "forwarded"), [(0, 1), (1, 2), (5, 6), (62, 63), (63, 64), (1_000, 64)])
def test_none_follows_those_that_will_bring_the_group_over_its_bound(proxy: ProxyFixture, holds: int, forwarded: int) -> None:
    """The first request is forwarded at any cost, and others follow as long as those in flight before them fit into the window."""
    proxy.set_quota(request=percent_for(holds))
    peer = proxy.connect()
    assert peer.sends(*numbered(70)) == list(range(1, forwarded + 1))
    assert not peer.client.reading
    assert peer.connection.client.pauses == IN_FLIGHT


def test_what_was_counted_before_takes_room(proxy: ProxyFixture) -> None:
    """Request time that another connection of the group has used reduces the number of requests that are forwarded at once."""
    proxy.set_quota(request=percent_for(5))
    first, second = proxy.connect(), proxy.connect()
    for number in range(1, 4):
        first.sends(plain(number))
        proxy.wait(1)
        first.answers(answered(number))
    (group,) = proxy.scope.request.groups()
    room = group.max_value_in_window() - group.recorded_total
    each = proxy.broker_times.unit_ns / 1e7
    assert second.sends(*numbered(9)) == list(range(1, 2 + int(room / each)))


def test_what_other_connections_sent_ahead_takes_room(proxy: ProxyFixture) -> None:
    """While the requests in flight of one connection fill the window, another connection of the group has one request in flight."""
    proxy.set_quota(request=percent_for(5))
    first, second = proxy.connect(), proxy.connect()
    assert first.sends(*numbered(9)) == [1, 2, 3, 4, 5, 6]
    assert second.sends(*numbered(9)) == [1]
    (group,) = proxy.scope.request.groups()
    first.connection.client.connection_lost(None)
    second.connection.client.connection_lost(None)
    assert group.pending == 0


def test_time_makes_room(proxy: ProxyFixture) -> None:
    """A request that waits is forwarded at the next response after enough time has passed for it to fit into the window."""
    proxy.set_quota(request=percent_for(2))
    proxy.enforcement.mode = Mode.MUTE
    peer = proxy.connect()
    assert peer.sends(*numbered(6)) == [1, 2, 3]
    proxy.wait(1)
    assert peer.answers(answered(1)) == [1]
    assert peer.forwarded() == []
    proxy.wait(12_000)
    assert peer.answers(answered(2)) == [2]
    assert peer.forwarded() != []


def test_client_ids_of_a_connection_have_quotas_of_their_own(proxy: ProxyFixture) -> None:
    """A client-id without a quota is not limited by the quota of another client-id on the same connection."""
    proxy.set_quota(request=percent_for(1))
    peer = proxy.connect()
    assert peer.sends(plain(1), plain(2), *(plain(number, client_id="free") for number in (3, 4, 5)), plain(6)) == [1, 2, 3, 4, 5]


def test_without_a_limit_nothing_waits(proxy: ProxyFixture) -> None:
    """No request waits without a quota, in a drain, or in observe mode."""
    proxy.set_quota(request=percent_for(1))
    assert proxy.connect().sends(*numbered(5, "free")) == [1, 2, 3, 4, 5]
    draining = proxy.connect()
    assert draining.sends(*numbered(5)) == [1, 2]
    draining.connection.drain()
    assert draining.forwarded() == [3, 4, 5]
    proxy.enforcement.mode = Mode.OBSERVE
    assert proxy.connect().sends(*numbered(5)) == [1, 2, 3, 4, 5]
