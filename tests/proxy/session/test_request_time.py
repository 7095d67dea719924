"""Request time through a whole connection: who is charged, who is throttled, and what the client sees of it."""

import struct
from collections.abc import Iterator, Mapping

import pytest

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion, ThrottlePosition, Treatment
from protocol.layout import layout_of
from proxy.quota_scopes import QuotaWindows
from proxy.session.enforcement import Mode
from quota.callback import ClientQuotaCallback
from quota.entity import ANONYMOUS, ClientQuotaType, KafkaPrincipal
from quota.group import QuotaGroup
from tests.support.kafka_frames import api_of, fetch, message, plain, produced, request, response, throttle_ms
from tests.support.memory_connection import House, Peer
from tests.support.sasl_frames import authenticate, authenticate_answer, handshake, handshake_answer
from tests.support.verdicts import BOUND, FETCH_VERSION, PRODUCE_VERSION, fetched_of, produce_for, produce_of

LIST_OFFSETS = (ApiKey.LIST_OFFSETS, 2)  # its answer has the field, first of all
TINY = 1e-6
"""Percent: any request at all is too much, and each is throttled for a whole window."""
WINDOW_MS = 1_000
WORK_MS = 10


def empty_answer(correlation_id: int, key: int, version: int, *, from_broker_ms: int = 0) -> bytes:
    """Return an answer of which nothing but its throttle time, where it has one, means anything."""
    api = api_of(key, version)
    if api.throttle is ThrottlePosition.WALK:
        return response(api, message(layout_of(key, "response", version), ThrottleTimeMs=from_broker_ms), correlation_id)
    return response(api, struct.pack(">iI", from_broker_ms, 0), correlation_id)


def throttle_in(frame: bytes, key: int, version: int) -> int:
    """Return the throttle time of a whole answer."""
    if api_of(key, version).throttle is ThrottlePosition.WALK:
        return throttle_ms(frame, key, version)
    return int.from_bytes(frame[8 + api_of(key, version).response_header_version :][:4], "big")


def group_of(house: House) -> QuotaGroup:
    """Return the one group whose time was taken."""
    (group,) = house.scope.request.groups()
    return group


def works(house: House, peer: Peer, asked: bytes, answer: bytes) -> bytes:
    """The broker takes `WORK_MS` for a request; return what reaches the client at once."""
    assert len(peer.sends(asked)) == 1, "the request did not go on"
    house.wait(WORK_MS)
    peer.broker.arrive(answer)
    return peer.client.take()


@pytest.fixture
def timed() -> Iterator[House]:
    """A house in which no request of client-id etl is cheap enough; no byte quota applies. `mute`, so that answers come at once."""
    with House(request=TINY, mode=Mode.MUTE) as house:
        yield house


def join(correlation_id: int, version: int, session_timeout_ms: int) -> bytes:
    """Return the beginning of what a JoinGroup says: group and session timeout."""
    group = b"\x02g" if version >= 6 else b"\x00\x01g"
    return request(api_of(ApiKey.JOIN_GROUP, version), group + struct.pack(">i", session_timeout_ms), correlation_id)


def empty_request(correlation_id: int, key: int, version: int) -> bytes:
    """Return a request that nothing but its header means anything of."""
    return join(correlation_id, version, 10_000) if key == ApiKey.JOIN_GROUP else plain(correlation_id, key, version)


PASSING = [api for api in API_VERSIONS.values() if api.treatment is Treatment.PASS and not api.splice and api.key not in (17, 36)]


@pytest.mark.parametrize("api", PASSING, ids=lambda api: f"{api.name}-v{api.version}")
def test_every_api_is_charged_and_throttled(timed: House, api: ApiVersion) -> None:
    """An answer that has the field announces the window; one that lacks it goes as it came, and its client is not read all the same."""
    peer = timed.connect()
    answer = empty_answer(1, api.key, api.version)
    got = works(timed, peer, empty_request(1, api.key, api.version), answer)
    if api.throttle is ThrottlePosition.NONE:
        assert got == answer
    else:
        assert throttle_in(got, api.key, api.version) == WINDOW_MS
    assert not peer.client.reading
    assert group_of(timed).recorded_total > 0
    timed.wait(WINDOW_MS)
    assert peer.client.reading


