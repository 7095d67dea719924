"""In `delay` a response is held, the rest of its throttle time is announced, and nothing is read from the client meanwhile."""

import pytest

from proxy.base.pause_reason import THROTTLE
from tests.support.frames.kafka_frames import answered, fetch, plain, produced, throttle_ms
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.verdicts import FETCH_VERSION, PRODUCE_VERSION, fetched_for, pipelined, produce_for, produce_of

PRODUCE = (0, PRODUCE_VERSION)


def delivered_after(proxy: ProxyFixture, peer: Peer, ms: int) -> bytes:
    """Assert that nothing reaches the client before this time; return what does then."""
    proxy.wait(ms - 1)
    assert peer.client.take() == b"", "the answer came too early"
    proxy.wait(1)
    return peer.client.take()


@pytest.mark.parametrize(
    ("verdict_ms", "delay_max_ms", "age_ms", "held_ms", "announced_ms"),
    [
        pytest.param(1, 5_000, 0, 1, 0, id="the-smallest-verdict-is-waited-out"),
        pytest.param(700, 5_000, 0, 700, 0, id="a-short-verdict-is-waited-out"),
        pytest.param(5_000, 5_000, 0, 5_000, 0, id="as-long-as-the-maximum"),
        pytest.param(5_001, 5_000, 0, 5_000, 1, id="what-is-beyond-the-maximum-is-announced"),
        pytest.param(60_000, 5_000, 0, 5_000, 55_000, id="a-long-one-is-mostly-announced"),
        pytest.param(60_000, 100, 0, 100, 59_900, id="a-smaller-maximum"),
        pytest.param(60_000, 0, 0, 0, 60_000, id="a-maximum-of-0-is-mute"),
        pytest.param(60_000, 5_000, 21_000, 4_000, 56_000, id="an-old-request-waits-until-it-is-25-s-old"),
        pytest.param(60_000, 5_000, 25_000, 0, 60_000, id="at-25-s-it-waits-no-more"),
        pytest.param(60_000, 5_000, 29_000, 0, 60_000, id="nor-after"),
        pytest.param(3_000, 5_000, 23_000, 2_000, 1_000, id="age-limits-a-short-one-too"),
    ],
)
def test_hold_and_announcement(
    proxy: ProxyFixture, verdict_ms: int, delay_max_ms: int, age_ms: int, held_ms: int, announced_ms: int
) -> None:
    """A response is held for min(throttle time, delay_max_ms, 25 s - age of the request), and announces the rest."""
    proxy.enforcement.delay_max_ms = delay_max_ms
    peer = proxy.connect()
    assert peer.sends(produce_for(verdict_ms, 1)) == [1]
    proxy.wait(age_ms)
    peer.broker.arrive(produced(1, version=PRODUCE_VERSION))
    frame = delivered_after(proxy, peer, held_ms) if held_ms else peer.client.take()
    assert throttle_ms(frame, *PRODUCE) == announced_ms


@pytest.mark.parametrize(
    ("from_broker_ms", "expected_ms"), [(0, 55_000), (54_999, 55_000), (55_000, 55_000), (55_001, 55_001), (2**31 - 1, 2**31 - 1)]
)
def test_the_longer_throttle_time_wins(proxy: ProxyFixture, from_broker_ms: int, expected_ms: int) -> None:
    """The response announces the larger of the broker's and the proxy's throttle time."""
    peer = proxy.connect()
    peer.sends(produce_for(60_000, 1))
    peer.broker.arrive(produced(1, version=PRODUCE_VERSION, throttle_ms=from_broker_ms))
    proxy.wait(5_000)
    assert throttle_ms(peer.client.take(), *PRODUCE) == expected_ms


@pytest.mark.parametrize("from_broker_ms", [0, 7])
def test_nothing_to_announce_leaves_the_answer_untouched(proxy: ProxyFixture, from_broker_ms: int) -> None:
    """A response within the quota, or held for its whole throttle time, reaches the client unchanged."""
    peer = proxy.connect()
    within = produced(1, version=PRODUCE_VERSION, throttle_ms=from_broker_ms)
    assert peer.asks(produce_of(9_000, 1), within) == within
    held = produced(2, version=PRODUCE_VERSION, throttle_ms=from_broker_ms)
    assert peer.asks(produce_of(2_000, 2), held) == b""
    proxy.wait(1_000)
    assert peer.client.take() == held


