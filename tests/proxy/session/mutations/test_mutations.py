"""Controller mutations through a whole connection: refused topics are removed from the request and inserted into the response."""

from collections.abc import Iterator
from typing import Any

import pytest

from proxy.base.close_reason import CloseReason
from proxy.enforcement.mode import Mode
from tests.support.frames.kafka_frames import answer_ids, answered, api_versions, plain, request_ids
from tests.support.frames.topic_frames import Answer, create, create_entries, delete, grow, names_in, read_answer
from tests.support.memory.memory_connection import ProxyFixture
from tests.support.memory.topic_model import TopicModel, split
from tests.support.memory.topic_talk import Talk

CREATE, DELETE, GROW, METADATA = 19, 20, 37, 3
RATE = 10.0
BURST = 110  # 11 samples of one second
EXCEEDED = 89


@pytest.fixture
def talk() -> Iterator[Talk]:
    """Yield a client in mode `mute` that may create or delete 10 partitions per second."""
    with ProxyFixture(mode=Mode.MUTE) as proxy:
        proxy.set_quota(mutation=RATE)
        yield Talk(proxy, TopicModel())


def test_within_the_budget_a_request_goes_on_as_it_came(talk: Talk) -> None:
    """Within the quota the request and the response are forwarded unchanged."""
    request = create(1, {"a": 40, "b": 60})
    assert talk.peer.sends(request) == [1]
    answer = talk.model.answer(request)
    talk.peer.broker.arrive(answer)
    assert talk.peer.client.take() == answer
    assert talk.tokens == BURST - 100


def test_partly_over_budget(talk: Talk) -> None:
    """Topics that find a negative balance get error 89 at their place in the response, and the others are created."""
    answer = talk.asks(CREATE, 7, create(1, {"a": 100, "b": 30, "c": 1, "d": 1}))
    assert answer == Answer([("a", 0), ("b", 0), ("c", EXCEEDED), ("d", EXCEEDED)], 2_000)
    assert talk.model.topics == {"a": 100, "b": 30}
    assert talk.tokens == -20


def test_a_topic_that_exists_is_its_own_error_and_costs_nothing(talk: Talk) -> None:
    """A topic that exists gets the broker's error and costs no token, also between refused topics."""
    talk.model.topics["old"] = 5
    answer = talk.asks(CREATE, 7, create(1, {"a": 111, "b": 1, "old": 500, "c": 1}))
    assert answer.errors == [("a", 0), ("b", EXCEEDED), ("old", 36), ("c", EXCEEDED)]
    assert talk.tokens == -1
    assert talk.keys == [METADATA, CREATE]


@pytest.mark.parametrize(
    ("key", "version", "frame"),
    [
        pytest.param(CREATE, 6, create(9, {"x": 1, "y": 2}, version=6), id="create"),
        pytest.param(CREATE, 7, create(9, {"x": 1, "y": 2}, version=7, validate_only=True), id="create-validate-only"),
        pytest.param(DELETE, 5, delete(9, ["x1", "y1"], version=5), id="delete"),
        pytest.param(DELETE, 6, delete(9, ["x1", "y1"]), id="delete-since-ids"),
        pytest.param(GROW, 3, grow(9, {"x1": 2, "y1": 3}), id="grow"),
    ],
)
def test_nothing_left_is_answered_here(talk: Talk, key: int, version: int, frame: bytes) -> None:
    """A request whose topics are all refused is answered by Sluice with error 89 and the wait."""
    talk.model.topics |= {"x1": 1, "y1": 1}
    talk.asks(CREATE, 7, create(1, {"a": 130}))
    before = dict(talk.model.topics)
    talk.model.asked.clear()
    answer = talk.asks(key, version, frame)
    assert [error for _, error in answer.errors] == [EXCEEDED, EXCEEDED]
    assert [name for name, _ in answer.errors] == names_in(frame)
    assert answer.throttle_ms == 2_000
    assert talk.keys == [METADATA]
    assert talk.model.topics == before
    assert talk.tokens == -20