def test_within_the_quota_nothing_changes(house: House) -> None:
    """The answer leaves untouched, whatever the broker wrote into it, and reading goes on."""
    house.set_quota(request=100.0)
    peer = house.connect()
    answer = empty_answer(1, *LIST_OFFSETS, from_broker_ms=7)
    assert works(house, peer, empty_request(1, *LIST_OFFSETS), answer) == answer
    assert peer.client.reading
    assert group_of(house).recorded_total > 0


def test_delay_holds_the_answer_for_the_window(timed: House) -> None:
    """A verdict is waited out as one about bytes is; nothing is left to announce."""
    timed.enforcement.mode = Mode.DELAY
    peer = timed.connect()
    answer = empty_answer(1, *LIST_OFFSETS)
    assert works(timed, peer, empty_request(1, *LIST_OFFSETS), answer) == b""
    timed.wait(WINDOW_MS - 1)
    assert peer.client.take() == b""
    timed.wait(1)
    assert peer.client.take() == answer


def test_observe_only_counts(timed: House) -> None:
    """Nothing is held, stamped or muted; the verdict is in the books."""
    timed.enforcement.mode = Mode.OBSERVE
    peer = timed.connect()
    answer = empty_answer(1, *LIST_OFFSETS)
    assert works(timed, peer, empty_request(1, *LIST_OFFSETS), answer) == answer
    assert peer.client.reading
    assert group_of(timed).throttle_count == 1
    assert timed.counters.throttles.keys() == {"Request"}


def test_without_a_quota_no_time_is_taken(house: House) -> None:
    """Until the first request quota appears nothing is recorded; from then on it is, on connections that live too."""
    peer = house.connect()
    works(house, peer, empty_request(1, *LIST_OFFSETS), empty_answer(1, *LIST_OFFSETS))
    assert peer.connection.session.responses.times is None
    house.set_quota(request=100.0)
    works(house, peer, empty_request(2, *LIST_OFFSETS), empty_answer(2, *LIST_OFFSETS))
    assert group_of(house).recorded_total > 0
    before = group_of(house).recorded_total
    house.scopes.switch(request=False)
    works(house, peer, empty_request(3, *LIST_OFFSETS), empty_answer(3, *LIST_OFFSETS))
    assert group_of(house).recorded_total == before


@pytest.mark.parametrize(
    ("bytes_ms", "throttled_ms", "winner"),
    [
        pytest.param(0, 1_000, "Request", id="time-alone"),
        pytest.param(999, 1_000, "Request", id="time-is-longer"),
        pytest.param(1_000, 1_000, "Request", id="a-tie-is-request"),
        pytest.param(1_001, 1_001, "Produce", id="bytes-are-longer"),
    ],
)
def test_the_longer_throttle_wins(timed: House, bytes_ms: int, throttled_ms: int, winner: str) -> None:
    """One throttle, not two: max of both, with ties to Request; only the winner is in the books, and both are recorded."""
    timed.set_quota(produce=BOUND)
    peer = timed.connect()
    got = works(timed, peer, produce_for(bytes_ms, 1), produced(1, version=PRODUCE_VERSION))
    assert throttle_in(got, ApiKey.PRODUCE, PRODUCE_VERSION) == throttled_ms
    assert timed.counters.throttles.keys() == {winner}
    assert group_of(timed).recorded_total > 0
    (bytes_group,) = timed.scope.produce.groups()
    assert bytes_group.recorded_total == 10_000 + bytes_ms


def test_a_produce_without_answer_is_exempt(timed: House) -> None:
    """acks=0 costs no request time; what it probably cost is counted as exempt."""
    timed.set_quota(produce=BOUND)
    peer = timed.connect()
    assert peer.sends(produce_of(1_000, 1, acks=0)) == [1]
    assert peer.client.reading
    assert not timed.scope.request.groups()
    assert timed.scope.request.exempt_request_time.recorded_total > 0