def test_a_held_answer_stays_in_the_brokers_socket(proxy: ProxyFixture) -> None:
    """Nothing is read from the broker behind the first bytes of a held response until its deadline."""
    peer = proxy.connect()
    peer.sends(fetch(1, version=FETCH_VERSION))
    answer = fetched_for(2_000, 1)
    peer.broker.arrive(answer[:1_000])
    assert not peer.broker.reading
    assert peer.connection.broker.pauses == THROTTLE
    peer.broker.arrive(answer[1_000:])
    assert peer.broker.unread_bytes == len(answer) - 1_000
    assert peer.connection.session.responses.held_bytes == 1_000
    proxy.wait(1_999)
    assert peer.client.take() == b""
    proxy.wait(1)
    assert peer.client.take() == answer
    assert peer.broker.reading


def test_nothing_is_read_until_the_throttle_is_over(proxy: ProxyFixture) -> None:
    """Nothing is read from the client until the throttle is over, although its response is sent before that."""
    peer = proxy.connect()
    peer.sends(produce_for(12_000, 1))
    peer.answers(produced(1, version=PRODUCE_VERSION))
    assert not peer.client.reading
    assert peer.sends(produce_of(100, 2)) == []
    assert peer.client.unread_bytes > 0, "read although reading is off"
    proxy.wait(11_999)
    assert peer.forwarded() == []
    proxy.wait(1)
    assert peer.forwarded() == [2]


def test_a_read_that_slipped_in_is_kept_back(proxy: ProxyFixture) -> None:
    """Bytes of the client that were read just before reading stopped are kept whole and forwarded after the throttle."""
    peer = proxy.connect()
    peer.sends(produce_for(12_000, 1))
    peer.answers(produced(1, version=PRODUCE_VERSION))
    slipped = produce_of(100, 2)
    peer.connection.client.data_received(slipped[:50])
    peer.connection.client.data_received(slipped[50:])
    assert peer.forwarded() == []
    proxy.wait(12_000)
    assert peer.broker.take() == slipped


@pytest.mark.parametrize("pending", [1, 3, 20])
def test_pending_answers_leave_at_the_same_deadline(proxy: ProxyFixture, pending: int) -> None:
    """All responses that are pending behind a held one are sent with it at its deadline."""
    peer = proxy.connect()
    ids = list(range(1, pending + 2))
    assert pipelined(proxy, peer, produce_for(2_000, 1), *(produce_of(100, number) for number in ids[1:])) == ids
    assert peer.answers(produced(1, version=PRODUCE_VERSION)) == []
    proxy.wait(500)
    peer.broker.arrive(b"".join(produced(number, version=PRODUCE_VERSION) for number in ids[1:]))
    proxy.wait(1_499)
    assert peer.delivered() == []
    proxy.wait(1)
    assert peer.delivered() == ids
    assert peer.connection.session.responses.held.until_ms == 0


def test_a_pending_answer_that_comes_after_the_deadline_does_not_wait(proxy: ProxyFixture) -> None:
    """A pending response over quota that arrives after the deadline is sent at once and announces its whole throttle time."""
    peer = proxy.connect()
    assert pipelined(proxy, peer, produce_for(2_000, 1), produce_of(3_000, 2)) == [1, 2]
    peer.answers(produced(1, version=PRODUCE_VERSION))
    proxy.wait(4_000)
    assert peer.delivered() == [1]
    peer.broker.arrive(produced(2, version=PRODUCE_VERSION))
    assert throttle_ms(peer.client.take(), *PRODUCE) == 5_000


