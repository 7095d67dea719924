"""Frames with thousands of items: they are processed in steps over turns of the event loop, or refused before."""

import struct
from collections.abc import Iterator

import pytest

from protocol.api_keys import ApiKey
from protocol.limits import MAX_CHANGE_PARTS, MAX_CHANGE_TOPICS
from protocol.messages.addresses import splice
from protocol.messages.describe_configs import redact
from protocol.messages.topic_changes import NO_ID
from protocol.messages.topic_results import result_entry, results_answer
from protocol.steps import ITEMS_PER_STEP
from proxy.base.close_reason import CloseReason
from proxy.enforcement.mode import Mode
from tests.support.frames.kafka_frames import answer_ids, answered, api_of, plain, produce, request, request_ids, response, split
from tests.support.frames.layout_codec import uvarint
from tests.support.frames.long_frames import PLACED, TOPIC, configs, coordinators, create_of, grow_of
from tests.support.frames.topic_frames import create, delete, read_answer
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.topic_model import TopicModel
from tests.support.memory.topic_talk import Talk
from tests.support.step_watch import StepWatch

CREATE, DELETE, METADATA = 19, 20, 3
CALL_ITEMS = 2 * ITEMS_PER_STEP
"""One call may end one walk and begin the next."""
OURS = ("sluice.example", 19_092)


@pytest.fixture
def proxy() -> Iterator[ProxyFixture]:
    """Yield a proxy in mode `mute` with a mutation quota that most requests stay within."""
    with ProxyFixture(mode=Mode.MUTE) as proxy:
        proxy.set_quota(mutation=1_000.0)
        yield proxy


@pytest.fixture
def watch() -> Iterator[StepWatch]:
    """Yield a watch that counts the items processed in each call."""
    with StepWatch() as watch:
        yield watch


def gateway(proxy: ProxyFixture) -> Peer:
    """Return a connection whose brokers are all rewritten to `OURS`."""
    return proxy.connect(lambda _node_id, _host, _port: OURS)


# --- requests to make or delete topics


@pytest.mark.parametrize(
    ("frame", "items_max"),
    [
        pytest.param(create_of(uvarint(MAX_CHANGE_TOPICS + 2) + (TOPIC + b"\1\1\0") * (MAX_CHANGE_TOPICS + 1)), 0, id="topics"),
        pytest.param(create_of(b"\2" + TOPIC + uvarint(400_001) + PLACED * 400_000 + b"\1\0"), 0, id="assignments"),
        pytest.param(create_of(b"\2" + TOPIC + b"\1" + uvarint(400_001) + b"\2k\2v\0" * 400_000 + b"\0"), 0, id="configs"),
        pytest.param(create_of(b"\2" + TOPIC + b"\1\1" + uvarint(2_000_000) + b"\5\0" * 2_000_000), 0, id="tagged-fields"),
        pytest.param(
            create_of(b"\3" + (TOPIC + uvarint(60_001) + PLACED * 60_000 + b"\1\0") * 2), MAX_CHANGE_PARTS, id="assignments-of-two-topics"
        ),
        pytest.param(grow_of(b"\2\2t" + struct.pack(">i", 9) + uvarint(400_001) + b"\2\0\0\0\1\0" * 400_000 + b"\0"), 0, id="growth"),
    ],
)
def test_too_much_in_a_request_ends_the_connection(proxy: ProxyFixture, watch: StepWatch, frame: bytes, items_max: int) -> None:
    """A request with too many topics, assignments, configurations or tagged fields closes the connection and is not forwarded."""
    peer = proxy.connect()
    peer.client.arrive(plain(1) + frame)
    proxy.wait(0)
    assert request_ids(peer.broker.take()) == [1]
    peer.broker.arrive(answered(1))
    proxy.wait(0)
    assert request_ids(peer.broker.take()) == []
    assert [reason for reason, _ in proxy.closed] == [CloseReason.TOO_MANY_TOPICS]
    assert watch.items <= items_max
    assert watch.most <= CALL_ITEMS


@pytest.mark.parametrize("before", [b"", plain(1)])
def test_the_number_of_topics_is_looked_at_first(proxy: ProxyFixture, before: bytes) -> None:
    """Too many topics close the connection at their count, before the request is complete."""
    peer = proxy.connect()
    frame = create_of(uvarint(MAX_CHANGE_TOPICS + 2) + (TOPIC + b"\1\1\0") * (MAX_CHANGE_TOPICS + 1))
    peer.client.arrive(before + frame[:40])
    if before:
        assert peer.forwarded() == [1]
    proxy.wait(0)
    assert [reason for reason, _ in proxy.closed] == [CloseReason.TOO_MANY_TOPICS]