@pytest.mark.parametrize(
    ("key", "version", "frame", "cost"),
    [
        pytest.param(CREATE, 5, create(9, {"x": 20, "y": 25}, version=5), 45, id="create-5"),
        pytest.param(CREATE, 2, create(9, {"x": 20, "old": 25}, version=2), 20, id="create-2-one-exists"),
        pytest.param(DELETE, 4, delete(9, ["old", "none"], version=4), 7, id="delete-4"),
        pytest.param(DELETE, 1, delete(9, ["old"], version=1), 7, id="delete-1"),
        pytest.param(GROW, 2, grow(9, {"old": 17, "none": 9}, version=2), 10, id="grow-2"),
        pytest.param(GROW, 0, grow(9, {"old": 6}, version=0), 0, id="grow-0-to-less"),
    ],
)
def test_old_versions_are_throttled_afterwards(talk: Talk, key: int, version: int, frame: bytes, cost: int) -> None:
    """A request of an old version is forwarded whole, charged, and throttled by its response."""
    talk.model.topics["old"] = 7
    talk.asks(CREATE, 7, create(1, {"a": 111}))
    talk.proxy.wait(100)
    answer = talk.asks(key, version, frame)
    assert EXCEEDED not in [error for _, error in answer.errors]
    assert talk.tokens == -cost
    assert answer.throttle_ms == (100 * cost if version >= 2 or key != CREATE else 0)


def test_what_fails_asks_for_no_wait(talk: Talk) -> None:
    """A topic that fails without a charge causes no throttle."""
    talk.model.topics["old"] = 7
    talk.asks(CREATE, 7, create(1, {"a": 130}))
    assert talk.asks(CREATE, 5, create(2, {"old": 1}, version=5)) == Answer([("old", 36)], 0)
    assert talk.tokens == -20


def test_sizes_are_asked_for_in_the_clients_turn(talk: Talk) -> None:
    """Sluice's Metadata request is sent in the client's turn, its response is not forwarded, and the order of requests is kept."""
    talk.model.topics |= {"a": 4, "b": 5}
    request, behind = delete(7, ["a", "b"]), plain(8)
    talk.peer.client.arrive(plain(6) + request + behind)
    assert request_ids(talk.peer.broker.take()) == [6]
    talk.peer.broker.arrive(answered(6))
    assert answer_ids(talk.peer.client.take()) == [6]
    (question,) = split(talk.peer.broker.take())
    talk.peer.broker.arrive(talk.model.answer(question))
    assert talk.peer.client.take() == b""
    onward = talk.peer.broker.take()
    assert onward == request + behind
    talk.peer.broker.arrive(talk.model.answer(request) + answered(8))
    assert answer_ids(talk.peer.client.take()) == [7, 8]
    assert talk.tokens == BURST - 9


def test_what_the_broker_is_asked_costs_its_time(talk: Talk) -> None:
    """The time of Sluice's own request is charged to the client that caused it."""
    talk.proxy.set_quota(request=1e-6)
    talk.model.topics |= {"a": 4}
    request = delete(7, ["a"])
    talk.peer.client.arrive(request)
    (question,) = split(talk.peer.broker.take())
    talk.proxy.wait(10)
    talk.peer.broker.arrive(talk.model.answer(question))
    (group,) = talk.proxy.scope.request.groups()
    assert group.recorded_total > 0
    assert talk.peer.broker.take() == request
    talk.proxy.wait(10)
    talk.peer.broker.arrive(talk.model.answer(request))
    assert read_answer(DELETE, 6, talk.peer.client.take()).throttle_ms == 1_000


def test_byte_by_byte(talk: Talk) -> None:
    """Requests and responses that arrive byte by byte give the same result as whole ones."""
    talk.model.topics["a"] = 4
    for byte in plain(1) + delete(2, ["a", "none"]) + create(3, {"b": 200}) + create(4, {"c": 1}) + plain(5):
        talk.peer.client.arrive(bytes([byte]))
        for frame in split(talk.peer.broker.take()):
            answer = answered(int.from_bytes(frame[8:12], "big")) if frame[4:6] == b"\0\x0c" else talk.model.answer(frame)
            for piece in answer:
                talk.peer.broker.arrive(bytes([piece]))
    talk.proxy.wait(20_000)
    assert request_ids(talk.peer.broker.take()) == [5]
    talk.peer.broker.arrive(answered(5))
    answers = split(talk.peer.client.take())
    assert answer_ids(b"".join(answers)) == [1, 2, 3, 4, 5]
    assert read_answer(DELETE, 6, answers[1]).errors == [("a", 0), ("none", 3)]
    assert read_answer(CREATE, 7, answers[3]) == Answer([("c", EXCEEDED)], 9_400)
    assert talk.model.topics == {"b": 200}


