"""Request time is charged and throttled on whole connections."""

import struct
from collections.abc import Iterator, Mapping
from functools import partial

import pytest

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion, ThrottlePosition, Treatment
from protocol.layout import layout_of
from protocol.messages.client_quotas import DescribeAnswer, describe_answer, describe_request
from proxy.base.close_reason import CloseReason
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.mode import AGE_MAX_MS, Mode
from proxy.enforcement.quota_scopes import QuotaWindows
from proxy.session.administered import CORRELATION_ID
from proxy.session.login.login import MESSAGES_FREE_MAX
from quota.callbacks.callback import ClientQuotaCallback
from quota.entity import ANONYMOUS, ClientQuotaType, KafkaPrincipal
from tests.support.frames import sasl_frames
from tests.support.frames.kafka_frames import api_of, fetch, message, plain, produced, request, response, throttle_ms
from tests.support.frames.sasl_frames import authenticate_answer, handshake_answer
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.verdicts import BOUND, FETCH_VERSION, PRODUCE_VERSION, fetched_of, produce_for, produce_of

LIST_OFFSETS = (ApiKey.LIST_OFFSETS, 2)  # the throttle time is the first field of its response
TINY = 1e-6
"""A percentage so small that every request is over quota and throttled for a whole window."""
WINDOW_MS = 1_000
WORK_MS = 10
ILLEGAL_SASL_STATE = 34
handshake = partial(sasl_frames.handshake, client_id="etl")
authenticate = partial(sasl_frames.authenticate, client_id="etl")


def empty_answer(correlation_id: int, key: int, version: int, *, from_broker_ms: int = 0) -> bytes:
    """Return a response with all fields empty except for its throttle time, if it has one."""
    api = api_of(key, version)
    if api.throttle is ThrottlePosition.WALK:
        return response(api, message(layout_of(key, "response", version), ThrottleTimeMs=from_broker_ms), correlation_id)
    return response(api, struct.pack(">iI", from_broker_ms, 0), correlation_id)


def throttle_in(frame: bytes, key: int, version: int) -> int:
    """Return the throttle time of a whole response."""
    if api_of(key, version).throttle is ThrottlePosition.WALK:
        return throttle_ms(frame, key, version)
    return int.from_bytes(frame[8 + api_of(key, version).response_header_version :][:4], "big")


def group_of(proxy: ProxyFixture) -> EnforcedGroup:
    """Return the only group of the request quota."""
    (group,) = proxy.scope.request.groups()
    return group


def exchange(proxy: ProxyFixture, peer: Peer, asked: bytes, answer: bytes) -> bytes:
    """Send a request that takes the broker `WORK_MS`; return what reaches the client at once."""
    assert len(peer.sends(asked)) == 1, "the request did not go on"
    proxy.wait(WORK_MS)
    peer.broker.arrive(answer)
    return peer.client.take()


@pytest.fixture
def timed() -> Iterator[ProxyFixture]:
    """Yield a proxy in `mute` in which every request of client-id etl exceeds the request quota; no byte quota applies."""
    with ProxyFixture(request=TINY, mode=Mode.MUTE) as proxy:
        yield proxy


def join(correlation_id: int, version: int, session_timeout_ms: int) -> bytes:
    """Return the beginning of a JoinGroup: group and session timeout."""
    group = b"\x02g" if version >= 6 else b"\x00\x01g"
    return request(api_of(ApiKey.JOIN_GROUP, version), group + struct.pack(">i", session_timeout_ms), correlation_id)


def empty_request(correlation_id: int, key: int, version: int) -> bytes:
    """Return a request with a valid header and, except for JoinGroup, an empty body."""
    return join(correlation_id, version, 10_000) if key == ApiKey.JOIN_GROUP else plain(correlation_id, key, version)


PASSING = [api for api in API_VERSIONS.values() if api.treatment is Treatment.PASS and not api.splice and api.key not in (17, 36)]


@pytest.mark.parametrize("api", PASSING, ids=lambda api: f"{api.name}-v{api.version}")
def test_every_api_is_charged_and_throttled(timed: ProxyFixture, api: ApiVersion) -> None:
    """Every API is charged, its response announces the throttle time if it has the field, and its client is not read for that time."""
    peer = timed.connect()
    answer = empty_answer(1, api.key, api.version)
    got = exchange(timed, peer, empty_request(1, api.key, api.version), answer)
    if api.throttle is ThrottlePosition.NONE:
        assert got == answer
    else:
        assert throttle_in(got, api.key, api.version) == WINDOW_MS
    assert not peer.client.reading
    assert group_of(timed).recorded_total > 0
    timed.wait(WINDOW_MS)
    assert peer.client.reading


