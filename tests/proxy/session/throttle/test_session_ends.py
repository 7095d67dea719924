"""Row E11: a throttled client can reauthenticate before its SASL session ends."""

import struct
from collections.abc import Iterator

import pytest

from protocol.api_keys import ApiKey
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.mode import Mode
from quota.entity import ClientQuotaEntity
from tests.support.frames import sasl_frames as frames
from tests.support.frames.kafka_frames import answered, fetch, produced, throttle_ms
from tests.support.frames.kafka_frames import plain as request_of
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.verdicts import FETCH_VERSION, PRODUCE_VERSION, fetched_of, produce_of
from tests.support.tls import sasl_tokens as tokens

TOKEN = tokens.plain("alice")
ALICE = ClientQuotaEntity("alice", None)
MODES = pytest.mark.parametrize("mode", [Mode.MUTE, Mode.DELAY])


@pytest.fixture
def mode() -> Mode:
    """Return the mode of tests that do not set one."""
    return Mode.MUTE


@pytest.fixture
def proxy(mode: Mode) -> Iterator[ProxyFixture]:
    """Yield a proxy in which alice may produce and fetch 1,000 bytes per second."""
    with ProxyFixture(mode=mode) as one:
        one.scope.produce.update_quota(ALICE, 1_000.0)
        one.scope.fetch.update_quota(ALICE, 1_000.0)
        yield one


def log_in(peer: Peer, lifetime_ms: int) -> None:
    """Log in for the first time, with PLAIN."""
    peer.client.arrive(frames.handshake("PLAIN", correlation_id=1))
    peer.broker.arrive(frames.handshake_answer(1))
    peer.client.arrive(frames.authenticate(TOKEN, correlation_id=2))
    peer.broker.arrive(frames.authenticate_answer(2, lifetime_ms=lifetime_ms))
    peer.broker.take()
    peer.client.take()


def exceed_quota(peer: Peer, size_bytes: int = 100_000) -> bytes:
    """Produce this many bytes; return what the client has received after the verdict."""
    assert peer.sends(produce_of(size_bytes, 20)) == [20]
    peer.broker.arrive(produced(20, version=PRODUCE_VERSION))
    return peer.client.take()


def alices_group(proxy: ProxyFixture) -> EnforcedGroup:
    """Return the group in which alice's produced bytes are counted."""
    (group,) = [one for one in proxy.scope.produce.groups() if one.tags["user"] == "alice"]
    return group


@MODES
def test_a_mute_leaves_time_to_log_in_again(proxy: ProxyFixture) -> None:
    """A throttle stops reading for four fifths of the remaining session at most, and its rest is served in the next session."""
    peer = proxy.connect()
    log_in(peer, 10_000)
    proxy.wait(2_000)
    exceed_quota(peer)
    peer.client.arrive(request_of(21, ApiKey.HEARTBEAT, 0) + frames.handshake("PLAIN", correlation_id=22))
    proxy.wait(6_300)
    assert peer.forwarded() == []
    proxy.wait(200)
    assert peer.forwarded() == [21]
    peer.broker.arrive(struct.pack(">iih", 6, 21, 0))
    proxy.wait(1_300)
    assert peer.broker.take() == frames.handshake("PLAIN", correlation_id=22)
    peer.broker.arrive(frames.handshake_answer(22))
    proxy.wait(7_000)
    peer.client.arrive(frames.authenticate(TOKEN, correlation_id=23))
    assert peer.broker.take() == frames.authenticate(TOKEN, correlation_id=23)
    peer.broker.arrive(frames.authenticate_answer(23, lifetime_ms=10_000))
    peer.client.arrive(request_of(24, ApiKey.HEARTBEAT, 0))
    proxy.wait(7_000)
    assert peer.forwarded() == []
    proxy.wait(20_000)
    assert peer.forwarded() == [24]
    assert proxy.closed == []


