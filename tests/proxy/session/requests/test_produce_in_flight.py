"""Produced bytes in flight stay within the group's window; in Kafka one request of a connection is handled at a time."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.base.pause_reason import IN_FLIGHT
from proxy.enforcement.mode import Mode
from tests.support.frames.kafka_frames import answered, fetch, plain, produced
from tests.support.memory.memory_connection import ProxyFixture
from tests.support.memory.verdicts import PRODUCE_VERSION, produce_of

ANSWER_MS = 20


def answer(number: int) -> bytes:
    """Return the response to a Produce."""
    return produced(number, version=PRODUCE_VERSION)


def test_small_requests_are_pipelined_as_ever(proxy: ProxyFixture) -> None:
    """Up to 64 small requests are forwarded before the first response."""
    peer = proxy.connect()
    assert peer.sends(*(produce_of(100, number) for number in range(1, 70))) == list(range(1, 65))


@pytest.mark.parametrize(("first_bytes", "forwarded"), [(9_999, [1, 2]), (10_000, [1, 2]), (10_005, [1]), (50_000, [1])])
def test_none_follows_one_that_brings_the_group_over_its_bound(proxy: ProxyFixture, first_bytes: int, forwarded: list[int]) -> None:
    """No request is forwarded behind one that exceeds the window, and the first is forwarded whatever its size."""
    peer = proxy.connect()
    assert peer.sends(produce_of(first_bytes, 1), produce_of(5_000, 2), produce_of(100, 3)) == forwarded
    assert not peer.client.reading
    assert peer.connection.client.pauses == IN_FLIGHT


def test_what_was_counted_before_takes_room(proxy: ProxyFixture) -> None:
    """Bytes that other connections of the group have produced reduce what may be in flight."""
    first, second = proxy.connect(), proxy.connect()
    first.asks(produce_of(8_000, 1), answer(1))
    assert second.sends(*(produce_of(1_500, number) for number in range(1, 5))) == [1, 2]


def test_what_other_connections_sent_ahead_takes_room(proxy: ProxyFixture) -> None:
    """Bytes that other connections have in flight reduce what a connection may pipeline."""
    first, second = proxy.connect(), proxy.connect()
    assert first.sends(*(produce_of(3_000, number) for number in range(1, 4))) == [1, 2, 3]
    (group,) = proxy.scope.produce.groups()
    assert group.pending == 9_000
    assert second.sends(*(produce_of(600, number) for number in range(1, 5))) == [1, 2]
    first.answers(*(answer(number) for number in range(1, 4)))
    assert group.pending == 1_200
    second.answers(answer(1), answer(2))
    assert group.pending == 0


def test_a_burst_of_connections_shares_one_window(proxy: ProxyFixture) -> None:
    """Fifty connections that pipeline and reset pass one request each and one window together."""
    passed, peers = 0, [proxy.connect() for _ in range(50)]
    for peer in peers:
        passed += len(peer.sends(*(produce_of(2_000, number) for number in range(1, 6))))
    assert passed <= 50 + 5
    (group,) = proxy.scope.produce.groups()
    for peer in peers:
        peer.connection.client.connection_lost(ConnectionResetError())
    assert (group.pending, group.recorded_total) == (0, passed * 2_000)


def test_nothing_is_noted_far_below_the_bound(proxy: ProxyFixture) -> None:
    """Far below the bound no pending bytes are recorded."""
    proxy.set_quota(produce=1e9)
    peer = proxy.connect()
    peer.asks(produce_of(100, 99), answer(99))
    assert len(peer.sends(*(produce_of(2_000, number) for number in range(1, 20)))) == 19
    (group,) = proxy.scope.produce.groups()
    assert group.pending == 0


def test_an_answer_within_the_quota_lets_the_next_go(proxy: ProxyFixture) -> None:
    """The request that waits is forwarded only when those in flight are answered and the throttle is over."""
    peer = proxy.connect()
    proxy.enforcement.mode = Mode.MUTE
    assert peer.sends(*(produce_of(6_000, number) for number in range(1, 5))) == [1, 2]
    assert peer.answers(answer(1)) == [1]
    assert peer.forwarded() == [], "12,000 bytes are over the bound as soon as the second is answered"
    assert peer.answers(answer(2)) == [2]
    assert peer.connection.session.throttle.is_throttled
    proxy.wait(11_000)
    assert peer.forwarded() == [3]


def test_time_makes_room(proxy: ProxyFixture) -> None:
    """A response checks again whether the next request fits."""
    peer = proxy.connect()
    peer.asks(produce_of(9_000, 1), answer(1))
    assert peer.sends(produce_of(500, 2), produce_of(700, 3), produce_of(500, 4)) == [2, 3]
    proxy.wait(11_000)
    peer.answers(answer(2))
    assert peer.forwarded() == [4]


def test_requests_of_other_kinds_count_nothing(proxy: ProxyFixture) -> None:
    """Only produced bytes count, and requests behind a waiting one keep their order."""
    peer = proxy.connect()
    assert peer.sends(fetch(1), plain(2), produce_of(12_000, 3), plain(4), produce_of(100, 5), plain(6)) == [1, 2, 3, 4]
    peer.answers(answered(1, 1, 12), answered(2))
    assert peer.forwarded() == []


def test_client_ids_of_a_connection_count_for_themselves(proxy: ProxyFixture) -> None:
    """The bytes of one client-id do not stop another one of the same connection."""
    proxy.set_quota(produce=1_000.0, client_id="other")
    peer = proxy.connect()
    frames = [produce_of(12_000, 1), produce_of(100, 2, client_id="other"), produce_of(100, 3, client_id="free"), produce_of(100, 4)]
    assert peer.sends(*frames) == [1, 2, 3]


def test_without_a_limit_nothing_waits(proxy: ProxyFixture) -> None:
    """No request waits in mode `observe`, without a quota, or in a drain."""
    frames = [produce_of(9_000, number) for number in range(1, 6)]
    proxy.enforcement.mode = Mode.OBSERVE
    assert proxy.connect().sends(*frames) == [1, 2, 3, 4, 5]
    proxy.enforcement.mode = Mode.DELAY
    free = [produce_of(9_000, number, client_id="free") for number in range(1, 6)]
    assert proxy.connect().sends(*free) == [1, 2, 3, 4, 5]
    draining = proxy.connect()
    assert draining.sends(*frames) == [1, 2]
    draining.connection.drain()
    assert draining.forwarded() == [3, 4, 5]


Sent = tuple[int, int]
"""Correlation id and produced bytes; 0 for another kind of request."""

SIZES = st.sampled_from([0, 0, 60, 300, 1_000, 2_600, 6_000, 11_000])
STEPS = st.lists(st.tuples(st.lists(SIZES, max_size=8), st.integers(0, 4), st.sampled_from([0, 1, 400, 3_000])), max_size=20)


def let_go(proxy: ProxyFixture, waiting: list[Sent], in_flight: list[Sent]) -> list[int]:
    """Move the requests that the rule allows from `waiting` to `in_flight`, and return their ids."""
    (group,) = proxy.scope.produce.groups()
    gone = []
    while waiting and len(in_flight) < 64:
        produced_bytes = sum(size for _, size in in_flight)
        if waiting[0][1] and in_flight and group.would_throttle_ms(produced_bytes, proxy.now_ms) > 0:
            break
        in_flight.append(waiting.pop(0))
        gone.append(in_flight[-1][0])
    return gone


@settings(max_examples=100, deadline=None)
@given(steps=STEPS)
@example(steps=[([60, 300, 1_000, 2_600, 6_000, 60], 0, 400), ([0], 1, 0)])
def test_what_is_in_flight_is_what_the_rule_says(steps: list[tuple[list[int], int, int]]) -> None:
    """A Produce is forwarded if nothing is in flight, or if the bytes in flight stay within the bound."""
    with ProxyFixture(produce=1_000.0, mode=Mode.MUTE) as proxy:
        peer = proxy.connect()
        peer.asks(produce_of(100, 1), answer(1))
        waiting: list[Sent] = []
        in_flight: list[Sent] = []
        number = 1
        for sizes, answers, wait_ms in steps:
            sent = [(number + at, size) for at, size in enumerate(sizes, 1)]
            number += len(sent)
            stopped = bool(waiting)  # then a response lets more requests go
            waiting += sent
            forwarded = peer.sends(*(produce_of(size, one) if size else plain(one) for one, size in sent))
            assert forwarded == ([] if stopped else let_go(proxy, waiting, in_flight))
            for _ in range(min(answers, len(in_flight))):
                one, size = in_flight.pop(0)
                peer.answers(answer(one) if size else answered(one))
                if peer.connection.session.throttle.is_throttled:
                    return
                proxy.wait(0)  # what the kernel has held while nothing was read
                assert peer.forwarded() == let_go(proxy, waiting, in_flight)
            proxy.wait(wait_ms)
            assert peer.forwarded() == []


def passed_in_125_s(depth: int, size_bytes: int, mode: Mode) -> int:
    """Return the bytes that a client with up to `depth` requests in flight gets answered in 125 s."""
    with ProxyFixture(produce=1_000.0, mode=mode) as proxy:
        peer = proxy.connect()
        sent = passed = 0
        due: list[tuple[int, int]] = []
        end_ms = proxy.now_ms + 125_000
        while proxy.now_ms < end_ms:
            while sent - passed < depth:
                sent += 1
                peer.client.arrive(produce_of(size_bytes, sent))
            due += [(proxy.now_ms + ANSWER_MS, number) for number in peer.forwarded()]
            proxy.wait(ANSWER_MS)
            while due and due[0][0] <= proxy.now_ms:
                peer.broker.arrive(answer(due.pop(0)[1]))
            passed += len(peer.delivered())
        return passed * size_bytes


@pytest.mark.parametrize("mode", [Mode.DELAY, Mode.MUTE])
@pytest.mark.parametrize("size_bytes", [300, 2_500, 10_000, 16_000])
def test_a_deep_pipeline_passes_what_one_at_a_time_passes(mode: Mode, size_bytes: int) -> None:
    """A client with 64 requests in flight passes at most a tenth more than one with a single request."""
    assert passed_in_125_s(64, size_bytes, mode) <= 1.1 * passed_in_125_s(1, size_bytes, mode)