def test_within_the_quota_nothing_changes(proxy: ProxyFixture) -> None:
    """A response within the quota is unchanged, and reading continues."""
    proxy.set_quota(request=100.0)
    peer = proxy.connect()
    answer = empty_answer(1, *LIST_OFFSETS, from_broker_ms=7)
    assert exchange(proxy, peer, empty_request(1, *LIST_OFFSETS), answer) == answer
    assert peer.client.reading
    assert group_of(proxy).recorded_total > 0


def test_delay_holds_the_answer_for_the_window(timed: ProxyFixture) -> None:
    """In `delay` a response over the request quota is held for the throttle time and sent unchanged."""
    timed.enforcement.mode = Mode.DELAY
    peer = timed.connect()
    answer = empty_answer(1, *LIST_OFFSETS)
    assert exchange(timed, peer, empty_request(1, *LIST_OFFSETS), answer) == b""
    timed.wait(WINDOW_MS - 1)
    assert peer.client.take() == b""
    timed.wait(1)
    assert peer.client.take() == answer


def test_observe_only_counts(timed: ProxyFixture) -> None:
    """In `observe` a response over the request quota passes unchanged and at once, and the verdict is counted."""
    timed.enforcement.mode = Mode.OBSERVE
    peer = timed.connect()
    answer = empty_answer(1, *LIST_OFFSETS)
    assert exchange(timed, peer, empty_request(1, *LIST_OFFSETS), answer) == answer
    assert peer.client.reading
    assert group_of(timed).throttle_count == 1
    assert timed.counters.throttles.keys() == {"Request"}


def test_without_a_quota_no_time_is_taken(proxy: ProxyFixture) -> None:
    """Request time is recorded only while there is a request quota, on connections that are already open too."""
    peer = proxy.connect()
    exchange(proxy, peer, empty_request(1, *LIST_OFFSETS), empty_answer(1, *LIST_OFFSETS))
    assert peer.connection.session.responses.request_time.times is None
    proxy.set_quota(request=100.0)
    exchange(proxy, peer, empty_request(2, *LIST_OFFSETS), empty_answer(2, *LIST_OFFSETS))
    assert group_of(proxy).recorded_total > 0
    before = group_of(proxy).recorded_total
    proxy.scopes.switch(request=False)
    exchange(proxy, peer, empty_request(3, *LIST_OFFSETS), empty_answer(3, *LIST_OFFSETS))
    assert group_of(proxy).recorded_total == before


@pytest.mark.parametrize(
    ("bytes_ms", "throttled_ms", "winner"),
    [
        pytest.param(0, 1_000, "Request", id="time-alone"),
        pytest.param(999, 1_000, "Request", id="time-is-longer"),
        pytest.param(1_000, 1_000, "Request", id="a-tie-is-request"),
        pytest.param(1_001, 1_001, "Produce", id="bytes-are-longer"),
    ],
)
def test_the_longer_throttle_wins(timed: ProxyFixture, bytes_ms: int, throttled_ms: int, winner: str) -> None:
    """The longer of the throttle times of bytes and request time applies, a tie counts as Request, and both amounts are recorded."""
    timed.set_quota(produce=BOUND)
    peer = timed.connect()
    got = exchange(timed, peer, produce_for(bytes_ms, 1), produced(1, version=PRODUCE_VERSION))
    assert throttle_in(got, ApiKey.PRODUCE, PRODUCE_VERSION) == throttled_ms
    assert timed.counters.throttles.keys() == {winner}
    assert group_of(timed).recorded_total > 0
    (bytes_group,) = timed.scope.produce.groups()
    assert bytes_group.recorded_total == 10_000 + bytes_ms


def test_a_produce_without_answer_is_exempt(timed: ProxyFixture) -> None:
    """The request time of a Produce with acks=0 is charged to no client and recorded as exempt."""
    timed.set_quota(produce=BOUND)
    peer = timed.connect()
    assert peer.sends(produce_of(1_000, 1, acks=0)) == [1]
    assert peer.client.reading
    assert not timed.scope.request.groups()
    assert timed.scope.request.exempt_request_time.recorded_total > 0


