"""Requests to the broker that are needed before a request can be checked, and their results.

A probe is a request of Sluice's own on the client's connection: it has its place in the FIFO of requests in flight, and the client does
not receive its response. It has the client's rights and client-id.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from protocol.messages.topic_changes import NO_ID, TopicChange, default_partitions_request
from protocol.messages.topic_results import topic_results_in_steps
from protocol.messages.topic_sizes import (
    ASKED_BY_ID_SINCE,
    IDS_ANSWERED_SINCE,
    TopicSize,
    all_topic_sizes_request,
    topic_sizes_in_steps,
    topic_sizes_request_in_steps,
)
from protocol.steps import Pace, Steps
from proxy.session.mutations.known_sizes import KnownSizes
from proxy.session.parsed_response import ParsedResponse

CORRELATION_ID = 0x51_4D_5A_00
"""Correlation id of all probes: responses come in order, so one number is enough, and it is easy to find in a capture."""
NEWEST_METADATA = 12
LOWEST_METADATA = 4
PROBE_VERSION = 5


class ProbeResults:
    """Results for one request: the brokers' Metadata on its topics, and recent changes seen by Sluice."""

    __slots__ = ("_by_id", "_by_name", "_has_sizes", "_known", "asked_default", "asked_sizes")

    def __init__(self, known: KnownSizes) -> None:
        self._known = known
        self._by_name: dict[str, TopicSize] = {}
        self._by_id: dict[bytes, TopicSize] = {}
        self._has_sizes = False
        self.asked_default = False
        self.asked_sizes = False

    @property
    def default_partitions(self) -> int:
        """The number of partitions of a topic created without one; 1 while unknown."""
        return self._known.default_partitions or 1

    @property
    def knows_default(self) -> bool:
        """Whether the broker's default is known."""
        return self._known.default_partitions is not None

    def size(self, topic: TopicChange, now_ms: int) -> TopicSize | None:
        """Return the known size of a topic."""
        recent = self._known.recent(topic.name, topic.topic_id, now_ms)
        if recent is not None:
            return recent
        return self._by_id.get(topic.topic_id) if topic.name is None else self._by_name.get(topic.name)

    def is_recent(self, topic: TopicChange, now_ms: int) -> bool:
        """Whether the size of a topic is known from a recent change."""
        return self._known.recent(topic.name, topic.topic_id, now_ms) is not None

    def is_unknown(self, topic: TopicChange, now_ms: int) -> bool:
        """Whether the existence of a topic is unknown."""
        return not self._has_sizes and not self.is_recent(topic, now_ms)

    def take_sizes(self, sizes: Sequence[TopicSize]) -> Steps[None]:
        """Store the sizes of a Metadata response."""
        self._has_sizes = True
        pace = Pace()
        for size in sizes:
            if size.name is not None and size.partitions > 0:
                self._by_name[size.name] = size
                if size.topic_id != NO_ID:
                    self._by_id[size.topic_id] = size
            if pace.due():
                yield

    def take_default(self, partitions: int) -> None:
        """Store the number of partitions that a topic got by default."""
        self._known.default_partitions = partitions


class Probe:
    """A request of Sluice's own that is in flight."""

    __slots__ = ("_answers", "api", "frame")

    def __init__(self, api: ApiVersion, frame: bytes, answers: ProbeResults) -> None:
        self.api = api
        self.frame = frame
        self._answers = answers

    def parse(self, frame: bytes | memoryview, _now_ms: int) -> Steps[ParsedResponse]:
        """Parse the response in steps; the client does not receive it."""
        if self.api.key == ApiKey.METADATA:
            yield from self._answers.take_sizes((yield from topic_sizes_in_steps(self.api, frame)))
        else:
            results = yield from topic_results_in_steps(self.api, frame)
            known = [entry.partitions for entry in results.entries if entry.partitions > 0]
            if known:
                self._answers.take_default(known[0])
        return ParsedResponse(b"")


def ask_sizes(
    topics: Sequence[TopicChange], client_id: bytes | None, answers: ProbeResults, metadata_max: int, pace: Pace, *, want_ids: bool
) -> Steps[Probe]:
    """Write a request for the sizes of topics.

    Args:
        metadata_max: the newest Metadata version that the broker certainly has.
        want_ids: whether the ids of the topics are needed, too.
    """
    answers.asked_sizes = True
    names = [topic.name for topic in topics if topic.name is not None]
    topic_ids = [topic.topic_id for topic in topics if topic.name is None]
    version = LOWEST_METADATA
    if want_ids:
        version = NEWEST_METADATA if metadata_max >= NEWEST_METADATA else IDS_ANSWERED_SINCE
    if topic_ids and version < ASKED_BY_ID_SINCE:
        frame = all_topic_sizes_request(version, CORRELATION_ID, client_id)  # brokers of 2.8 to 3.0 do not accept ids
    else:
        frame = yield from topic_sizes_request_in_steps(version, CORRELATION_ID, client_id, names, topic_ids, pace)
    return Probe(API_VERSIONS[ApiKey.METADATA << 16 | version], frame, answers)


def ask_default(names: list[str], client_id: bytes | None, answers: ProbeResults, pace: Pace) -> Steps[Probe]:
    """Write a request for the default number of partitions of these topics, a CreateTopics request that creates nothing."""
    answers.asked_default = True
    frame = yield from default_partitions_request(CORRELATION_ID, client_id, names, pace)
    return Probe(API_VERSIONS[ApiKey.CREATE_TOPICS << 16 | PROBE_VERSION], frame, answers)
