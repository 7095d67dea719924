"""The handler time that a request is charged, from when it was forwarded and when its response came."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.api_keys import ApiKey
from proxy.handler_time import VERSIONS_BEFORE_LOGIN, BrokerHandlerTime, ConnectionHandlerTime, HandlerTimes, Work, work_of
from proxy.handler_time.broker import BROKERS_MAX, DOWN, FORGET_AFTER_NS, UNIT_NS
from proxy.handler_time.connection import HANDOVERS_NS
from proxy.handler_time.work import CAP_WAITING, IDLE_BROKER_SHARE

US, MS, SECOND = 1_000, 1_000_000, 1_000_000_000
START_NS = 3_600 * SECOND
STEP = 1 - DOWN
"""An estimate oscillates by one step."""


PRODUCE, METADATA, FETCH = work_of(ApiKey.PRODUCE, 1), work_of(ApiKey.METADATA), work_of(ApiKey.FETCH)
COMMIT, PRODUCE_ALL = work_of(ApiKey.OFFSET_COMMIT), work_of(ApiKey.PRODUCE, -1)


class Line:
    """A connection with a clock."""

    def __init__(self, broker: BrokerHandlerTime | None = None) -> None:
        self.broker = broker or BrokerHandlerTime()
        self.times = ConnectionHandlerTime(self.broker)
        self.now_ns = START_NS

    def ask(self, kind: Work = METADATA, took_ns: int = 300 * US, size: int = 300, *, apart_ns: int = 10 * MS) -> float:
        """Send one request, answer it after `took_ns`, and return its charge."""
        self.now_ns += apart_ns
        forwarded_ns = self.now_ns
        self.now_ns += took_ns
        return self.times.charge(kind, size, forwarded_ns, self.now_ns, behind_bytes=0)

    def ask_often(self, count: int, kind: Work = METADATA, took_ns: int = 300 * US, *, apart_ns: int = 10 * MS) -> float:
        """Repeat the same request and return the charge of the last one."""
        return [self.ask(kind, took_ns, apart_ns=apart_ns) for _ in range(count)][-1]


def test_a_request_alone_is_charged_for_most_of_the_time_that_it_took() -> None:
    """A lone request is charged its time less the handover time, times a factor."""
    line = Line()
    assert line.ask_often(500, took_ns=300 * US) == pytest.approx((300 * US - HANDOVERS_NS) * IDLE_BROKER_SHARE, rel=STEP)


def test_handing_over_takes_no_more_than_half() -> None:
    """At most half of a request's time is subtracted as handover time."""
    line = Line()
    assert line.ask_often(500, took_ns=40 * US) == pytest.approx(20 * US * IDLE_BROKER_SHARE, rel=STEP)


def test_the_network_time_to_the_broker_is_not_charged() -> None:
    """The smallest round-trip time is subtracted from the charge."""
    line = Line()
    line.times.set_rtt(2 * MS)
    assert line.ask_often(500, took_ns=2 * MS + 300 * US) == pytest.approx((300 * US - HANDOVERS_NS) * IDLE_BROKER_SHARE, rel=STEP)


def test_who_takes_longer_than_usual_waited() -> None:
    """Requests that take longer than the fastest tenth of their class are charged what the fast ones are."""
    line = Line()
    for _ in range(200):
        line.ask(took_ns=200 * US)
        for _ in range(4):
            line.ask(took_ns=5 * MS)
    assert line.ask(took_ns=5 * MS) == pytest.approx((200 * US - HANDOVERS_NS) * IDLE_BROKER_SHARE, rel=0.15)


def test_a_request_that_only_waits_is_charged_as_a_few_small_ones() -> None:
    """A Fetch that waits for half a second is charged at most a few small requests."""
    line = Line()
    line.ask_often(300, METADATA, 200 * US)
    unit_ns = line.broker.unit_ns
    charged = line.ask_often(200, FETCH, 500 * MS, apart_ns=MS)
    assert 0.2 * unit_ns < charged <= CAP_WAITING * max(unit_ns, UNIT_NS) + 300 * FETCH.ns_per_byte


