"""Any sequence of topic operations through Sluice gets the responses of a KRaft controller with the same quota."""

from typing import NamedTuple

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from protocol.messages.topic_changes import NO_ID
from proxy.enforcement.mode import Mode
from tests.support.frames.kafka_frames import api_versions
from tests.support.frames.topic_frames import body_of, create_entries, delete, grow, read_answer
from tests.support.memory.memory_connection import ProxyFixture
from tests.support.memory.topic_model import QuotaTopicModel, TopicModel, split

RATE = 5.0
BURST = 55.0
NAMES = st.sampled_from(["a", "b", "c", "d", "e"])


class Operation(NamedTuple):
    """A request, the time before it, and whether the broker's Metadata lags one operation behind."""

    wait_ms: int
    frame: bytes
    lags: bool


@st.composite
def creations(draw: st.DrawFn) -> bytes:
    """Draw a CreateTopics with duplicates, invalid names and numbers, defaults, and manual assignments."""
    entry = st.fixed_dictionaries(
        {"Name": NAMES | st.just(""), "NumPartitions": st.integers(1, 40) | st.sampled_from([-1, 0]), "ReplicationFactor": st.just(1)}
    )
    entries = draw(st.lists(entry, min_size=1, max_size=4))
    for one in entries:
        if draw(st.integers(0, 9)) == 0:
            placed = [{"PartitionIndex": index, "BrokerIds": [1]} for index in range(draw(st.integers(1, 9)))]
            one |= {"NumPartitions": -1, "ReplicationFactor": -1, "Assignments": placed}
    return create_entries(1, entries, version=draw(st.integers(2, 7)), validate_only=draw(st.sampled_from([False, False, True])))


@st.composite
def deletions(draw: st.DrawFn) -> bytes:
    """Draw a DeleteTopics by name, and by id where the version has ids."""
    version = draw(st.integers(1, 6))
    names = draw(st.lists(NAMES, min_size=1, max_size=4))
    by_id = draw(st.lists(NAMES.filter(lambda name: name not in names), max_size=2)) if version == 6 else []
    return delete(1, names, topic_ids=[TopicModel.id_of(name) for name in by_id], version=version)


@st.composite
def growths(draw: st.DrawFn) -> bytes:
    """Draw a CreatePartitions to more, the same, or fewer partitions."""
    totals = draw(st.dictionaries(NAMES, st.integers(1, 60), min_size=1, max_size=3))
    return grow(1, totals, version=draw(st.integers(0, 3)), validate_only=draw(st.sampled_from([False, False, True])))


OPERATIONS = st.lists(
    st.builds(Operation, st.integers(0, 2_500), creations() | creations() | deletions() | growths(), st.booleans()), max_size=12
)


@settings(max_examples=100, phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink])  # the explain phase takes minutes
@given(operations=OPERATIONS)
def test_as_from_a_controller_with_the_quota(operations: list[Operation]) -> None:
    """Each response has the errors and the throttle time of a controller with the quota, and the topics and tokens are equal."""
    with ProxyFixture(mode=Mode.MUTE) as proxy:
        proxy.set_quota(mutation=RATE)
        began_ms = proxy.now_ms
        kraft, plain = QuotaTopicModel(RATE, BURST), TopicModel()
        before: dict[str, int] = {}
        for operation in operations:
            proxy.wait(operation.wait_ms)
            kraft.now_ms = proxy.now_ms - began_ms
            key, version, body = body_of(operation.frame)
            by_id = any(topic.get("TopicId", NO_ID) != NO_ID for topic in body.get("Topics", ()))
            plain.metadata_shows = before if operation.lags and not by_id else None  # responses of old versions have no topic ids
            before = dict(plain.topics)
            ours = read_answer(key, version, said(proxy, plain, operation.frame))
            expected = read_answer(key, version, kraft.answer(operation.frame))
            assert ours == expected
            assert plain.topics == kraft.topics
        kraft.now_ms = proxy.now_ms - began_ms
        kraft.refill()
        for group in proxy.scope.mutation.groups():
            assert abs(group.tokens(proxy.now_ms) - kraft.tokens) < 1e-6


def said(proxy: ProxyFixture, model: TopicModel, frame: bytes) -> bytes:
    """Send a request on a new connection, because a throttled one is not read, and return its response."""
    peer = proxy.connect()
    for sent in (api_versions(0, 3), frame):
        peer.client.arrive(sent)
        while asked := peer.broker.take():
            for one in split(asked):
                peer.broker.arrive(model.answer(one))
    _versions, answer = split(peer.client.take())
    return answer