@pytest.mark.parametrize(("version", "asked_version"), [(None, 10), (4, 12)])
def test_topics_named_by_id(talk: Talk, version: int | None, asked_version: int) -> None:
    """Sizes of topics named by id are looked up, and a refused topic comes back with its name and id."""
    talk.model.topics |= {"a": 111, "b": 9}
    if version is not None:
        talk.says(api_versions(1, version))
    answer = talk.asks(DELETE, 6, delete(2, topic_ids=[TopicModel.id_of("a"), TopicModel.id_of("b")]))
    assert answer.errors == [("a", 0), ("b", EXCEEDED)]
    assert talk.tokens == -1
    assert (METADATA, asked_version) in [(key, asked) for key, asked, _ in talk.model.asked]


def test_what_fails_costs_nothing(talk: Talk) -> None:
    """Invalid and duplicate topics cost no token, and a topic that the broker refuses gets its tokens back."""
    made: list[dict[str, Any]] = [
        {"Name": "", "NumPartitions": 50, "ReplicationFactor": 1},
        {"Name": "..", "NumPartitions": 50, "ReplicationFactor": 1},
        {"Name": "a/b", "NumPartitions": 50, "ReplicationFactor": 1},
        {"Name": "zero", "NumPartitions": 0, "ReplicationFactor": 1},
        {"Name": "twice", "NumPartitions": 50, "ReplicationFactor": 1},
        {"Name": "twice", "NumPartitions": 50, "ReplicationFactor": 1},
        {"Name": "good", "NumPartitions": 7, "ReplicationFactor": 1},
    ]
    talk.says(create_entries(1, made))
    assert talk.tokens == BURST - 7
    talk.model.topics["old"] = 4
    answer = talk.asks(CREATE, 7, create(2, {"old": 90}))
    assert answer.errors == [("old", 36)]
    assert talk.tokens == BURST - 7


def test_placed_by_hand(talk: Talk) -> None:
    """Partitions with manual assignments are counted by their assignments."""
    placed = [{"PartitionIndex": index, "BrokerIds": [1]} for index in range(4)]
    talk.says(create_entries(1, [{"Name": "a", "NumPartitions": -1, "ReplicationFactor": -1, "Assignments": placed}]))
    assert talk.tokens == BURST - 4


def test_the_brokers_default_is_asked_for_once(talk: Talk) -> None:
    """The broker's default number of partitions is requested once and then used for every topic without a number."""
    answer = talk.asks(CREATE, 7, create(1, {"a": -1, "b": -1}))
    assert answer.errors == [("a", 0), ("b", 0)]
    assert talk.tokens == BURST - 6
    assert talk.model.asked == [(CREATE, 5, ["a", "b"]), (CREATE, 7, ["a", "b"])]
    talk.asks(CREATE, 7, create(2, {"c": -1}))
    assert talk.keys == [CREATE, CREATE, CREATE]
    assert talk.tokens == BURST - 9


def test_the_default_for_a_client_of_old(talk: Talk) -> None:
    """For an old version the default number of partitions is requested before the request is forwarded."""
    talk.says(api_versions(1, 3))
    talk.asks(CREATE, 4, create(1, {"a": -1}, version=4))
    assert talk.model.asked[1:] == [(CREATE, 5, ["a"]), (CREATE, 4, ["a"])]
    assert talk.tokens == BURST - 3


def test_metadata_that_lags_is_not_believed(talk: Talk) -> None:
    """Changes that went through Sluice count although the broker's Metadata does not show them yet."""
    talk.model.metadata_shows = {}
    talk.asks(CREATE, 7, create(1, {"a": 4}))
    talk.asks(GROW, 3, grow(2, {"a": 10}))
    assert talk.tokens == BURST - 10
    talk.asks(DELETE, 6, delete(3, topic_ids=[TopicModel.id_of("a")]))
    assert talk.tokens == BURST - 20
    assert METADATA not in talk.keys


def test_validate_only_is_charged(talk: Talk) -> None:
    """Validate-only requests are charged, as in KRaft's controller."""
    talk.model.topics["old"] = 2
    talk.asks(CREATE, 7, create(1, {"a": 30}, validate_only=True))
    talk.asks(GROW, 3, grow(2, {"old": 12}, validate_only=True))
    assert talk.tokens == BURST - 40
    assert talk.model.topics == {"old": 2}


def test_refused_and_muted(talk: Talk) -> None:
    """In mode `mute` nothing is read after a refusal until the wait is over."""
    talk.asks(CREATE, 7, create(1, {"a": 130}))
    assert talk.asks(CREATE, 7, create(2, {"b": 1})).throttle_ms == 2_000
    assert talk.says(plain(3)) == b""
    assert talk.peer.broker.take() == b""
    talk.proxy.wait(1_999)
    assert talk.peer.broker.take() == b""
    talk.proxy.wait(1)
    assert request_ids(talk.peer.broker.take()) == [3]