@given(st.lists(st.tuples(st.sampled_from([PRODUCE, METADATA, FETCH, COMMIT, PRODUCE_ALL]), st.integers(0, 10 * SECOND)), max_size=60))
def test_no_client_is_charged_more_than_the_elapsed_time_and_no_waiting_beyond_its_cap(asked: Sequence[tuple[Work, int]]) -> None:
    """A charge is at most the elapsed time and, for an API that may wait, at most its cap."""
    line = Line()
    for kind, took_ns in asked:
        charged = line.ask(kind, took_ns)
        assert 0 <= charged <= took_ns
        if kind.cap:
            assert charged <= kind.cap * line.broker.unit_ns + 300 * kind.ns_per_byte + 1


@given(st.lists(st.integers(1, 20), min_size=1, max_size=20), st.integers(0, 5 * MS))
def test_answers_of_one_read_are_charged_no_more_than_the_time_before_it(reads: Sequence[int], apart_ns: int) -> None:
    """Responses of one read are charged together at most the elapsed time."""
    line = Line()
    for answers in reads:
        line.now_ns += apart_ns
        forwarded_ns = line.now_ns
        line.now_ns += 400 * US
        charged = [
            line.times.charge(METADATA, 300, forwarded_ns, line.now_ns, behind_bytes=answers - 1 - answer) for answer in range(answers)
        ]
        assert sum(charged) <= 400 * US + 1


def test_who_stood_behind_others_is_charged_from_their_end_on() -> None:
    """The second of two pipelined requests is charged the time since the first response."""
    line = Line()
    line.ask_often(500, took_ns=MS)
    line.now_ns += 10 * MS
    forwarded_ns = line.now_ns
    line.now_ns += MS
    assert line.times.charge(METADATA, 300, forwarded_ns, line.now_ns, behind_bytes=0) == pytest.approx(MS * IDLE_BROKER_SHARE, rel=STEP)
    line.now_ns += 100 * US
    assert line.times.charge(METADATA, 300, forwarded_ns, line.now_ns, behind_bytes=0) == 100 * US


def test_each_answer_of_one_read_is_charged_what_such_requests_cost() -> None:
    """Each response of one read is charged the usual cost of its class if enough time has passed."""
    line = Line()
    usual = line.ask_often(500, took_ns=300 * US)
    line.now_ns += 10 * MS
    forwarded_ns = line.now_ns
    line.now_ns += 10 * MS
    charged = [line.times.charge(METADATA, 300, forwarded_ns, line.now_ns, behind_bytes=behind) for behind in (2, 1, 0)]
    assert charged == pytest.approx([usual] * 3, rel=STEP)


def test_an_answer_that_was_not_read_teaches_nothing() -> None:
    """After a pause of reading a response is charged the usual cost and changes no estimate."""
    line = Line()
    usual = line.ask_often(500, took_ns=300 * US)
    line.times.pause()
    forwarded_ns = line.now_ns
    line.now_ns += 3 * SECOND
    line.times.resume(line.now_ns)
    line.now_ns += MS
    unit_ns = line.broker.unit_ns
    assert line.times.charge(METADATA, 300, forwarded_ns, line.now_ns, behind_bytes=0) == pytest.approx(usual, rel=STEP)
    assert line.broker.unit_ns == unit_ns
    assert line.ask(took_ns=300 * US) == pytest.approx(usual, rel=STEP)


def test_head_and_end_of_an_answer_are_charged_as_one() -> None:
    """The charges of a response's head and end add up to that of a whole response."""
    line, other = Line(), Line()
    for at in range(300):
        whole = other.ask(FETCH, 900 * US, 100_000)
        line.now_ns += 10 * MS
        forwarded_ns = line.now_ns
        head = line.times.charge_head(FETCH, 100_000, forwarded_ns, forwarded_ns + 400 * US)
        line.now_ns = forwarded_ns + 900 * US
        rest = line.times.charge_end(line.now_ns)
        assert head >= 0
        assert rest >= 0
        assert head + rest == pytest.approx(whole, rel=STEP), at
    assert line.times.charge_end(line.now_ns) == 0  # the end is charged once