def log_in(proxy: ProxyFixture, peer: Peer, first_id: int = 1, mechanism: str = "GSSAPI") -> None:
    """Send a SaslHandshake and one SaslAuthenticate that the broker accepts."""
    exchange(proxy, peer, handshake(mechanism, correlation_id=first_id), handshake_answer(first_id))
    exchange(proxy, peer, authenticate(b"x", correlation_id=first_id + 1), authenticate_answer(first_id + 1))


def api_versions_throttle(proxy: ProxyFixture, peer: Peer, correlation_id: int) -> int:
    """Send an ApiVersions request; return the throttle time in its response."""
    asked, answer = (frame(correlation_id, ApiKey.API_VERSIONS, 1) for frame in (empty_request, empty_answer))
    return throttle_in(exchange(proxy, peer, asked, answer), ApiKey.API_VERSIONS, 1)


def test_the_time_of_a_login_is_not_charged(timed: ProxyFixture) -> None:
    """SaslHandshake and SaslAuthenticate are not charged, nor is ApiVersions before them after a login on another connection."""
    first = timed.connect()
    log_in(timed, first)
    assert not timed.scope.request.groups()
    second = timed.connect()
    assert api_versions_throttle(timed, second, 1) == 0
    assert api_versions_throttle(timed, second, 2) == 0
    log_in(timed, second, 3)
    assert not timed.scope.request.groups()
    assert api_versions_throttle(timed, second, 5) == WINDOW_MS


def test_the_time_of_a_renewal_is_not_charged(timed: ProxyFixture) -> None:
    """A reauthentication is not charged."""
    peer = timed.connect()
    for number in range(1, 9, 2):
        log_in(timed, peer, number)
    assert not timed.scope.request.groups()
    assert peer.client.reading


def test_a_refused_handshake_is_charged(timed: ProxyFixture) -> None:
    """Each SaslHandshake that the broker refuses is charged, and its client is throttled."""
    peer = timed.connect()
    for number in range(1, 4):
        recorded = sum(group.recorded_total for group in timed.scope.request.groups())
        exchange(timed, peer, handshake("PLAIN", correlation_id=number), handshake_answer(number, error_code=ILLEGAL_SASL_STATE))
        assert group_of(timed).recorded_total > recorded
        assert not peer.client.reading
        timed.wait(WINDOW_MS)
        assert peer.client.reading
    assert timed.counters.throttles.keys() == {"Request"}


def test_a_refused_handshake_ends_no_throttle(timed: ProxyFixture) -> None:
    """ApiVersions is still charged after a SaslHandshake that the broker refused."""
    attacker, other = timed.connect(), timed.connect()
    exchange(timed, attacker, handshake("PLAIN"), handshake_answer(1, error_code=ILLEGAL_SASL_STATE))
    assert api_versions_throttle(timed, other, 1) == WINDOW_MS
    timed.wait(WINDOW_MS)
    assert api_versions_throttle(timed, attacker, 2) == WINDOW_MS


def test_an_unanswered_handshake_ends_no_throttle(timed: ProxyFixture) -> None:
    """ApiVersions is still charged while a SaslHandshake has no response."""
    attacker, other = timed.connect(), timed.connect()
    attacker.sends(handshake("PLAIN"))
    assert api_versions_throttle(timed, other, 1) == WINDOW_MS


def test_a_refused_token_is_charged(timed: ProxyFixture) -> None:
    """A SaslAuthenticate without a handshake that the broker refuses is charged and throttled."""
    peer = timed.connect()
    for number in range(1, 3):
        refused = authenticate_answer(number, error_code=ILLEGAL_SASL_STATE)
        exchange(timed, peer, authenticate(b"x", correlation_id=number), refused)
        assert not peer.client.reading
        timed.wait(WINDOW_MS)
    assert group_of(timed).throttle_count == 2


def test_an_unexpected_token_is_charged(timed: ProxyFixture) -> None:
    """A SaslAuthenticate without a handshake is charged and throttled even if the broker accepts it."""
    peer = timed.connect()
    exchange(timed, peer, authenticate(b"x", correlation_id=1), authenticate_answer(1))
    assert not peer.client.reading
    assert group_of(timed).throttle_count == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", "GSSAPI", "CUSTOM"])