def test_a_fetch_waits_no_longer_than_its_session(proxy: ProxyFixture) -> None:
    """A Fetch that waits for its quota is forwarded before its session ends."""
    peer = proxy.connect()
    log_in(peer, 10_000)
    other = proxy.connect()
    log_in(other, 0)
    assert other.sends(fetch(30, version=FETCH_VERSION)) == [30]
    other.broker.arrive(fetched_of(200_000, 30))
    assert peer.sends(fetch(31, version=FETCH_VERSION)) == []
    proxy.wait(7_900)
    assert peer.forwarded() == []
    proxy.wait(200)
    assert peer.forwarded() == [31]


def test_the_end_of_a_session_belongs_to_its_renewal(proxy: ProxyFixture) -> None:
    """Requests in front of a reauthentication are forwarded in the last twentieth of the session, and throttled in the next session."""
    peer = proxy.connect()
    log_in(peer, 20_000)
    exceed_quota(peer)
    for number in range(21, 31):
        peer.client.arrive(produce_of(5_000, number))
    peer.client.arrive(frames.handshake("PLAIN", correlation_id=40))
    proxy.wait(16_010)
    assert peer.forwarded() == [21]
    peer.broker.arrive(produced(21, version=PRODUCE_VERSION))
    proxy.wait(2_900)
    assert peer.forwarded() == []
    proxy.wait(200)
    assert peer.broker.take().endswith(frames.handshake("PLAIN", correlation_id=40))
    for number in range(22, 31):
        peer.broker.arrive(produced(number, version=PRODUCE_VERSION))
    peer.broker.arrive(frames.handshake_answer(40))
    proxy.wait(7_000)
    peer.client.arrive(frames.authenticate(TOKEN, correlation_id=41))
    peer.broker.take()
    peer.broker.arrive(frames.authenticate_answer(41, lifetime_ms=20_000))
    assert alices_group(proxy).recorded_total == 150_000
    peer.client.arrive(produce_of(100, 50))
    proxy.wait(15_000)
    assert peer.forwarded() == []
    assert proxy.closed == []


def test_no_more_passes_at_the_end_of_a_session_than_is_sent_before_a_renewal(proxy: ProxyFixture) -> None:
    """About 8 MiB at most are forwarded over quota for a reauthentication, and not before the last 2 s of the session."""
    peer = proxy.connect()
    log_in(peer, 3_600_000)
    proxy.wait(3_590_000)
    exceed_quota(peer, 1_000_000)
    for number in range(21, 41):
        peer.client.arrive(produce_of(1_000_000, number))
    proxy.wait(7_900)
    assert peer.forwarded() == []
    proxy.wait(200)
    passed = peer.forwarded()
    for number in list(passed):
        peer.broker.arrive(produced(number, version=PRODUCE_VERSION))
        proxy.wait(1)
        passed += peer.forwarded()
    assert 8 <= len(passed) <= 10
    proxy.wait(1_500)
    assert peer.forwarded() == []


def test_a_mute_longer_than_the_session_is_a_hold(proxy: ProxyFixture) -> None:
    """In `mute` a response is held for up to 5 s when its throttle time is longer than the session."""
    peer = proxy.connect()
    log_in(peer, 10_000)
    assert exceed_quota(peer) == b""
    proxy.wait(4_990)
    assert peer.client.take() == b""
    proxy.wait(20)
    assert throttle_ms(peer.client.take(), 0, PRODUCE_VERSION) == 90_000 - 5_000


def test_a_mute_that_the_session_outlives_is_a_mute(proxy: ProxyFixture) -> None:
    """In `mute` a response is sent at once with its whole throttle time when the session lasts longer than that."""
    peer = proxy.connect()
    log_in(peer, 200_000)
    assert throttle_ms(exceed_quota(peer), 0, PRODUCE_VERSION) == 90_000


