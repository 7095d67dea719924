"""`delay`: the answer waits, the rest is announced, nothing is read meanwhile. Through a whole connection, step by step."""

import pytest

from proxy.base.pause_reason import THROTTLE
from tests.support.frames.kafka_frames import answered, fetch, plain, produced, throttle_ms
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.verdicts import FETCH_VERSION, PRODUCE_VERSION, fetched_for, pipelined, produce_for, produce_of

PRODUCE = (0, PRODUCE_VERSION)


def delivered_after(proxy: ProxyFixture, peer: Peer, ms: int) -> bytes:
    """Wait until just before `ms`: nothing comes. Return what comes then."""
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
    """hold = max(0, min(ms, delay_max_ms, 25 s - age)); the answer announces the rest."""
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
    """throttle_time_ms in the answer = max(what the broker wrote, ours)."""
    peer = proxy.connect()
    peer.sends(produce_for(60_000, 1))
    peer.broker.arrive(produced(1, version=PRODUCE_VERSION, throttle_ms=from_broker_ms))
    proxy.wait(5_000)
    assert throttle_ms(peer.client.take(), *PRODUCE) == expected_ms


@pytest.mark.parametrize("from_broker_ms", [0, 7])
def test_nothing_to_announce_leaves_the_answer_untouched(proxy: ProxyFixture, from_broker_ms: int) -> None:
    """A verdict that is waited out, and no verdict at all, give the broker's own bytes."""
    peer = proxy.connect()
    within = produced(1, version=PRODUCE_VERSION, throttle_ms=from_broker_ms)
    assert peer.asks(produce_of(9_000, 1), within) == within
    held = produced(2, version=PRODUCE_VERSION, throttle_ms=from_broker_ms)
    assert peer.asks(produce_of(2_000, 2), held) == b""
    proxy.wait(1_000)
    assert peer.client.take() == held


def test_a_held_answer_stays_in_the_brokers_socket(proxy: ProxyFixture) -> None:
    """Reading from the broker stops at the answer's head and goes on at the deadline; a cut answer is not waited for."""
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
    """Reading is off until min(throttled_until, now + 25 s), however long the answer itself waits."""
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
    """Bytes that arrive behind the verdict because their read was pending wait here, whole and in order."""
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
    """Every response in flight when the verdict fell waits for the first one's deadline; none starts a second wait."""
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
    assert peer.connection.session.responses.hold_until_ms == 0


def test_a_pending_answer_that_comes_after_the_deadline_does_not_wait(proxy: ProxyFixture) -> None:
    """It is over quota too, yet it leaves at once and announces its whole verdict."""
    peer = proxy.connect()
    assert pipelined(proxy, peer, produce_for(2_000, 1), produce_of(3_000, 2)) == [1, 2]
    peer.answers(produced(1, version=PRODUCE_VERSION))
    proxy.wait(4_000)
    assert peer.delivered() == [1]
    peer.broker.arrive(produced(2, version=PRODUCE_VERSION))
    assert throttle_ms(peer.client.take(), *PRODUCE) == 5_000


def test_each_pending_answer_extends_the_throttle(proxy: ProxyFixture) -> None:
    """Its bytes are recorded as its head comes, and reading stays off for its verdict, counted from then."""
    peer = proxy.connect()
    assert pipelined(proxy, peer, produce_for(2_000, 1), produce_of(3_000, 2), produce_of(4_000, 3)) == [1, 2, 3]
    peer.answers(*(produced(number, version=PRODUCE_VERSION) for number in (1, 2, 3)))
    throttle = peer.connection.session.throttle
    assert throttle.throttled_until_ms == proxy.now_ms + 2_000 + 3_000 + 4_000
    assert throttle.read_off_until_ms == throttle.throttled_until_ms
    proxy.wait(2_000)
    assert peer.delivered() == [1, 2, 3], "held longer than the first verdict says"


def test_pending_answers_of_all_kinds_keep_their_order(proxy: ProxyFixture) -> None:
    """What no byte quota judges waits behind a held answer too: no response before its predecessor."""
    peer = proxy.connect()
    assert pipelined(proxy, peer, produce_for(2_000, 1), plain(2), produce_of(100, 3), plain(4)) == [1, 2, 3, 4]
    peer.answers(produced(1, version=PRODUCE_VERSION), answered(2), produced(3, version=PRODUCE_VERSION), answered(4))
    proxy.wait(1_999)
    assert peer.delivered() == []
    proxy.wait(1)
    assert peer.delivered() == [1, 2, 3, 4]


def test_one_request_at_a_time_while_throttled(proxy: ProxyFixture) -> None:
    """After the pause one request goes on, the next when it is answered; a verdict of 0 opens the pipeline again."""
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
    """Answers in the same read before the one that is over quota leave at once, it alone waits."""
    peer = proxy.connect()
    assert peer.sends(plain(1), produce_of(100, 2), produce_for(2_000, 3)) == [1, 2, 3]
    assert peer.answers(answered(1), produced(2, version=PRODUCE_VERSION), produced(3, version=PRODUCE_VERSION)) == [1, 2]
    proxy.wait(2_100)
    assert peer.delivered() == [3]


def test_the_throttle_belongs_to_the_connection(proxy: ProxyFixture) -> None:
    """Another connection of the same group reads on; the rate is the group's, so its next answer is judged by it."""
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
    """A throttle of years is announced as the largest number that fits, and reading goes on after 25 s."""
    proxy.set_quota(produce=1e-9)
    peer = proxy.connect()
    peer.sends(produce_of(100, 1))
    peer.broker.arrive(produced(1, version=PRODUCE_VERSION))
    proxy.wait(5_000)
    assert throttle_ms(peer.client.take(), *PRODUCE) == 2**31 - 1 - 5_000
    assert peer.connection.session.throttle.read_off_until_ms == proxy.now_ms + 20_000