def test_a_login_that_never_ends_is_charged(timed: ProxyFixture, mechanism: str) -> None:
    """SaslAuthenticate requests beyond the number that belong to a login are charged and throttled."""
    peer = timed.connect()
    exchange(timed, peer, handshake(mechanism), handshake_answer(1))
    for number in range(2, MESSAGES_FREE_MAX + 1):
        exchange(timed, peer, authenticate(b"x", correlation_id=number), authenticate_answer(number, b"go on"))
        assert peer.client.reading
    assert not timed.scope.request.groups()
    for number in range(98, 100):
        exchange(timed, peer, authenticate(b"x", correlation_id=number), authenticate_answer(number, b"go on"))
        assert not peer.client.reading
        timed.wait(WINDOW_MS)


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(handshake("PLAIN", correlation_id=2), id="another-handshake"),
        pytest.param(plain(2, ApiKey.API_VERSIONS, 1), id="versions"),
        pytest.param(plain(2), id="a-heartbeat"),
        pytest.param(produce_of(1_000, 2), id="records"),
    ],
)
@pytest.mark.parametrize("is_pipelined", [False, True])
def test_from_a_handshake_to_the_verdict_only_tokens_pass(proxy: ProxyFixture, asked: bytes, *, is_pipelined: bool) -> None:
    """Any request other than SaslAuthenticate between a handshake and the end of the login closes the connection."""
    peer = proxy.connect()
    peer.sends(plain(7), produce_of(1_000, 8))
    peer.answers(response(api_of(ApiKey.HEARTBEAT, 4), bytes(7), 7), produced(8, version=PRODUCE_VERSION))
    if is_pipelined:
        assert peer.sends(handshake("PLAIN"), asked) == [1]
        peer.answers(handshake_answer(1))
    else:
        exchange(proxy, peer, handshake("PLAIN"), handshake_answer(1))
        peer.sends(asked)
    assert not peer.forwarded()
    assert [reason for reason, _ in proxy.closed] == [CloseReason.LOGIN_REQUIRED]


def test_before_a_login_api_versions_are_free_twice(timed: ProxyFixture) -> None:
    """Two ApiVersions requests before a login are free, and each further one is charged and throttled."""
    log_in(timed, timed.connect())
    peer = timed.connect()
    assert [api_versions_throttle(timed, peer, number) for number in (1, 2)] == [0, 0]
    for number in (3, 4):
        assert api_versions_throttle(timed, peer, number) == WINDOW_MS
        timed.wait(WINDOW_MS)
    exchange(timed, peer, handshake("GSSAPI", correlation_id=5), handshake_answer(5))
    assert peer.client.reading, "the login itself is free"


@pytest.fixture
def patient() -> Iterator[ProxyFixture]:
    """Yield a proxy like `timed` with a window of 30 s, so that throttle times may be as long."""
    with ProxyFixture(request=TINY, mode=Mode.MUTE, windows=QuotaWindows(window_ms=30_000)) as proxy:
        yield proxy


@pytest.mark.parametrize(
    ("asked", "silent_ms"),
    [
        pytest.param((ApiKey.OFFSET_COMMIT, 4), 1_000, id="a-commit"),
        pytest.param((ApiKey.OFFSET_FETCH, 4), 1_000, id="committed-offsets"),
        pytest.param((ApiKey.JOIN_GROUP, 4), 1_000, id="a-join"),
        pytest.param((ApiKey.SYNC_GROUP, 4), 1_000, id="a-sync"),
        pytest.param((ApiKey.LEAVE_GROUP, 4), 1_000, id="a-leave"),
        pytest.param((ApiKey.HEARTBEAT, 4), 1_000, id="a-heartbeat"),
        pytest.param((ApiKey.CONSUMER_GROUP_HEARTBEAT, 1), 1_000, id="a-heartbeat-of-the-new-protocol"),
        pytest.param((ApiKey.METADATA, 4), 30_000, id="another-request"),
        pytest.param(LIST_OFFSETS, 30_000, id="one-for-offsets"),
    ],
)
@pytest.mark.parametrize("with_data", [False, True])
def test_a_coordinators_requests_wait_no_longer_than_a_second(
    patient: ProxyFixture, asked: tuple[int, int], silent_ms: int, *, with_data: bool
) -> None:
    """Requests for the group coordinator are throttled for 1 s at most, whatever else their connection carries."""
    patient.set_quota(request=1e9)
    peer = patient.connect()
    if with_data:
        exchange(patient, peer, fetch(1, version=FETCH_VERSION), fetched_of(200, 1))
    patient.set_quota(request=TINY)
    got = exchange(patient, peer, empty_request(2, *asked), empty_answer(2, *asked))
    if api_of(*asked).throttle is not ThrottlePosition.NONE:
        assert throttle_in(got, *asked) == silent_ms
    patient.wait(min(silent_ms, AGE_MAX_MS) - 1)
    assert not peer.client.reading
    patient.wait(1)
    assert peer.client.reading


