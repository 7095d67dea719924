"""In `mute` (KIP-219) a response is sent at once with its throttle time, and nothing is read from the client for that time."""

import pytest

from proxy.enforcement.mode import Mode
from tests.support.frames.kafka_frames import fetch, plain, produced, throttle_ms
from tests.support.memory.memory_connection import ProxyFixture
from tests.support.memory.verdicts import FETCH_VERSION, PRODUCE_VERSION, fetched_for, pipelined, produce_for, produce_of


@pytest.fixture(autouse=True)
def _mute(proxy: ProxyFixture) -> None:
    proxy.enforcement.mode = Mode.MUTE


@pytest.mark.parametrize("verdict_ms", [1, 5_000, 24_999, 25_000, 25_001, 600_000])
def test_answered_at_once_then_not_read(proxy: ProxyFixture, verdict_ms: int) -> None:
    """The response is sent at once with the whole throttle time, and nothing is read for that time or 25 s, whichever is shorter."""
    peer = proxy.connect()
    peer.sends(produce_for(verdict_ms, 1))
    peer.broker.arrive(produced(1, version=PRODUCE_VERSION))
    assert throttle_ms(peer.client.take(), 0, PRODUCE_VERSION) == verdict_ms
    assert peer.broker.reading
    assert not peer.client.reading
    off_ms = min(verdict_ms, 25_000)
    assert peer.sends(plain(2)) == []
    proxy.wait(off_ms - 1)
    assert peer.forwarded() == []
    proxy.wait(1)
    assert peer.forwarded() == [2]


@pytest.mark.parametrize(("from_broker_ms", "expected_ms"), [(0, 3_000), (2_999, 3_000), (3_001, 3_001)])
def test_the_longer_throttle_time_wins(proxy: ProxyFixture, from_broker_ms: int, expected_ms: int) -> None:
    """The larger of the broker's and the proxy's throttle time is announced."""
    peer = proxy.connect()
    answer = produced(1, version=PRODUCE_VERSION, throttle_ms=from_broker_ms)
    frame = peer.asks(produce_for(3_000, 1), answer)
    assert throttle_ms(frame, 0, PRODUCE_VERSION) == expected_ms
    assert (frame == answer) == (from_broker_ms >= 3_000)


def test_only_the_four_bytes_change(proxy: ProxyFixture) -> None:
    """Only the four bytes of the throttle time of a large response are changed."""
    peer = proxy.connect()
    answer = fetched_for(3_000, 1)
    frame = peer.asks(fetch(1, version=FETCH_VERSION), answer)
    differing = [at for at, (ours, theirs) in enumerate(zip(frame, answer, strict=True)) if ours != theirs]
    assert set(differing) <= {8, 9, 10, 11}
    assert throttle_ms(frame, 1, FETCH_VERSION) == 3_000


def test_pending_answers_go_at_once_too(proxy: ProxyFixture) -> None:
    """Each pending response is sent at once with its own verdict, which extends the throttle."""
    peer = proxy.connect()
    assert pipelined(proxy, peer, produce_for(2_000, 1), produce_of(3_000, 2), produce_of(4_000, 3)) == [1, 2, 3]
    announced = []
    for number in (1, 2, 3):
        peer.broker.arrive(produced(number, version=PRODUCE_VERSION))
        announced.append(throttle_ms(peer.client.take(), 0, PRODUCE_VERSION))
    assert announced == [2_000, 5_000, 9_000]
    assert peer.connection.session.throttle.throttled_until_ms == proxy.now_ms + 9_000


def test_an_old_version_without_throttle_time_is_muted_all_the_same(proxy: ProxyFixture) -> None:
    """A response in a version without a throttle time is unchanged, and nothing is read from the client."""
    peer = proxy.connect()
    request = produce_for(3_000, 1)
    as_v0 = request[:6] + b"\0\0" + request[8:17] + request[19:]  # version 0 has no transactional id
    as_v0 = (len(as_v0) - 4).to_bytes(4, "big") + as_v0[4:]
    answer = b"\0\0\0\x08\0\0\0\x01\0\0\0\0"
    assert peer.asks(as_v0, answer) == answer
    assert not peer.client.reading
