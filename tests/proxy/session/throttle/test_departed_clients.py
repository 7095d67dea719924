"""A client that closes or resets its connections in order not to wait gets no more than its quota."""

import pytest

from protocol.api_keys import ApiKey
from proxy.enforcement.mode import Mode
from tests.support.frames.kafka_frames import fetch, plain, produced
from tests.support.frames.topic_frames import create
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.topic_model import TopicModel
from tests.support.memory.topic_talk import Talk
from tests.support.memory.verdicts import FETCH_VERSION, PRODUCE_VERSION, fetched_of, produce_of

BOUND = 10_000.0
WINDOW_MS = 11_000
ATTACK_MS = 20_000
PAUSE_MS = 100
CONNECTIONS = 20
MODES = pytest.mark.parametrize("mode", [Mode.DELAY, Mode.MUTE])


def budget(elapsed_ms: int, request_bytes: int, *, open_at_once: int = 1) -> float:
    """Return the bytes that may pass: the quota, one window, one request per connection, and 25 s of quota per throttle round."""
    rounds = 1 + elapsed_ms // 25_000
    return BOUND * (elapsed_ms + WINDOW_MS) / 1_000 + open_at_once * request_bytes + rounds * 25 * BOUND


def forwarded_bytes(peer: Peer, request_bytes: int) -> list[int]:
    """Answer at once every request that has reached the broker; return their sizes."""
    numbers = peer.forwarded()
    for number in numbers:
        peer.broker.arrive(produced(number, version=PRODUCE_VERSION))
    return [request_bytes] * len(numbers)


def leave(peer: Peer, how: str) -> None:
    """Close the client's side in this way."""
    connection = peer.connection
    if how == "half-close":
        connection.client.eof_received()
    elif how == "close":
        connection.client.eof_received()
        if not connection.closing:
            connection.client.connection_lost(None)
    else:
        connection.client.connection_lost(ConnectionResetError())


@MODES
@pytest.mark.parametrize("how", ["half-close", "close", "reset"])
@pytest.mark.parametrize("request_bytes", [20_000, 90_000])
def test_produce_leave_and_come_back(mode: Mode, how: str, request_bytes: int) -> None:
    """A producer that closes its connection behind each request and reconnects passes no more than its quota."""
    passed = 0
    with ProxyFixture(produce=BOUND, mode=mode) as proxy:
        start_ms, peers = proxy.now_ms, []
        while proxy.now_ms < start_ms + ATTACK_MS:
            peer = proxy.connect()
            peer.client.arrive(produce_of(request_bytes, 1))
            leave(peer, how)
            peers.append(peer)
            passed += sum(sum(forwarded_bytes(one, request_bytes)) for one in peers)
            peers = [one for one in peers if not one.connection.closing]
            proxy.wait(PAUSE_MS)
    assert passed <= budget(ATTACK_MS, request_bytes, open_at_once=1)


@MODES
def test_produce_answered_leave_and_come_back(mode: Mode) -> None:
    """A producer that resets its throttled connection and reconnects passes no more than its quota."""
    passed = 0
    with ProxyFixture(produce=BOUND, mode=mode) as proxy:
        start_ms = proxy.now_ms
        while proxy.now_ms < start_ms + ATTACK_MS:
            peer = proxy.connect()
            peer.client.arrive(produce_of(20_000, 1))
            passed += sum(forwarded_bytes(peer, 20_000))
            proxy.wait(PAUSE_MS)
            leave(peer, "reset")
    assert passed <= budget(ATTACK_MS, 20_000)