def test_logging_in_is_nobodys_time(timed: House) -> None:
    """Neither SaslHandshake nor SaslAuthenticate is recorded or throttled, nor ApiVersions before them where brokers want a login."""
    first = timed.connect()
    works(timed, first, handshake("GSSAPI"), handshake_answer(1))
    works(timed, first, authenticate(b"x"), authenticate_answer(2))
    assert not timed.scope.request.groups()
    second = timed.connect()
    asked, answer = empty_request(1, ApiKey.API_VERSIONS, 1), empty_answer(1, ApiKey.API_VERSIONS, 1)
    assert throttle_in(works(timed, second, asked, answer), ApiKey.API_VERSIONS, 1) == 0
    works(timed, second, handshake("GSSAPI", correlation_id=2), handshake_answer(2))
    works(timed, second, authenticate(b"x", correlation_id=3), authenticate_answer(3))
    assert not timed.scope.request.groups()
    assert throttle_in(works(timed, second, asked, answer), ApiKey.API_VERSIONS, 1) == WINDOW_MS


@pytest.mark.parametrize(
    ("session_timeout_ms", "with_data", "silent_ms"),
    [
        pytest.param(10_000, False, 1_000, id="a-third-is-longer-than-the-window"),
        pytest.param(1_800, False, 600, id="a-third-of-the-session"),
        pytest.param(1_800, True, 1_000, id="one-connection-for-everything"),
    ],
)
@pytest.mark.parametrize("version", [4, 9])
def test_membership_is_not_lost(timed: House, session_timeout_ms: int, silent_ms: int, version: int, *, with_data: bool) -> None:
    """A connection that only keeps a member in its group is never silent for longer than a third of the session timeout."""
    timed.set_quota(request=1e9)
    peer = timed.connect()
    if with_data:
        works(timed, peer, fetch(1, version=FETCH_VERSION), fetched_of(200, 1))
    works(timed, peer, join(2, version, session_timeout_ms), empty_answer(2, ApiKey.JOIN_GROUP, version))
    timed.set_quota(request=TINY)
    got = works(timed, peer, empty_request(3, ApiKey.HEARTBEAT, 4), empty_answer(3, ApiKey.HEARTBEAT, 4))
    assert throttle_in(got, ApiKey.HEARTBEAT, 4) == silent_ms
    timed.wait(silent_ms - 1)
    assert not peer.client.reading
    timed.wait(1)
    assert peer.client.reading


@pytest.fixture
def patient() -> Iterator[House]:
    """As `timed`, with a window of half a minute, so that a throttle may be as long."""
    with House(request=TINY, mode=Mode.MUTE, windows=QuotaWindows(window_ms=30_000)) as house:
        yield house


def test_a_long_session_is_no_reason_to_wait_long(patient: House) -> None:
    """Heartbeats come every 3 s whatever the session timeout is: throttles must be shorter, or they and commits stand in line."""
    peer = patient.connect()
    got = works(patient, peer, join(1, 4, 45_000), empty_answer(1, ApiKey.JOIN_GROUP, 4))
    assert throttle_in(got, ApiKey.JOIN_GROUP, 4) == 1_000


@pytest.mark.parametrize(
    ("asked", "silent_ms"),
    [
        pytest.param((ApiKey.HEARTBEAT, 4), 1_000, id="a-heartbeat"),
        pytest.param((ApiKey.CONSUMER_GROUP_HEARTBEAT, 1), 1_000, id="a-heartbeat-of-the-new-protocol"),
        pytest.param((ApiKey.METADATA, 4), 30_000, id="neither-member-nor-coordinator"),
    ],
)
def test_a_new_connection_may_be_a_members(patient: House, asked: tuple[int, int], silent_ms: int) -> None:
    """ApiVersions comes first on each: who connects again for its heartbeats is heard before its session is over; then the API says."""
    peer = patient.connect()
    got = works(patient, peer, empty_request(1, ApiKey.API_VERSIONS, 1), empty_answer(1, ApiKey.API_VERSIONS, 1))
    assert throttle_in(got, ApiKey.API_VERSIONS, 1) == 1_000
    patient.wait(1_000)
    got = works(patient, peer, empty_request(2, *asked), empty_answer(2, *asked))
    assert throttle_in(got, *asked) == silent_ms