def test_refused_and_held() -> None:
    """In mode `delay` Sluice's own response is held up to `delay_max_ms` and announces the rest of the wait."""
    with ProxyFixture(mode=Mode.DELAY, delay_max_ms=500) as proxy:
        proxy.set_quota(mutation=RATE)
        talk = Talk(proxy, TopicModel())
        talk.asks(CREATE, 7, create(1, {"a": 130}))
        talk.peer.client.arrive(create(2, {"b": 1}))
        talk.pump()
        assert talk.peer.client.take() == b""
        proxy.wait(499)
        assert talk.peer.client.take() == b""
        proxy.wait(1)
        assert read_answer(CREATE, 7, talk.peer.client.take()) == Answer([("b", EXCEEDED)], 1_500)


def test_partly_refused_and_held() -> None:
    """In mode `delay` a response with inserted refusals is held and then complete."""
    with ProxyFixture(mode=Mode.DELAY) as proxy:
        proxy.set_quota(mutation=RATE)
        talk = Talk(proxy, TopicModel())
        assert talk.says(create(1, {"a": 130, "b": 1})) == b""
        proxy.wait(2_000)
        assert read_answer(CREATE, 7, talk.peer.client.take()) == Answer([("a", 0), ("b", EXCEEDED)], 0)


def test_observe_refuses_nothing() -> None:
    """In mode `observe` no topic is refused, no response is changed, and the tokens are counted."""
    with ProxyFixture(mode=Mode.OBSERVE) as proxy:
        proxy.set_quota(mutation=RATE)
        talk = Talk(proxy, TopicModel(old=50))
        request = create(1, {"a": 130, "b": 1})
        assert talk.peer.sends(request) == [1]
        answer = talk.model.answer(request)
        talk.peer.broker.arrive(answer)
        assert talk.peer.client.take() == answer
        assert talk.tokens == -20
        assert talk.asks(DELETE, 6, delete(2, ["old"])) == Answer([("old", 0)], 0)
        assert talk.tokens == -20
        assert proxy.counters.throttles["ControllerMutation"].sum_ms == 4_000


def test_no_other_client_is_charged(talk: Talk) -> None:
    """A client without a quota has its request forwarded in pieces as it arrives."""
    request = create(1, {"a": 500}, client_id="other")
    talk.peer.client.arrive(request[:30])
    assert talk.peer.broker.take() == request[:30]
    talk.peer.client.arrive(request[30:])
    assert talk.peer.broker.take() == request[30:]


def test_one_bucket_for_all_connections(talk: Talk) -> None:
    """All connections of a client share one bucket."""
    talk.asks(CREATE, 7, create(1, {"a": 130}))
    other = Talk(talk.proxy, talk.model)
    assert other.asks(CREATE, 7, create(1, {"b": 1})).errors == [("b", EXCEEDED)]


def test_a_client_that_leaves_is_judged_all_the_same(talk: Talk) -> None:
    """Requests of a half-closed client are refused or forwarded like those of any client."""
    talk.asks(CREATE, 7, create(1, {"a": 130}))
    talk.peer.client.arrive(plain(2) + create(3, {"b": 1, "c": 1}))
    talk.peer.connection.client.eof_received()
    assert request_ids(talk.peer.broker.take()) == [2]
    talk.peer.broker.arrive(answered(2))
    talk.pump()
    assert answer_ids(talk.peer.client.take()) == [2, 3]
    assert talk.model.topics == {"a": 130}
    assert [reason for reason, _ in talk.proxy.closed] == [CloseReason.CLIENT_CLOSED]


def test_a_client_that_leaves_while_we_ask(talk: Talk) -> None:
    """A request of a client that half-closes during Sluice's Metadata request is forwarded afterwards."""
    talk.model.topics["a"] = 4
    talk.peer.client.arrive(delete(2, ["a"]))
    (question,) = split(talk.peer.broker.take())
    talk.peer.connection.client.eof_received()
    assert talk.peer.broker.take() == b""
    talk.peer.broker.arrive(talk.model.answer(question))
    (onward,) = split(talk.peer.broker.take())
    assert names_in(onward) == ["a"]
    talk.peer.broker.arrive(talk.model.answer(onward))
    assert answer_ids(talk.peer.client.take()) == [2]


