"""Reads and writes requests and answers about topics at once; the proxy does it in steps."""

from collections.abc import Sequence

from protocol.api_keys import ApiVersion
from protocol.messages.topic_changes import TopicChanges, topic_changes_in_steps
from protocol.messages.topic_results import TopicResults, insert_in_steps, topic_results_in_steps
from protocol.messages.topic_sizes import TopicSize, topic_sizes_in_steps, topic_sizes_request_in_steps
from protocol.primitives import Buffer
from protocol.steps import Pace, finished


def read_topic_changes(api: ApiVersion, frame: Buffer, body_at: int) -> TopicChanges:
    """Read the request `frame` whose body begins at `body_at`."""
    return finished(topic_changes_in_steps(api, frame, body_at))


def read_topic_results(api: ApiVersion, frame: Buffer) -> TopicResults:
    """Read an answer about changes of topics."""
    return finished(topic_results_in_steps(api, frame))


def insert_results(
    api: ApiVersion, frame: bytes | memoryview, results: TopicResults, inserted: Sequence[tuple[int, bytes]]
) -> bytes | memoryview:
    """Return the answer with additional entries."""
    return finished(insert_in_steps(api, frame, results, inserted))


def topic_sizes_request(
    version: int, correlation_id: int, client_id: bytes | None, names: Sequence[str], topic_ids: Sequence[bytes] = ()
) -> bytes:
    """Write a Metadata request v4-v13 for these topics."""
    return finished(topic_sizes_request_in_steps(version, correlation_id, client_id, names, topic_ids, Pace()))


def read_topic_sizes(api: ApiVersion, frame: Buffer) -> tuple[TopicSize, ...]:
    """Read the topics of a Metadata answer."""
    return finished(topic_sizes_in_steps(api, frame))