def test_ten_thousand_topics_are_judged_in_steps(proxy: ProxyFixture, watch: StepWatch) -> None:
    """A request with 10,000 topics is processed in steps, forwarded unchanged, and charged."""
    talk = Talk(proxy, TopicModel())
    names = [f"t{number}" for number in range(MAX_CHANGE_TOPICS)]
    frame = create(1, dict.fromkeys(names, 1))
    talk.peer.client.arrive(frame + plain(2))
    assert talk.peer.broker.take() == b""
    proxy.wait(0)
    assert talk.peer.broker.take() == frame + plain(2)
    answer = results_answer(api_of(CREATE, 7), 1, [result_entry(api_of(CREATE, 7), name, NO_ID, 0) for name in names])
    talk.peer.broker.arrive(answer + answered(2))
    proxy.wait(0)
    assert talk.peer.client.take() == answer + answered(2)
    assert talk.tokens == 11_000 - MAX_CHANGE_TOPICS
    assert watch.most <= CALL_ITEMS
    assert watch.turns >= 2 * MAX_CHANGE_TOPICS // ITEMS_PER_STEP


def test_refused_topics_of_a_long_request(proxy: ProxyFixture, watch: StepWatch) -> None:
    """Thousands of refused topics are inserted into the response at their places, in steps."""
    proxy.set_quota(mutation=100.0)
    talk = Talk(proxy, TopicModel())
    names = [f"t{number}" for number in range(3_000)]
    talk.model.topics |= dict.fromkeys(names, 1)
    talk.peer.client.arrive(delete(1, names))
    answer = b""
    while not answer:
        proxy.wait(0)
        talk.pump()
        answer = talk.peer.client.take()
    errors = read_answer(DELETE, 6, answer).errors
    assert [name for name, _ in errors] == names
    assert {error for _, error in errors[:1_101]} == {0}
    assert {error for _, error in errors[1_101:]} == {89}
    assert talk.keys == [METADATA, DELETE]
    assert watch.most <= CALL_ITEMS


def test_others_have_their_turn(proxy: ProxyFixture) -> None:
    """Another client's request is forwarded while long requests of many connections are processed."""
    peers = [proxy.connect() for _ in range(20)]
    for peer in peers:
        peer.client.arrive(create(1, {f"t{number}": 1 for number in range(2_000)}))
    with StepWatch() as watch:
        other = proxy.connect()
        proxy.loop.call_soon(other.client.arrive, produce(9))
        proxy.wait(0)
        assert len(proxy.long_work) == 0
        assert watch.turns > 20 * 2_000 // ITEMS_PER_STEP
    assert other.forwarded() == [9]
    assert [peer.forwarded() for peer in peers] == [[1]] * 20


def test_a_short_request_costs_no_turn(proxy: ProxyFixture) -> None:
    """A short request is processed in the call that reads it."""
    peer = proxy.connect()
    assert peer.sends(create(1, {f"t{number}": 1 for number in range(20)})) == [1]


def test_many_short_requests_in_one_read(proxy: ProxyFixture, watch: StepWatch) -> None:
    """Many short requests of one read are processed in steps and in order."""
    peer = proxy.connect()
    frames = [create(number, {f"t{number}-{one}": 1 for one in range(100)}, version=5) for number in range(60)]
    peer.client.arrive(b"".join(frames))
    for _ in range(60):
        proxy.wait(0)
    assert peer.forwarded() == list(range(60))
    assert watch.most <= 2 * CALL_ITEMS


def test_a_client_that_leaves_meanwhile(proxy: ProxyFixture) -> None:
    """A request that is processed in steps reaches the broker although its client half-closes."""
    peer = proxy.connect()
    frame = create(1, {f"t{number}": 1 for number in range(2_000)})
    peer.client.arrive(frame)
    peer.connection.client.eof_received()
    assert not peer.broker.eof_written
    proxy.wait(0)
    assert peer.broker.take() == frame
    assert not proxy.closed


def test_an_answer_about_too_many_topics(proxy: ProxyFixture) -> None:
    """A response with too many topics closes the connection."""
    peer = proxy.connect()
    assert peer.sends(create(1, {"a": 1})) == [1]
    entry = b"\2t" + bytes(16) + b"\0\0\0" + struct.pack(">ih", 1, 1) + b"\1\0"
    body = struct.pack(">i", 0) + uvarint(MAX_CHANGE_TOPICS + 2) + entry * (MAX_CHANGE_TOPICS + 1) + b"\0"
    peer.broker.arrive(response(api_of(CREATE, 7), body, 1))
    proxy.wait(0)
    assert peer.client.take() == b""
    assert [reason for reason, _ in proxy.closed] == [CloseReason.TOO_MANY_TOPICS]