@MODES
def test_fetch_and_half_close(mode: Mode) -> None:
    """Twenty connections in turn that half-close behind a Fetch receive no more than the quota."""
    passed = 0
    with ProxyFixture(fetch=BOUND, mode=mode) as proxy:
        start_ms, peers = proxy.now_ms, []
        number = 0
        while proxy.now_ms < start_ms + ATTACK_MS:
            while len(peers) < CONNECTIONS:
                number += 1
                peer = proxy.connect()
                peer.client.arrive(fetch(1, version=FETCH_VERSION))
                peer.connection.client.eof_received()
                peers.append(peer)
            for peer in peers:
                for correlation_id in peer.forwarded():
                    passed += 50_000
                    peer.broker.arrive(fetched_of(50_000, correlation_id))
            peers = [one for one in peers if not one.connection.closing]
            proxy.wait(PAUSE_MS)
    assert passed <= BOUND * (ATTACK_MS + WINDOW_MS) / 1_000 + CONNECTIONS * 50_000 * 0.2 + 25 * BOUND


def test_a_request_without_an_answer_counts_when_its_client_resets() -> None:
    """A request is recorded in full when its client resets the connection before the response."""
    with ProxyFixture(produce=BOUND, mode=Mode.MUTE) as proxy:
        peers = [proxy.connect() for _ in range(5)]
        for peer in peers:
            peer.client.arrive(produce_of(20_000, 1))
        for peer in peers:
            leave(peer, "reset")
        (group,) = proxy.scope.produce.groups()
        assert group.recorded_total == 5 * 20_000


# --- requests of a client that has closed its side


def half_close(peer: Peer) -> None:
    """Half-close the connection, as the kernel reports it where the client is not read."""
    connection = peer.connection
    if connection.client.pauses:
        connection.client_left_while_paused()
        peer.proxy.wait(0)
    if not connection.closing:
        connection.client.eof_received()


def throttled(proxy: ProxyFixture, request_bytes: int = 150_000) -> Peer:
    """Return a connection that has produced more than a window holds and received its response."""
    peer = proxy.connect()
    peer.asks(produce_of(request_bytes, 1), produced(1, version=PRODUCE_VERSION))
    return peer


def test_what_was_sent_before_a_half_close_goes_on_in_its_turn() -> None:
    """Requests sent before a half-close are forwarded one by one after the throttle, and then the connection ends."""
    with ProxyFixture(produce=BOUND, mode=Mode.MUTE) as proxy:
        peer = throttled(proxy)
        peer.client.arrive(b"".join(produce_of(100, number) for number in range(2, 7)))
        half_close(peer)
        proxy.wait(4_900)
        assert peer.forwarded() == []
        proxy.wait(200)
        assert peer.forwarded() == [2]
        went = []
        for number in range(2, 7):
            went += peer.answers(produced(number, version=PRODUCE_VERSION))
            proxy.wait(7_000)
            assert peer.forwarded() == ([number + 1] if number < 6 else [])
        assert went == [2, 3, 4, 5, 6]
        assert [str(reason) for reason, _ in proxy.closed] == ["client_closed"]
        assert proxy.counters.discarded_request_bytes == 0


@MODES
def test_what_a_closed_client_left_behind_goes_on_without_it(mode: Mode) -> None:
    """Requests sent before a client's socket closed are forwarded to the broker in order."""
    with ProxyFixture(produce=BOUND, mode=mode) as proxy:
        peer = throttled(proxy)
        peer.client.arrive(produce_of(100, 2) + produce_of(100, 3))
        half_close(peer)
        peer.connection.client.connection_lost(ConnectionResetError())
        seen = []
        for _ in range(400):
            proxy.wait(50)
            for number in peer.forwarded():
                seen.append(number)
                peer.broker.arrive(produced(number, version=PRODUCE_VERSION))
        assert seen == [2, 3]
        assert [str(reason) for reason, _ in proxy.closed] == ["client_closed"]


def test_what_is_left_after_its_time_is_dropped_and_counted() -> None:
    """Requests that still wait `departed_ms` after a half-close are dropped and their bytes counted."""
    with ProxyFixture(produce=BOUND, mode=Mode.MUTE) as proxy:
        peer = throttled(proxy, 2_000_000)
        left = produce_of(250_001, 2)
        peer.client.arrive(left)
        half_close(peer)
        proxy.wait(proxy.departed_ms - 1)
        assert (peer.forwarded(), proxy.closed) == ([], [])
        proxy.wait(1)
        assert [str(reason) for reason, _ in proxy.closed] == ["half_close_deadline"]
        assert proxy.counters.discarded_request_bytes == len(left)