def test_refused_topics_stand_between_duplicates(talk: Talk) -> None:
    """Refused and duplicate topics stand in the response in the order of the request."""
    talk.asks(CREATE, 7, create(1, {"a": 130}))
    names = ["b", "twice", "c", "twice", "d"]
    entries = [{"Name": name, "NumPartitions": 1, "ReplicationFactor": 1} for name in names]
    answer = talk.asks(CREATE, 7, create_entries(2, entries))
    assert answer.errors == [("b", EXCEEDED), ("twice", 42), ("c", EXCEEDED), ("twice", 42), ("d", EXCEEDED)]


def test_leaving_is_no_way_around_an_empty_bucket(talk: Talk) -> None:
    """After a half-close a request over the quota is refused, and the one behind it waits until the balance is not negative."""
    talk.model.topics |= {"a": 4, "b": 5}
    talk.asks(CREATE, 7, create(1, {"c": 130}))
    talk.peer.client.arrive(delete(2, ["a"]) + grow(3, {"b": 50}))
    talk.peer.connection.client.eof_received()
    talk.pump()
    (refusal,) = split(talk.peer.client.take())
    assert read_answer(DELETE, 6, refusal).errors == [("a", EXCEEDED)]
    talk.proxy.wait(1_999)
    talk.pump()
    assert talk.model.topics == {"a": 4, "b": 5, "c": 130}
    assert talk.tokens < 0
    talk.proxy.wait(1)
    talk.pump()
    assert talk.model.topics == {"a": 4, "b": 50, "c": 130}
    assert talk.tokens == pytest.approx(-45)


def test_too_large_to_be_held(talk: Talk) -> None:
    """A request whose length exceeds the limit closes the connection, and the request before it is forwarded."""
    huge = bytearray(create(2, {"a": 1}))
    huge[:4] = (5_000_000).to_bytes(4, "big")
    talk.peer.client.arrive(plain(1) + bytes(huge))
    assert request_ids(talk.peer.broker.take()) == [1]
    talk.proxy.wait(0)
    assert [reason for reason, _ in talk.proxy.closed] == [CloseReason.FRAME_SIZE]


def test_what_stands_before_a_broken_request_goes_on(talk: Talk) -> None:
    """A request before a malformed one is forwarded, and the malformed one closes the connection."""
    broken = create(2, {"a": 1}, version=5)[:-4]
    talk.peer.client.arrive(plain(1) + (len(broken) - 4).to_bytes(4, "big") + broken[4:])
    assert request_ids(talk.peer.broker.take()) == [1]
    talk.proxy.wait(0)
    assert [reason for reason, _ in talk.proxy.closed] == [CloseReason.BAD_REQUEST]


def test_a_broken_request_ends_the_connection(talk: Talk) -> None:
    """A malformed request closes the connection and is not forwarded."""
    broken = create(1, {"a": 1})[:-4]
    talk.says((len(broken) - 4).to_bytes(4, "big") + broken[4:])
    assert [reason for reason, _ in talk.proxy.closed] == [CloseReason.BAD_REQUEST]
    assert talk.model.asked == []


@pytest.mark.parametrize(
    ("partitions", "announced_ms", "by"),
    [
        pytest.param(130, 2_000, "ControllerMutation", id="the-bucket-asks-for-longer"),
        pytest.param(115, 1_000, "Request", id="a-window-of-request-time-is-longer"),
        pytest.param(120, 1_000, "Request", id="a-tie-is-Requests"),
        pytest.param(10, 1_000, "Request", id="the-bucket-asks-for-nothing"),
    ],
)
def test_the_longer_of_two_waits(partitions: int, announced_ms: int, by: str) -> None:
    """A request over two quotas waits for the longer throttle, and only that one is counted."""
    with ProxyFixture(request=1e-6, mode=Mode.MUTE) as proxy:
        proxy.set_quota(mutation=RATE)
        talk = Talk(proxy, TopicModel())
        talk.peer.client.arrive(create(1, {"a": partitions}, version=5))
        proxy.wait(5)
        talk.pump()
        assert read_answer(CREATE, 5, talk.peer.client.take()).throttle_ms == announced_ms
        assert [quota_type for quota_type, seen in proxy.counters.throttles.items() if seen.sum_ms] == [by]
        assert talk.tokens == pytest.approx(BURST - partitions)
        proxy.wait(announced_ms - 1)
        assert not talk.peer.client.reading
        proxy.wait(1)
        assert talk.peer.client.reading