@MODES
def test_throttle_is_served_while_a_client_waits_to_log_in_again(proxy: ProxyFixture) -> None:
    """The broker's response to the first request of a throttled client's reauthentication is held for up to 7 s."""
    peer = proxy.connect()
    log_in(peer, 2_000)
    exceed_quota(peer)
    proxy.wait(1_800)
    peer.client.arrive(frames.handshake("PLAIN", correlation_id=22))
    assert peer.broker.take() == frames.handshake("PLAIN", correlation_id=22)
    proxy.wait(3_190)
    assert peer.client.take() == b""
    proxy.wait(20)
    assert peer.delivered() == [20]
    peer.broker.arrive(frames.handshake_answer(22))
    proxy.wait(3_770)
    assert peer.client.take() == b""
    proxy.wait(40)
    assert peer.client.take() == frames.handshake_answer(22)
    peer.client.arrive(frames.authenticate(TOKEN, correlation_id=23))
    assert peer.broker.take() == frames.authenticate(TOKEN, correlation_id=23)
    peer.broker.arrive(frames.authenticate_answer(23, lifetime_ms=2_000))
    assert peer.client.take() == frames.authenticate_answer(23, lifetime_ms=2_000)
    assert proxy.closed == []


def test_without_throttle_a_renewal_waits_for_nothing(proxy: ProxyFixture) -> None:
    """The response to the handshake of a reauthentication passes at once when the client is not throttled."""
    peer = proxy.connect()
    log_in(peer, 2_000)
    exceed_quota(peer, 5_000)
    peer.client.arrive(frames.handshake("PLAIN", correlation_id=22))
    peer.broker.arrive(frames.handshake_answer(22))
    assert peer.client.take() == frames.handshake_answer(22)


def test_a_renewal_waits_7_s_at_most_whatever_is_held_in_front_of_it(proxy: ProxyFixture) -> None:
    """A reauthentication waits 7 s at most behind several held responses, and the rest of their throttle time is announced."""
    peer = proxy.connect()
    log_in(peer, 4_000)
    proxy.wait(3_500)
    exceed_quota(peer)
    proxy.wait(310)
    assert peer.sends(produce_of(5_000, 21)) == [21]
    peer.client.arrive(frames.handshake("PLAIN", correlation_id=22))
    peer.broker.take()
    proxy.wait(4_700)
    assert peer.delivered() == [20]
    peer.broker.arrive(produced(21, version=PRODUCE_VERSION))
    proxy.wait(2_290)
    assert peer.client.take() == b""
    proxy.wait(20)
    assert throttle_ms(peer.client.take(), 0, PRODUCE_VERSION) > 80_000
    peer.broker.arrive(frames.handshake_answer(22))
    assert peer.client.take() == frames.handshake_answer(22)


@MODES
def test_held_answers_keep_nothing_from_passing_before_a_renewal(proxy: ProxyFixture) -> None:
    """Hundreds of small requests and the handshake are forwarded before the session ends while the response before them is held."""
    peer = proxy.connect()
    log_in(peer, 2_000)
    exceed_quota(peer)
    numbers = list(range(21, 421))
    peer.client.arrive(b"".join(produce_of(1_000, number) for number in numbers) + frames.handshake("PLAIN", correlation_id=900))
    proxy.wait(1_799)
    assert peer.forwarded() == [21]
    proxy.wait(50)
    assert peer.forwarded() == [*numbers[1:], 900]


def test_a_second_hold_ends_soon_after_the_session(proxy: ProxyFixture) -> None:
    """A second held response is sent 3 s after the end of the session at the latest."""
    peer = proxy.connect()
    log_in(peer, 2_000)
    exceed_quota(peer)
    peer.client.arrive(produce_of(5_000, 21))
    proxy.wait(1_650)
    assert peer.forwarded() == [21]
    proxy.wait(3_340)
    assert peer.client.take() == b""
    proxy.wait(20)
    assert peer.delivered() == [20]
    peer.broker.arrive(produced(21, version=PRODUCE_VERSION))
    assert peer.delivered() == [21]


def test_a_full_pipeline_of_a_client_within_its_quota_waits(proxy: ProxyFixture) -> None:
    """A client that is not throttled and has 64 requests in flight when its session is about to end waits for a response."""
    peer = proxy.connect()
    log_in(peer, 10_000)
    proxy.wait(9_900)
    numbers = range(100, 170)
    assert peer.sends(*(request_of(number, ApiKey.HEARTBEAT, 0) for number in numbers)) == list(numbers[:64])
    peer.answers(answered(100))
    assert peer.forwarded() == [164]