def test_a_large_answer_pays_for_its_end_without_a_verdict(timed: House) -> None:
    """Its head is judged; what the rest costs is known when it is here, and counts for what comes next, as network time in Kafka."""
    timed.set_quota(request=1e9)
    peer = timed.connect()
    peer.sends(fetch(1, version=FETCH_VERSION))
    answer = fetched_of(500_000, 1)
    peer.broker.arrive(answer[:1_000])
    at_head = group_of(timed).recorded_total
    timed.wait(WORK_MS)
    peer.broker.arrive(answer[1_000:-1])
    assert group_of(timed).recorded_total == at_head
    peer.broker.arrive(answer[-1:])
    assert group_of(timed).recorded_total > at_head
    assert peer.client.take() == answer


def test_an_answer_that_we_did_not_read_is_no_measurement(timed: House) -> None:
    """While a client does not take what it asked for its broker is not read; the time that passes is not the broker's."""
    timed.set_quota(request=1e9)
    quick, slow = timed.connect(), timed.connect()
    for number in range(3):
        quick.sends(empty_request(number, *LIST_OFFSETS))
        timed.wait(WORK_MS)
        quick.broker.arrive(empty_answer(number, *LIST_OFFSETS))
    known = timed.broker_times.unit_ns
    slow.sends(empty_request(1, *LIST_OFFSETS))
    slow.connection.client.pause_writing()
    timed.wait(60_000)
    slow.connection.client.resume_writing()
    slow.broker.arrive(empty_answer(1, *LIST_OFFSETS))
    assert timed.broker_times.unit_ns == known


def test_time_that_a_request_waited_here_is_not_the_brokers(house: House) -> None:
    """A fetch that the gate kept back left when it left: the clock of its work begins then."""
    house.set_quota(request=1e9)
    peer = house.connect()
    peer.sends(fetch(1, version=FETCH_VERSION))
    house.wait(1)
    peer.broker.arrive(fetched_of(13_000, 1))
    house.wait(20_000)
    assert peer.client.take()
    peer.sends(fetch(2, version=FETCH_VERSION))
    before = group_of(house).recorded_total
    peer.broker.arrive(fetched_of(100, 2))
    assert (group_of(house).recorded_total - before) < 0.1


def test_a_cut_answer_is_stamped(timed: House) -> None:
    """The verdict waits for the bytes that it has to change."""
    answer = empty_answer(1, *LIST_OFFSETS)
    for cut in range(1, len(answer)):
        with House(request=TINY, mode=Mode.MUTE) as house:
            peer = house.connect()
            peer.sends(empty_request(1, *LIST_OFFSETS))
            house.wait(WORK_MS)
            peer.broker.arrive(answer[:cut])
            peer.broker.arrive(answer[cut:])
            assert throttle_in(peer.client.take(), *LIST_OFFSETS) == WINDOW_MS


def test_the_custom_callback_decides_the_group(timed: House) -> None:
    """Two client-ids that it puts together share one budget of time."""
    timed.scope.request.replace_callback(OneGroup())
    one, other = timed.connect(), timed.connect()
    works(timed, one, empty_request(1, *LIST_OFFSETS), empty_answer(1, *LIST_OFFSETS))
    works(timed, other, plain(1, *LIST_OFFSETS, "another"), empty_answer(1, *LIST_OFFSETS))
    assert group_of(timed).tags == {"all": "of them"}


class OneGroup(ClientQuotaCallback):
    """Everybody together."""

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> dict[str, str]:
        return {"all": "of them"}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float:
        return 1.0


def test_usage_tells_the_time_of_a_client(timed: House) -> None:
    """By user and client-id, in nanoseconds, equal to what its group was charged."""
    peer = timed.connect()
    works(timed, peer, empty_request(1, *LIST_OFFSETS), empty_answer(1, *LIST_OFFSETS))
    usage = timed.usages.get(ANONYMOUS.name, "etl")
    assert usage.request_ns * 1e-7 == group_of(timed).recorded_total