def test_many_at_once_share_what_passes() -> None:
    """Four connections that are always busy are charged a quarter of the time each."""
    broker = BrokerHandlerTime()
    lines = [Line(broker) for _ in range(4)]
    charged = 0.0
    for turn in range(4_000):
        for line in lines:
            one = line.ask(took_ns=400 * US, apart_ns=0)
            charged += one if turn >= 2_000 else 0
    assert broker.load == pytest.approx(4, rel=0.1)
    assert charged / (4 * 2_000) == pytest.approx((400 * US - HANDOVERS_NS) * IDLE_BROKER_SHARE / 4, rel=0.1)


def test_waiting_is_no_load() -> None:
    """Waiting Fetches do not lower the charge of other requests; requests that wait for the broker's threads do."""
    charged = {}
    for kind in (FETCH, COMMIT):
        broker = BrokerHandlerTime()
        line, many = Line(broker), [Line(broker) for _ in range(10)]
        usual = line.ask_often(500, METADATA, 300 * US)
        for _ in range(100):
            for one in many:
                one.now_ns = line.now_ns
                one.ask(kind, took_ns=50 * MS, apart_ns=0)
            charged[kind] = line.ask(METADATA, 300 * US, apart_ns=50 * MS) / usual
    assert charged[FETCH] == pytest.approx(1, rel=0.1)
    assert charged[COMMIT] == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize("pause_ns", [100 * MS, 3_600 * SECOND])
def test_a_rush_is_over_for_the_next_request(pause_ns: int) -> None:
    """The load of past requests does not count for a later request."""
    broker = BrokerHandlerTime()
    rush, line = [Line(broker) for _ in range(4)], Line(broker)
    for _ in range(500):
        for one in rush:
            one.ask(METADATA, 400 * US, apart_ns=0)
    assert broker.load > 3
    line.now_ns = rush[0].now_ns + pause_ns
    line.ask(FETCH, MS)
    assert broker.load < 1


def test_a_class_that_only_waits_soon_costs_what_its_cap_says() -> None:
    """An API class that was cheap is charged its cap after it has only waited for a while."""
    line = Line()
    line.ask_often(1_000, FETCH, 30 * US)
    assert line.ask(FETCH, 500 * MS) < 50 * US
    limit_ns = CAP_WAITING * line.broker.unit_ns + 300 * FETCH.ns_per_byte
    assert line.ask_often(150, FETCH, 500 * MS) == pytest.approx(limit_ns, rel=0.1)


def test_what_a_busy_time_taught_is_forgotten() -> None:
    """A second after a busy period the cost of a small request returns to its default."""
    line = Line()
    line.ask_often(3_000, METADATA, 30 * US, apart_ns=0)
    assert line.broker.unit_ns < 0.2 * UNIT_NS
    line.now_ns += FORGET_AFTER_NS
    line.ask_often(600, COMMIT, 2 * MS)
    assert line.broker.unit_ns == pytest.approx(UNIT_NS, rel=0.05)
    assert line.ask(COMMIT, 2 * MS) > UNIT_NS


def test_logging_in_is_distinguished_and_every_api_has_its_classes() -> None:
    """Only the SASL APIs are login work, an unknown API may wait, and each API has its own class."""
    assert {key for key in ApiKey if work_of(key).of_login} == {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    assert VERSIONS_BEFORE_LOGIN.of_login
    assert VERSIONS_BEFORE_LOGIN.key == work_of(ApiKey.API_VERSIONS).key
    assert work_of(0x7FFF).cap > 0
    keys = [work_of(key).key for key in ApiKey] + [PRODUCE_ALL.key, work_of(0x7FFF).key]
    assert len(set(keys)) == len(keys)


def test_brokers_are_known_by_their_address_and_bounded() -> None:
    """Each address has one object up to a limit of brokers, and the elapsed time of forgotten ones is kept."""
    times = HandlerTimes()
    first = times.of(("a", 1))
    assert times.of(("a", 1)) is first is not times.of(("b", 1))
    for port in range(3 * BROKERS_MAX):
        times.of(("c", port)).saw(METADATA, MS, START_NS)
    assert times.of(("a", 1)) is not first
    assert times.elapsed_ns == 3 * BROKERS_MAX * MS


def test_time_that_passed_is_added_up() -> None:
    """The elapsed time includes the time of requests that wait."""
    line = Line()
    line.ask(METADATA, 300 * US)
    line.ask(FETCH, 500 * MS)
    assert line.broker.elapsed_ns == 300 * US + 500 * MS
