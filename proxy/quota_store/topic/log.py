"""The topic as a log with one writer at a time: an aiokafka reader of committed records, and a writer that fences the others.

Compare-and-set on a log: all Sluices write with one transactional id. InitProducerId of a Sluice aborts the transaction of the previous
holder of the id, and later commits of that holder fail. So if a holder reads to the end of the log after InitProducerId and then commits,
no other Sluice has written in between.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    InvalidProducerEpoch,
    KafkaError,
    OffsetOutOfRangeError,
    ProducerFenced,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartitionError,
)

CLIENT_ID: Final = "sluice-quotas"
REQUEST_MS: Final = 5_000
POLL_MS: Final = 200
REPLICAS: Final = 3
"""Replication factor of a created topic, or the number of brokers if it is lower."""
STOP_S: Final = 5.0
TRANSACTION_MS: Final = 30_000
WRITER: Final = "sluice-writer"
"""A header of each record."""

logging.getLogger("aiokafka").addHandler(logging.NullHandler())
logging.getLogger("aiokafka").propagate = False  # its problems are reported as the store's state

Settings = Callable[[], dict[str, Any]]
"""Returns the settings of a connection to the brokers; called for each new client, since secrets change."""


class Record(NamedTuple):
    """A committed record of the topic."""

    offset: int
    key: bytes | None
    value: bytes | None
    writer: bytes | None
    """Name of the writer, from a header of the record."""


class TopicProblem(Exception):
    """The topic cannot be used; the text has problem and remedy."""


class Truncated(Exception):
    """Records that were read have disappeared, and not by compaction."""


class Fenced(Exception):
    """Another Sluice has taken over the transactional id; nothing of the transaction was committed."""


def problem_of(error: BaseException) -> str:
    """Return a short description of an error of aiokafka."""
    if isinstance(error, (TopicAuthorizationFailedError, ClusterAuthorizationFailedError, TransactionalIdAuthorizationFailed)):
        return f"the brokers deny Sluice ({type(error).__name__.removesuffix('Error')})"
    text = str(error).partition("\n")[0]
    return text or type(error).__name__


async def check_topic(settings: Settings, topic: str, *, create: bool, replication_factor: int | None) -> None:
    """Check that the topic exists, has one partition and is compacted; with `create`, create a missing topic.

    Raises:
        TopicProblem, KafkaError, OSError: the topic cannot be used.
    """
    admin = AIOKafkaAdminClient(**settings(), client_id=CLIENT_ID, request_timeout_ms=REQUEST_MS)
    try:
        await admin.start()
        (found,) = await admin.describe_topics([topic])
        if found["error_code"] == UnknownTopicOrPartitionError.errno:
            if not create:
                raise TopicProblem("does not exist; create it with cleanup.policy=compact, or write create = true")
            await _create(admin, topic, replication_factor)
            return
        if found["error_code"]:
            raise TopicProblem(f"cannot be described (error {found['error_code']})")
        if len(found["partitions"]) != 1:
            raise TopicProblem(f"has {len(found['partitions'])} partitions; name a topic with one")
        policy = await _cleanup_policy(admin, topic)
        if policy is not None and policy != "compact":
            raise TopicProblem(f"has cleanup.policy={policy}, which would lose quotas; set cleanup.policy=compact")
    finally:
        await admin.close()


async def _create(admin: AIOKafkaAdminClient, topic: str, replication_factor: int | None) -> None:
    if replication_factor is None:
        replication_factor = min(REPLICAS, len((await admin.describe_cluster())["brokers"]))
    answer = await admin.create_topics([NewTopic(topic, 1, replication_factor, topic_configs={"cleanup.policy": "compact"})])
    for _, code, message in answer.topic_errors:
        if code not in (0, TopicAlreadyExistsError.errno):  # another Sluice may have created it
            raise TopicProblem(f"cannot be created (error {code}): {message}")


async def _cleanup_policy(admin: AIOKafkaAdminClient, topic: str) -> str | None:
    """Return the cleanup policy; None: Sluice is not authorized to read it."""
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    code, _, _, _, entries = answer.resources[0]
    return next((str(entry[1]) for entry in entries if entry[0] == "cleanup.policy"), None) if not code else None


class TopicReader:
    """Reads committed records in the order of the log."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._partition = TopicPartition(topic, 0)
        self._consumer = AIOKafkaConsumer(
            **settings(),
            client_id=CLIENT_ID,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            request_timeout_ms=REQUEST_MS,
            fetch_max_wait_ms=POLL_MS,
        )

    async def start(self) -> None:
        """Connect, and start to read at the beginning of the log.

        Raises:
            KafkaError, OSError: the topic cannot be read.
        """
        await self._consumer.start()
        self._consumer.assign([self._partition])
        self._consumer.seek(self._partition, (await self._consumer.beginning_offsets([self._partition]))[self._partition])

    async def end(self) -> int:
        """Return the end offset of the committed log.

        Raises:
            KafkaError: no broker responded.
        """
        async with asyncio.timeout(2 * REQUEST_MS / 1_000):
            return int((await self._consumer.end_offsets([self._partition]))[self._partition])

    async def position(self) -> int:
        """Return the offset of the next record to read."""
        return int(await self._consumer.position(self._partition))

    async def some(self) -> list[Record]:
        """Return the next records; an empty list if none arrive within a short time.

        Raises:
            KafkaError: the records cannot be read.
            Truncated: the offset to read is no longer in the log.
        """
        try:
            found = await self._consumer.getmany(timeout_ms=POLL_MS)
        except OffsetOutOfRangeError:
            raise Truncated from None
        return [Record(one.offset, one.key, one.value, dict(one.headers).get(WRITER)) for some in found.values() for one in some]

    async def stop(self) -> None:
        """Let go."""
        await _ended(self._consumer)


class TopicWriter:
    """A transactional writer; it is the only one from its `start` until another one starts."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._topic = topic
        self._producer = AIOKafkaProducer(
            **settings(),
            client_id=CLIENT_ID,
            transactional_id=f"sluice-quotas-{topic}",
            transaction_timeout_ms=TRANSACTION_MS,
            request_timeout_ms=REQUEST_MS,
            max_request_size=1_000_000,
        )

    async def start(self) -> None:
        """Fence the previous writer; its open transaction is committed or aborted when this returns.

        Raises:
            KafkaError, OSError: the writer cannot start.
        """
        await self._producer.start()

    async def write(self, records: Sequence[tuple[bytes, bytes | None]], name: bytes) -> int:
        """Commit records in one transaction, each with the writer's name as a header; return the offset of the last record.

        Raises:
            Fenced: nothing was committed.
            KafkaError, TimeoutError: the outcome is unknown until the next writer has started.
        """
        try:
            await self._producer.begin_transaction()
            sent = [await self._producer.send(self._topic, value, key=key, partition=0, headers=[(WRITER, name)]) for key, value in records]
            last = await asyncio.gather(*sent)
            await self._producer.commit_transaction()
        except (ProducerFenced, InvalidProducerEpoch):
            raise Fenced from None
        return int(last[-1].offset)

    async def stop(self) -> None:
        """Close the connection; an open transaction is not committed."""
        await _ended(self._producer)


async def _ended(client: Any) -> None:
    with contextlib.suppress(KafkaError, OSError, TimeoutError):
        async with asyncio.timeout(STOP_S):
            await client.stop()