def test_only_so_many_of_one_address_are_served() -> None:
    """The 65th half-closed connection of an address with waiting requests is closed."""
    with ProxyFixture(produce=BOUND, mode=Mode.MUTE) as proxy:
        leave(throttled(proxy, 400_000), "reset")
        peers = [proxy.connect() for _ in range(65)]
        for peer in peers:
            peer.client.arrive(produce_of(100_000, 2))
            half_close(peer)
        assert [peer.connection.closing for peer in peers] == [False] * 64 + [True]
        assert [str(reason) for reason, _ in proxy.closed] == ["client_reset", "departed_limit"]
        assert len(proxy.departed) == 64


@MODES
def test_a_half_close_ends_no_hold(mode: Mode) -> None:
    """A held response is sent at its deadline after a half-close, not before."""
    with ProxyFixture(produce=BOUND, mode=mode) as proxy:
        peer = proxy.connect()
        assert peer.sends(produce_of(120_000, 1)) == [1]
        half_close(peer)
        delivered = peer.answers(produced(1, version=PRODUCE_VERSION))
        assert delivered == ([] if mode is Mode.DELAY else [1])
        if mode is Mode.DELAY:
            proxy.wait(1_900)
            assert peer.delivered() == []
            proxy.wait(200)
            assert peer.delivered() == [1]
        assert [str(reason) for reason, _ in proxy.closed] == ["client_closed"]


def test_a_departed_client_waits_for_the_verdicts_of_its_like() -> None:
    """At most three of ten closed connections of a throttled group have forwarded their request after 20 s."""
    with ProxyFixture(produce=BOUND, mode=Mode.MUTE) as proxy:
        throttled(proxy)
        peers = [proxy.connect() for _ in range(10)]
        for peer in peers:
            peer.client.arrive(produce_of(150_000, 2))
            leave(peer, "reset") if peer is peers[0] else half_close(peer)
        proxy.wait(20_000)
        assert sum(len(peer.forwarded()) for peer in peers) <= 3


# --- throttle rounds


def test_a_request_larger_than_a_throttle_round_waits_until_the_throttle_is_over() -> None:
    """A request larger than 25 s of the quota waits until the throttle is over, and a smaller one is forwarded after 25 s."""
    with ProxyFixture(produce=BOUND, mode=Mode.MUTE) as proxy:
        large, small = throttled(proxy, 400_000), throttled(proxy, 100_000)
        large.sends(produce_of(250_001, 2))
        small.sends(produce_of(250_000, 2))
        proxy.wait(25_000)
        assert (large.forwarded(), small.forwarded()) == ([], [2])
        proxy.wait(5_000)
        assert large.forwarded() == [2]


def test_a_verdict_of_zero_for_another_group_does_not_end_a_throttle() -> None:
    """A request of another client-id within its quota does not end the throttle of the first client-id."""
    with ProxyFixture(produce=BOUND, mode=Mode.MUTE) as proxy:
        peer = throttled(proxy, 800_000)
        peer.sends(produce_of(100, 2, client_id="free") + produce_of(200_000, 3))
        proxy.wait(25_000)
        assert peer.forwarded() == [2]
        peer.answers(produced(2, version=PRODUCE_VERSION))
        proxy.wait(24_900)
        assert peer.forwarded() == []


# --- requests without a response


def test_what_a_fetch_brought_counts_after_its_client_has_reset() -> None:
    """A Fetch response that arrives after its client's reset is recorded in full."""
    with ProxyFixture(fetch=BOUND, mode=Mode.MUTE) as proxy:
        peer = proxy.connect()
        assert peer.sends(fetch(1, version=FETCH_VERSION)) == [1]
        answer = fetched_of(50_000, 1)
        leave(peer, "reset")
        for at in range(0, len(answer), 7_001):
            peer.broker.arrive(answer[at : at + 7_001])
        (group,) = proxy.scope.fetch.groups()
        assert group.recorded_total == 50_000
        assert group.pending == 0