# --- answers


def produced_to(correlation_id: int, partitions: int, *, version: int = 10, endpoints: bool = False) -> bytes:
    """Return a Produce response with failed partitions."""
    entry = struct.pack(">ihqqq", 0, 6, 0, 0, 0) + b"\1\2x\0"
    tags = b"\0"
    if endpoints:
        value = b"\2" + struct.pack(">i", 1) + b"\7broker" + struct.pack(">i", 9_092) + b"\0\0"
        tags = b"\1\0" + uvarint(len(value)) + value
    body = b"\2\2t" + uvarint(partitions + 1) + entry * partitions + b"\0" + struct.pack(">i", 0) + tags
    return response(api_of(0, version), body, correlation_id)


def fetched_of(correlation_id: int, partitions: int, *, endpoints: bool = False) -> bytes:
    """Return a Fetch v16 response with partitions without records, each with an aborted transaction."""
    entry = struct.pack(">ihqqq", 0, 0, 0, 0, 0) + b"\2" + bytes(16) + b"\0" + struct.pack(">i", -1) + b"\1\0"
    tags = b"\0"
    if endpoints:
        value = b"\2" + struct.pack(">i", 1) + b"\x10broker.internal" + struct.pack(">i", 9_092) + b"\0\0"
        tags = b"\1\0" + uvarint(len(value)) + value
    body = struct.pack(">ihi", 0, 0, 0) + b"\2" + bytes(16) + uvarint(partitions + 1) + entry * partitions + b"\0" + tags
    return response(api_of(1, 16), body, correlation_id)


def asked(peer: Peer, key: int, version: int, correlation_id: int) -> None:
    """Forward a request of an API to the broker."""
    frame = {0: lambda: produce(correlation_id, version=version)}.get(key, lambda: plain(correlation_id, key, version))()
    if key == 1:
        frame = request(
            api_of(1, 16), struct.pack(">iii", 500, 1, 50_000_000) + b"\0" + struct.pack(">ii", 0, 0) + b"\1\1\1\0", correlation_id
        )
    assert peer.sends(frame) == [correlation_id]


ANSWERS = {
    "find-coordinator": (10, 4, coordinators(7, 20_000), splice(api_of(10, 4), coordinators(7, 20_000), lambda *_: OURS)),
    "describe-configs": (32, 4, configs(7, 20_000), redact(api_of(32, 4), configs(7, 20_000))),
    "produce": (0, 10, produced_to(7, 20_000), produced_to(7, 20_000)),
    "produce-before-endpoints": (0, 9, produced_to(7, 20_000, version=9), produced_to(7, 20_000, version=9)),
    "produce-with-endpoints": (
        0,
        10,
        produced_to(7, 20_000, endpoints=True),
        splice(api_of(0, 10), produced_to(7, 20_000, endpoints=True), lambda *_: OURS),
    ),
    "fetch": (1, 16, fetched_of(7, 20_000), fetched_of(7, 20_000)),
}


@pytest.mark.parametrize("piece", [1 << 30, 256 * 1024, 10_007])
@pytest.mark.parametrize("name", ANSWERS)
def test_long_answers_leave_as_short_ones(proxy: ProxyFixture, watch: StepWatch, name: str, piece: int) -> None:
    """A long response that is processed in steps leaves as it would at once, and in order."""
    key, version, answer, expected = ANSWERS[name]
    peer = gateway(proxy)
    asked(peer, key, version, 7)
    assert peer.sends(plain(8)) == [8]
    data = answer + answered(8)
    for at in range(0, len(data), piece):
        peer.broker.arrive(data[at : at + piece])
        proxy.wait(0)
    assert peer.client.take() == bytes(expected) + answered(8)
    assert watch.most <= CALL_ITEMS
    assert not proxy.closed
    assert peer.connection.session.responses.held_bytes == 0


@pytest.mark.parametrize("piece", [1 << 30, 10_007])
def test_new_leaders_at_the_end_of_a_long_fetch(proxy: ProxyFixture, watch: StepWatch, piece: int) -> None:
    """The node endpoints at the end of a long Fetch response are rewritten."""
    peer = gateway(proxy)
    asked(peer, 1, 16, 7)
    answer = fetched_of(7, 20_000, endpoints=True)
    for at in range(0, len(answer), piece):
        peer.broker.arrive(answer[at : at + piece])
        proxy.wait(0)
    (left,) = split(peer.client.take())
    assert b"broker.internal" not in left
    assert left[4 : len(left) - 100] == answer[4 : len(left) - 100]
    assert watch.most <= CALL_ITEMS


