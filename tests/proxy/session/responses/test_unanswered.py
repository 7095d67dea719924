"""A Produce with acks=0 has no response, so the only way to throttle it is to stop reading from the client."""

import pytest

from proxy.enforcement.mode import Mode
from tests.support.frames.kafka_frames import plain, produced
from tests.support.memory.memory_connection import ProxyFixture
from tests.support.memory.verdicts import PRODUCE_VERSION, produce_for, produce_of


@pytest.mark.parametrize("mode", [Mode.DELAY, Mode.MUTE])
def test_over_quota_mutes(proxy: ProxyFixture, mode: Mode) -> None:
    """An acks=0 request over quota is forwarded, and nothing is read from the client for the whole throttle time."""
    proxy.enforcement.mode = mode
    peer = proxy.connect()
    assert peer.sends(produce_for(12_000, 1, acks=0)) == [1]
    assert not peer.client.reading
    assert peer.sends(plain(2)) == []
    proxy.wait(11_999)
    assert peer.forwarded() == []
    proxy.wait(1)
    assert peer.forwarded() == [2]


def test_what_stands_behind_it_in_the_same_read_is_kept(proxy: ProxyFixture) -> None:
    """Bytes that arrive in the same read behind an acks=0 request over quota are kept and forwarded whole after the throttle time."""
    peer = proxy.connect()
    second = produce_of(500, 2, acks=0)
    peer.client.arrive(produce_for(12_000, 1, acks=0) + second[:200])
    assert peer.forwarded() == [1]
    peer.client.arrive(second[200:])
    proxy.wait(12_000)
    assert peer.broker.take() == second


def test_it_takes_no_slot(proxy: ProxyFixture) -> None:
    """An acks=0 request takes no place in the queue of requests in flight."""
    peer = proxy.connect()
    assert peer.sends(produce_of(100, 1, acks=0), plain(2), produce_of(100, 3, acks=0), produce_of(100, 4)) == [1, 2, 3, 4]
    assert peer.answers(b"\0\0\0\x04\0\0\0\x02", produced(4, version=PRODUCE_VERSION)) == [2, 4]


def test_answers_pending_when_it_mutes_are_not_held(proxy: ProxyFixture) -> None:
    """A response that is pending when an acks=0 request goes over quota is not held, and its own verdict extends the throttle."""
    peer = proxy.connect()
    assert peer.sends(produce_of(8_000, 1), produce_for(2_000, 2, acks=0)) == [1, 2]
    assert peer.answers(produced(1, version=PRODUCE_VERSION)) == [1]
    assert peer.connection.session.throttle.throttled_until_ms == proxy.now_ms + 10_000


def test_one_at_a_time_until_a_verdict_of_0(proxy: ProxyFixture) -> None:
    """After the throttle time acks=0 requests are forwarded one at a time until one of them is within the quota."""
    peer = proxy.connect()
    peer.sends(produce_for(2_000, 1, acks=0))
    peer.sends(produce_of(1_000, 2, acks=0), produce_of(1_000, 3, acks=0))
    proxy.wait(2_000)
    assert peer.forwarded() == [2]
    proxy.wait(20_000)
    assert peer.forwarded() == [3]
    assert peer.sends(produce_of(100, 4, acks=0), produce_of(100, 5, acks=0)) == [4, 5]


@pytest.mark.parametrize("acks", [-1, 1])
def test_other_acks_are_judged_at_the_answer(proxy: ProxyFixture, acks: int) -> None:
    """A Produce with acks=1 or acks=-1 is judged at its response, so the client is read until then."""
    peer = proxy.connect()
    peer.sends(produce_for(12_000, 1, acks=acks))
    assert peer.client.reading
    assert peer.sends(plain(2)) == [2]