def test_each_pending_answer_extends_the_throttle(proxy: ProxyFixture) -> None:
    """Each pending response over quota extends the throttle by its own verdict, and is held no longer than the first one."""
    peer = proxy.connect()
    assert pipelined(proxy, peer, produce_for(2_000, 1), produce_of(3_000, 2), produce_of(4_000, 3)) == [1, 2, 3]
    peer.answers(*(produced(number, version=PRODUCE_VERSION) for number in (1, 2, 3)))
    throttle = peer.connection.session.throttle
    assert throttle.throttled_until_ms == proxy.now_ms + 2_000 + 3_000 + 4_000
    assert throttle.read_off_until_ms == throttle.throttled_until_ms
    proxy.wait(2_000)
    assert peer.delivered() == [1, 2, 3], "held longer than the first verdict says"


def test_pending_answers_of_all_kinds_keep_their_order(proxy: ProxyFixture) -> None:
    """Responses behind a held one wait with it, also those of other APIs, and all are sent in order."""
    peer = proxy.connect()
    assert pipelined(proxy, peer, produce_for(2_000, 1), plain(2), produce_of(100, 3), plain(4)) == [1, 2, 3, 4]
    peer.answers(produced(1, version=PRODUCE_VERSION), answered(2), produced(3, version=PRODUCE_VERSION), answered(4))
    proxy.wait(1_999)
    assert peer.delivered() == []
    proxy.wait(1)
    assert peer.delivered() == [1, 2, 3, 4]


def test_one_request_at_a_time_while_throttled(proxy: ProxyFixture) -> None:
    """After the throttle time requests are forwarded one at a time until a verdict of 0 ends the throttle."""
    peer = proxy.connect()
    peer.sends(produce_for(2_000, 1))
    peer.answers(produced(1, version=PRODUCE_VERSION))
    peer.sends(plain(2), produce_of(100, 3), *(plain(number) for number in (4, 5, 6)))
    proxy.wait(11_900)
    assert peer.forwarded() == [2]
    assert peer.answers(answered(2)) == [1, 2]
    assert peer.forwarded() == [3], "an answer that no quota judges ends no throttle"
    assert peer.connection.session.throttle.is_throttled
    proxy.wait(1_000)
    peer.answers(produced(3, version=PRODUCE_VERSION))
    assert not peer.connection.session.throttle.is_throttled
    assert peer.forwarded() == [4, 5, 6]


def test_what_was_sent_before_the_verdict_is_delivered(proxy: ProxyFixture) -> None:
    """Responses in front of the one over quota in the same read are sent at once."""
    peer = proxy.connect()
    assert peer.sends(plain(1), produce_of(100, 2), produce_for(2_000, 3)) == [1, 2, 3]
    assert peer.answers(answered(1), produced(2, version=PRODUCE_VERSION), produced(3, version=PRODUCE_VERSION)) == [1, 2]
    proxy.wait(2_100)
    assert peer.delivered() == [3]


def test_the_throttle_belongs_to_the_connection(proxy: ProxyFixture) -> None:
    """Another connection of a throttled group is still read, and its next response is judged by the rate of the group."""
    first, second = proxy.connect(), proxy.connect()
    first.sends(produce_for(2_000, 1))
    first.answers(produced(1, version=PRODUCE_VERSION))
    assert second.client.reading
    assert second.sends(produce_of(500, 1)) == [1]
    second.broker.arrive(produced(1, version=PRODUCE_VERSION))
    proxy.wait(2_499)
    assert second.delivered() == []
    proxy.wait(1)
    assert second.delivered() == [1]


def test_verdicts_stay_within_an_int32(proxy: ProxyFixture) -> None:
    """The largest throttle time that is announced fits an int32, and reading stops for 25 s at most."""
    proxy.set_quota(produce=1e-9)
    peer = proxy.connect()
    peer.sends(produce_of(100, 1))
    peer.broker.arrive(produced(1, version=PRODUCE_VERSION))
    proxy.wait(5_000)
    assert throttle_ms(peer.client.take(), *PRODUCE) == 2**31 - 1 - 5_000
    assert peer.connection.session.throttle.read_off_until_ms == proxy.now_ms + 20_000
