"""Creates topics directly at the brokers, through confluent-kafka's admin client."""

import itertools
import time
import uuid
from collections.abc import Mapping

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

READY_SECONDS = 30
_numbers = itertools.count(1)


def new_topic(
    bootstrap: str,
    name: str,
    *,
    partitions: int = 1,
    replicas: int = 1,
    assignment: list[list[int]] | None = None,
    config: Mapping[str, str] | None = None,
) -> str:
    """Create a topic with a new name that begins with `name`, and wait until its leaders serve it. Return the name.

    Args:
        assignment: node ids per partition; takes the place of `partitions` and `replicas`.
        config: settings of the topic.
    """
    topic = f"{name}-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    spread = {"replica_assignment": assignment} if assignment else {"replication_factor": replicas}
    count = len(assignment) if assignment else partitions
    admin.create_topics([NewTopic(topic, num_partitions=count, config=dict(config or {}), **spread)])[topic].result(READY_SECONDS)
    wait_for_leaders(admin, topic, count)
    deadline = time.monotonic() + READY_SECONDS
    while not _is_served(admin, topic, count):
        assert time.monotonic() < deadline, f"{topic} is not served"
        time.sleep(0.02)
    return topic


def wait_for_leaders(admin: AdminClient, topic: str, partitions: int) -> dict[int, int]:
    """Wait until each partition of a new topic has a leader: a broker learns of a topic some milliseconds after the controller made it.

    Return partition -> node id of its leader.
    """
    deadline = time.monotonic() + READY_SECONDS
    while len(known := leaders(admin, topic)) < partitions:
        assert time.monotonic() < deadline, f"{topic} has no leaders"
        time.sleep(0.02)
    return known


def _is_served(admin: AdminClient, topic: str, partitions: int) -> bool:
    """Whether all leaders know that they lead: for some milliseconds they do not, and records without acknowledgements would be lost."""
    try:
        for asked in admin.list_offsets({TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}).values():
            asked.result(READY_SECONDS)
    except KafkaException:
        return False
    return True


def leaders(admin: AdminClient, topic: str) -> dict[int, int]:
    """Return partition -> node id of its leader, for those that have one."""
    known = admin.list_topics(topic, timeout=10).topics[topic]
    return {number: partition.leader for number, partition in known.partitions.items() if partition.leader >= 0}


def topic_id(bootstrap: str, topic: str) -> uuid.UUID | None:
    """Return the id of a topic; None from a broker without topic ids."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_topics(TopicCollection([topic]))[topic].result(READY_SECONDS).topic_id
    number = (found.get_most_significant_bits() % 2**64) << 64 | found.get_least_significant_bits() % 2**64
    return uuid.UUID(int=number) if number else None