def test_a_request_that_was_not_sent_in_whole_does_not_count() -> None:
    """A request that was only partly sent before a reset is not recorded."""
    with ProxyFixture(produce=BOUND, mode=Mode.MUTE) as proxy:
        peer = proxy.connect()
        peer.client.arrive(produce_of(20_000, 1)[:15_000])
        leave(peer, "reset")
        assert sum(group.recorded_total for group in proxy.scope.produce.groups()) == 0


def test_the_time_of_a_request_counts_although_its_client_resets() -> None:
    """Metadata requests on connections that are reset are charged, and together stay within the request quota."""
    with ProxyFixture(request=1.0, mode=Mode.MUTE) as proxy:
        passed = 0
        for _ in range(400):
            peer = proxy.connect()
            passed += len(peer.sends(plain(1)))
            leave(peer, "reset")
            proxy.wait(50)
        (group,) = proxy.scope.request.groups()
        spent_ns = passed * proxy.broker_times.unit_ns
        assert group.recorded_total > 0
        assert spent_ns / 1e9 <= 0.01 * (20 + 11) * 2


def test_mutations_count_although_their_client_resets() -> None:
    """A CreateTopics whose client resets before the response is charged, and the next one waits."""
    with ProxyFixture(mode=Mode.MUTE) as proxy:
        proxy.set_quota(mutation=1.0)
        peer = proxy.connect()
        assert peer.sends(create(1, {"a": 20}, version=5)) == [1]
        leave(peer, "reset")
        (group,) = proxy.scope.mutation.groups()
        assert group.tokens(proxy.now_ms) == 11 - 20
        other = proxy.connect()
        assert other.sends(create(2, {"b": 20}, version=5)) == []
        proxy.wait(9_000)
        assert other.forwarded() == [2]


def test_a_request_that_can_be_refused_leaves_no_throttle() -> None:
    """A refused CreateTopics leaves no throttle to the next connections of the group."""
    with ProxyFixture(mode=Mode.MUTE) as proxy:
        proxy.set_quota(mutation=1.0)
        talk = Talk(proxy, TopicModel())
        talk.asks(ApiKey.CREATE_TOPICS, 7, create(1, {"a": 20}))
        assert talk.asks(ApiKey.CREATE_TOPICS, 7, create(2, {"b": 1})).errors == [("b", 89)]
        assert talk.peer.connection.session.throttle.is_throttled
        leave(talk.peer, "reset")
        (group,) = proxy.scope.mutation.groups()
        assert group.departed_until_ms == 0


# --- the end of the process


def test_a_drain_frees_no_fetch_but_all_else() -> None:
    """In a drain a throttled Produce is forwarded at once, and one behind a waiting Fetch together with that Fetch."""
    with ProxyFixture(produce=BOUND, fetch=BOUND, mode=Mode.MUTE) as proxy:
        producer = proxy.connect()
        producer.sends(produce_of(150_000, 1) + produce_of(100, 2))
        producer.answers(produced(1, version=PRODUCE_VERSION))
        consumer = proxy.connect()
        consumer.asks(fetch(1, version=FETCH_VERSION), fetched_of(100_500, 1))
        proxy.wait(1_000)
        consumer.sends(fetch(2, version=FETCH_VERSION) + produce_of(100, 3))
        lone = proxy.connect()
        lone.sends(fetch(2, version=FETCH_VERSION))
        for peer in (producer, consumer, lone):
            peer.connection.drain()
        proxy.wait(0)
        assert producer.forwarded()[-1:] == [2]
        assert (consumer.forwarded(), lone.forwarded()) == ([], [])
        assert (consumer.connection.closing, lone.connection.closing) == (False, True)
        proxy.wait(12_000)
        assert consumer.forwarded() == [2, 3]