def test_what_is_read_meanwhile_waits(proxy: ProxyFixture) -> None:
    """Bytes that arrive behind a long response are sent after it."""
    peer = gateway(proxy)
    asked(peer, 10, 4, 7)
    assert peer.sends(plain(8)) == [8]
    peer.broker.arrive(coordinators(7, 2_000))
    assert not peer.broker.reading
    peer.connection.broker.data_received(answered(8))
    assert peer.client.take() == b""
    proxy.wait(0)
    assert answer_ids(peer.client.take()) == [7, 8]
    assert peer.broker.reading


def test_a_broker_that_leaves_behind_a_long_answer(proxy: ProxyFixture) -> None:
    """A long response is delivered although the broker closes behind it."""
    peer = gateway(proxy)
    asked(peer, 10, 4, 7)
    peer.broker.arrive(coordinators(7, 2_000))
    peer.connection.broker.eof_received()
    assert not proxy.closed
    proxy.wait(0)
    assert peer.delivered() == [7]
    assert [reason for reason, _ in proxy.closed] == [CloseReason.BROKER_CLOSED]


def test_a_long_answer_that_does_not_read(proxy: ProxyFixture) -> None:
    """A malformed long response closes the connection after the responses before it."""
    peer = gateway(proxy)
    assert peer.sends(plain(6)) == [6]
    asked(peer, 10, 4, 7)
    broken = bytearray(coordinators(7, 2_000))
    broken[13:15] = b"\xff\x7f"
    peer.broker.arrive(answered(6) + bytes(broken))
    proxy.wait(0)
    assert peer.delivered() == [6]
    assert [reason for reason, _ in proxy.closed] == [CloseReason.BAD_RESPONSE]


def test_a_long_answer_announces_its_wait() -> None:
    """The throttle time is written into a long response in place."""
    with ProxyFixture(produce=1_000.0, mode=Mode.MUTE) as proxy:
        peer = gateway(proxy)
        asked(peer, 0, 10, 1)
        peer.connection.client.data_received(produce(2, version=10, size=100))
        proxy.wait(0)
        peer.broker.arrive(produced_to(1, 2_000))
        proxy.wait(0)
        (left,) = split(peer.client.take())
        assert left == produced_to(1, 2_000)
    with ProxyFixture(produce=1_000.0, mode=Mode.MUTE) as proxy:
        peer = gateway(proxy)
        assert peer.sends(produce(1, version=10, size=50_000)) == [1]
        peer.broker.arrive(produced_to(1, 2_000))
        proxy.wait(0)
        (left,) = split(peer.client.take())
        assert int.from_bytes(left[-5:-1], "big") > 1_000
        assert left[:-5] == produced_to(1, 2_000)[:-5]


# --- requests about configurations


def test_a_long_request_for_configurations(proxy: ProxyFixture, watch: StepWatch) -> None:
    """A long request without users or clients is searched in steps and forwarded unchanged."""
    proxy.settings.answers_quotas = True
    peer = proxy.connect()
    frame = request(api_of(ApiKey.DESCRIBE_CONFIGS, 4), uvarint(20_001) + b"\2\2t\0\0" * 20_000 + b"\0\0\0", 7)
    peer.client.arrive(frame + plain(8))
    assert peer.broker.take() == b""
    proxy.wait(0)
    assert peer.broker.take() == frame + plain(8)
    assert watch.most <= CALL_ITEMS


def test_a_long_request_that_names_a_user_is_read_elsewhere(proxy: ProxyFixture, watch: StepWatch) -> None:
    """A long request that names a user is handed over without being parsed."""
    proxy.settings.answers_quotas = True
    peer = proxy.connect()
    frame = request(api_of(ApiKey.DESCRIBE_CONFIGS, 4), uvarint(2_001) + b"\3\2t\0\0" * 2_000 + b"\0\0\0", 7)
    peer.client.arrive(frame)
    proxy.wait(0)
    assert proxy.administered == [peer.connection]
    administered = peer.connection.session.requests.pending.administered
    assert administered is not None
    assert administered.body is None
    assert watch.most <= CALL_ITEMS


# --- many small frames in one read


def test_heads_that_have_to_be_read_take_a_larger_share_of_a_turn(proxy: ProxyFixture) -> None:
    """Of 64 requests with different headers eight are forwarded in one turn and the others in the next ones."""
    peer = proxy.connect()
    frames = [plain(number, client_id=f"client-{number}") for number in range(64)]
    assert peer.sends(*frames) == list(range(8))
    proxy.loop.run_until(proxy.now_ms)
    assert peer.forwarded() == list(range(8, 64))