@pytest.mark.parametrize("session_timeout_ms", [-1, 0, 2, 6_000, 45_000])
@pytest.mark.parametrize("version", [4, 9])
def test_no_session_timeout_frees_what_comes_behind_it(timed: ProxyFixture, session_timeout_ms: int, version: int) -> None:
    """A JoinGroup and the request behind it are throttled for the whole time, whatever session timeout the JoinGroup names."""
    peer = timed.connect()
    for number in (1, 3, 5):
        got = exchange(timed, peer, join(number, version, session_timeout_ms), empty_answer(number, ApiKey.JOIN_GROUP, version))
        assert throttle_in(got, ApiKey.JOIN_GROUP, version) == WINDOW_MS
        timed.wait(WINDOW_MS)
        got = exchange(timed, peer, empty_request(number + 1, *LIST_OFFSETS), empty_answer(number + 1, *LIST_OFFSETS))
        assert throttle_in(got, *LIST_OFFSETS) == WINDOW_MS
        assert not peer.client.reading
        timed.wait(WINDOW_MS)


def test_a_heartbeat_cuts_no_other_wait_short(patient: ProxyFixture) -> None:
    """The shorter throttle time of a Heartbeat does not end the longer throttle of the request before it."""
    patient.set_quota(request=1e9)
    peer = patient.connect()
    assert peer.sends(empty_request(1, *LIST_OFFSETS) + empty_request(2, ApiKey.HEARTBEAT, 4)) == [1, 2]
    patient.wait(WORK_MS)
    patient.set_quota(request=TINY)
    peer.broker.arrive(empty_answer(1, *LIST_OFFSETS))
    assert throttle_in(peer.client.take(), *LIST_OFFSETS) == 30_000
    patient.wait(WORK_MS)
    peer.broker.arrive(empty_answer(2, ApiKey.HEARTBEAT, 4))
    assert throttle_in(peer.client.take(), ApiKey.HEARTBEAT, 4) == 1_000
    patient.wait(AGE_MAX_MS - 2 * WORK_MS)
    assert not peer.client.reading


@pytest.mark.parametrize(
    ("asked", "silent_ms"),
    [
        pytest.param((ApiKey.HEARTBEAT, 4), 1_000, id="a-heartbeat"),
        pytest.param((ApiKey.METADATA, 4), 30_000, id="another-request"),
    ],
)
def test_a_new_connection_may_be_a_members(patient: ProxyFixture, asked: tuple[int, int], silent_ms: int) -> None:
    """The first two ApiVersions of a connection are throttled for 1 s, and then the API of each request decides."""
    peer = patient.connect()
    for number in (1, 2):
        got = exchange(patient, peer, empty_request(number, ApiKey.API_VERSIONS, 1), empty_answer(number, ApiKey.API_VERSIONS, 1))
        assert throttle_in(got, ApiKey.API_VERSIONS, 1) == 1_000
        patient.wait(1_000)
    got = exchange(patient, peer, empty_request(3, *asked), empty_answer(3, *asked))
    assert throttle_in(got, *asked) == silent_ms


@pytest.mark.parametrize("before", [1, 2])
def test_only_the_first_api_versions_of_a_connection_are_those_of_a_new_one(patient: ProxyFixture, before: int) -> None:
    """The third ApiVersions of a connection, or one behind another request, is throttled for the whole time."""
    peer = patient.connect()
    asked = [(ApiKey.API_VERSIONS, 1)] * before + ([(ApiKey.HEARTBEAT, 4)] if before == 1 else [])
    for number, api in enumerate(asked):
        exchange(patient, peer, empty_request(number, *api), empty_answer(number, *api))
        patient.wait(1_000)
    got = exchange(patient, peer, empty_request(9, ApiKey.API_VERSIONS, 1), empty_answer(9, ApiKey.API_VERSIONS, 1))
    assert throttle_in(got, ApiKey.API_VERSIONS, 1) == 30_000


def exchange_with_question(proxy: ProxyFixture, peer: Peer, correlation_id: int) -> None:
    """Send a request that the proxy answers itself after it has asked the broker something."""
    assert peer.sends(describe_request(0, correlation_id, "etl", [], strict=False)) == []
    session = peer.connection.session
    session.ask(api_of(*LIST_OFFSETS), empty_request(CORRELATION_ID, *LIST_OFFSETS), proxy.now_ms, proxy.now_ms * 1_000_000)
    proxy.wait(WORK_MS)
    assert peer.answers(empty_answer(CORRELATION_ID, *LIST_OFFSETS)) == []
    peer.connection.answer(describe_answer(0, correlation_id, DescribeAnswer(0, None, [])))


