"""The number of mutations of a topic in a request: one for each partition that is created or deleted.

A topic that fails before KRaft's controller charges it costs nothing. The functions here use the request itself and the sizes of topics;
the rest depends on the response (`answered_permits`). Source: Kafka 4.3 `ReplicationControlManager`, `ControllerApis`.
"""

from __future__ import annotations

import re
from collections import Counter

from protocol.api_keys import ApiKey, ApiVersion
from protocol.messages.topic_changes import NO_ID, TopicChange, TopicChanges
from protocol.messages.topic_results import TopicResult
from protocol.messages.topic_sizes import TopicSize
from protocol.steps import Pace, Steps

REQUEST_TIMED_OUT = 7
INVALID_REPLICATION_FACTOR = 38
INVALID_REPLICA_ASSIGNMENT = 39
STRICT_SINCE = {int(ApiKey.CREATE_TOPICS): 6, int(ApiKey.DELETE_TOPICS): 5, int(ApiKey.CREATE_PARTITIONS): 3}

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")
_CONTROLLERS_OWN = "__cluster_metadata"


def is_strict(api: ApiVersion) -> bool:
    """Whether this version has the error for a refused topic; clients with older ones are throttled afterwards."""
    return api.version >= STRICT_SINCE[api.key]


def sound_places(api: ApiVersion, changes: TopicChanges, pace: Pace) -> Steps[list[int]]:
    """Return the indexes of the topics that are valid by the request itself; the others cost nothing."""
    names: Counter[str] = Counter()
    topic_ids: Counter[bytes] = Counter()
    for topic in changes.topics:
        if topic.name is not None:
            names[topic.name] += 1
        else:
            topic_ids[topic.topic_id] += 1
        if pace.due():
            yield
    sound: list[int] = []
    for place, topic in enumerate(changes.topics):
        if (names[topic.name] if topic.name is not None else topic_ids[topic.topic_id]) == 1 and _is_sound(api, topic):
            sound.append(place)
        if pace.due():
            yield
    return sound


def permits_of(api: ApiVersion, topic: TopicChange, size: TopicSize | None, default_partitions: int) -> int:
    """Return the mutations of a valid topic.

    Args:
        size: the known size. A topic that does not exist cannot be changed, one that exists cannot be created.
        default_partitions: the number of partitions when the request does not specify it.
    """
    exists = size is not None and size.partitions > 0
    if api.key == ApiKey.CREATE_TOPICS:
        if exists:
            return 0
        return topic.assignments if topic.assignments > 0 else topic.partitions if topic.partitions > 0 else default_partitions
    if size is None or not exists:
        return 0
    if api.key == ApiKey.DELETE_TOPICS:
        return size.partitions
    more = topic.partitions - size.partitions
    return 0 if more <= 0 or topic.assignments not in (-1, more) else more


def answered_permits(api: ApiVersion, result: TopicResult, permits: int) -> int:
    """Return the mutations of a topic by its result, when `permits` was the estimate: a success costs at least one."""
    if result.error_code == 0:
        return result.partitions if result.partitions > 0 else max(1, permits)
    if result.error_code == REQUEST_TIMED_OUT:
        return permits  # the controller continues with it
    late = api.key == ApiKey.CREATE_PARTITIONS and result.error_code in (INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT)
    return permits if late else 0


def _is_sound(api: ApiVersion, topic: TopicChange) -> bool:
    if api.key == ApiKey.DELETE_TOPICS:
        return (topic.name is None) == (topic.topic_id != NO_ID)
    if api.key == ApiKey.CREATE_PARTITIONS:
        return topic.partitions > 0
    if topic.name is None or not _LEGAL_NAME.match(topic.name) or topic.name in (".", "..", _CONTROLLERS_OWN):
        return False
    if topic.assignments > 0:
        return topic.partitions == -1 and topic.replication_factor == -1
    return (topic.partitions == -1 or topic.partitions > 0) and (topic.replication_factor == -1 or topic.replication_factor > 0)