@pytest.mark.parametrize("mode", [Mode.MUTE, Mode.DELAY, Mode.OBSERVE])
def test_what_the_broker_is_asked_for_a_request_is_charged(timed: ProxyFixture, mode: Mode) -> None:
    """The time the broker needs for a question of the proxy is charged to the client whose request caused the question."""
    timed.enforcement.mode = mode
    timed.settings.answers_quotas = True
    peer = timed.connect()
    for number in range(1, 3):
        exchange_with_question(timed, peer, number)
        assert peer.delivered() == ([] if mode is Mode.DELAY else [number])
        assert peer.client.reading is (mode is Mode.OBSERVE)
        timed.wait(WINDOW_MS)
        assert peer.delivered() == ([number] if mode is Mode.DELAY else [])
        assert peer.client.reading
    assert group_of(timed).throttle_count == 2


def test_a_question_ends_no_throttle(patient: ProxyFixture) -> None:
    """A request within the quota that the proxy answers itself does not end the throttle of the request before it."""
    patient.settings.answers_quotas = True
    peer = patient.connect()
    exchange(patient, peer, empty_request(1, *LIST_OFFSETS), empty_answer(1, *LIST_OFFSETS))
    patient.wait(AGE_MAX_MS)
    patient.set_quota(request=1e9)
    exchange_with_question(patient, peer, 2)
    assert peer.connection.session.throttle.is_throttled


def test_a_large_answer_pays_for_its_end_without_a_verdict(timed: ProxyFixture) -> None:
    """The time from the first to the last byte of a large response is charged when its last byte arrives."""
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


def test_an_answer_that_we_did_not_read_is_no_measurement(timed: ProxyFixture) -> None:
    """The time in which the proxy does not read the broker because the client is slow is not taken as a measurement of the broker."""
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


def test_time_that_a_request_waited_here_is_not_the_brokers(proxy: ProxyFixture) -> None:
    """The request time of a Fetch that waited in the proxy begins when it is forwarded."""
    proxy.set_quota(request=1e9)
    peer = proxy.connect()
    peer.sends(fetch(1, version=FETCH_VERSION))
    proxy.wait(1)
    peer.broker.arrive(fetched_of(13_000, 1))
    proxy.wait(20_000)
    assert peer.client.take()
    peer.sends(fetch(2, version=FETCH_VERSION))
    before = group_of(proxy).recorded_total
    peer.broker.arrive(fetched_of(100, 2))
    assert (group_of(proxy).recorded_total - before) < 0.1


def test_a_cut_answer_is_stamped(timed: ProxyFixture) -> None:
    """The throttle time is written into a response wherever it is cut in two."""
    answer = empty_answer(1, *LIST_OFFSETS)
    for cut in range(1, len(answer)):
        with ProxyFixture(request=TINY, mode=Mode.MUTE) as proxy:
            peer = proxy.connect()
            peer.sends(empty_request(1, *LIST_OFFSETS))
            proxy.wait(WORK_MS)
            peer.broker.arrive(answer[:cut])
            peer.broker.arrive(answer[cut:])
            assert throttle_in(peer.client.take(), *LIST_OFFSETS) == WINDOW_MS


def test_the_custom_callback_decides_the_group(timed: ProxyFixture) -> None:
    """Two client-ids that a callback puts into one group share its request quota."""
    timed.scope.request.replace_callback(OneGroup())
    one, other = timed.connect(), timed.connect()
    exchange(timed, one, empty_request(1, *LIST_OFFSETS), empty_answer(1, *LIST_OFFSETS))
    exchange(timed, other, plain(1, *LIST_OFFSETS, "another"), empty_answer(1, *LIST_OFFSETS))
    assert group_of(timed).tags == {"all": "of them"}


class OneGroup(ClientQuotaCallback):
    """A callback that puts all clients into one group."""

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> dict[str, str]:
        return {"all": "of them"}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float:
        return 1.0


def test_usage_tells_the_time_of_a_client(timed: ProxyFixture) -> None:
    """The usage of a client shows the request time that was charged to its group, in nanoseconds."""
    peer = timed.connect()
    exchange(timed, peer, empty_request(1, *LIST_OFFSETS), empty_answer(1, *LIST_OFFSETS))
    usage = timed.usages.get(ANONYMOUS.name, "etl")
    assert usage.request_ns * 1e-7 == group_of(timed).recorded_total
