"""The topic as a log with one writer at a time: an aiokafka reader of committed records, and a writer that fences others.

Compare-and-set on a log: all Sluices write with one transactional id. A Sluice that takes it over (InitProducerId) ends the transaction
of the holder before, whose later commits fail. So a holder that has read to the end since, and then commits, knows that no other Sluice
wrote in between.
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
"""Of a topic that is created, or as many as there are brokers."""
STOP_S: Final = 5.0
TRANSACTION_MS: Final = 30_000
WRITER: Final = "sluice-writer"
"""A header of each record."""

logging.getLogger("aiokafka").addHandler(logging.NullHandler())
logging.getLogger("aiokafka").propagate = False  # what it sees is reported as the store's state

Settings = Callable[[], dict[str, Any]]
"""How brokers are reached; asked for each client that is made, since secrets change."""


class Record(NamedTuple):
    """A committed record."""

    offset: int
    key: bytes | None
    value: bytes | None
    writer: bytes | None
    """Who wrote it, as they call themselves."""


class TopicProblem(Exception):
    """The topic cannot be used; the text has the problem and the remedy."""


class Truncated(Exception):
    """Records that were read are missing, other than by compaction."""


class Fenced(Exception):
    """Another Sluice writes: nothing of the transaction was committed."""


def problem_of(error: BaseException) -> str:
    """Return what an error of aiokafka says, in a few words."""
    if isinstance(error, (TopicAuthorizationFailedError, ClusterAuthorizationFailedError, TransactionalIdAuthorizationFailed)):
        return f"the brokers do not let Sluice ({type(error).__name__.removesuffix('Error')})"
    text = str(error).partition("\n")[0]
    return text or type(error).__name__


async def check_topic(settings: Settings, topic: str, *, create: bool, replication_factor: int | None) -> None:
    """See that the topic is there, has one partition and is compacted; create it where that is wanted.

    Raises:
        TopicProblem, KafkaError, OSError: it cannot be used.
    """
    admin = AIOKafkaAdminClient(**settings(), client_id=CLIENT_ID, request_timeout_ms=REQUEST_MS)
    try:
        await admin.start()
        (found,) = await admin.describe_topics([topic])
        if found["error_code"] == UnknownTopicOrPartitionError.errno:
            if not create:
                raise TopicProblem("is not there; create it with cleanup.policy=compact, or write create = true")
            await _create(admin, topic, replication_factor)
            return
        if found["error_code"]:
            raise TopicProblem(f"cannot be looked at (error {found['error_code']})")
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
        if code not in (0, TopicAlreadyExistsError.errno):  # another Sluice may have been faster
            raise TopicProblem(f"cannot be created (error {code}): {message}")


async def _cleanup_policy(admin: AIOKafkaAdminClient, topic: str) -> str | None:
    """Return the policy; None where Sluice may not see it."""
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
        """Begin where the log begins.

        Raises:
            KafkaError, OSError: it cannot be read.
        """
        await self._consumer.start()
        self._consumer.assign([self._partition])
        self._consumer.seek(self._partition, (await self._consumer.beginning_offsets([self._partition]))[self._partition])

    async def end(self) -> int:
        """Return where the log ends, as far as it is committed.

        Raises:
            KafkaError: no broker answered.
        """
        async with asyncio.timeout(2 * REQUEST_MS / 1_000):
            return int((await self._consumer.end_offsets([self._partition]))[self._partition])

    async def position(self) -> int:
        """Return where reading goes on."""
        return int(await self._consumer.position(self._partition))

    async def some(self) -> list[Record]:
        """Return the next records, or none after a moment.

        Raises:
            KafkaError: they cannot be read.
            Truncated: they are not there any more.
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
    """The only writer, from `start` until another one starts."""

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
        """Fence the writer before; what it had under way is committed or gone then.

        Raises:
            KafkaError, OSError: it cannot be done.
        """
        await self._producer.start()

    async def write(self, records: Sequence[tuple[bytes, bytes | None]], name: bytes) -> int:
        """Commit records, all or none, each with the name of who wrote it, and return the offset of the last.

        Raises:
            Fenced: nothing was committed.
            KafkaError, TimeoutError: the outcome is unknown until the next writer started.
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
        """Let go; what was begun is not committed."""
        await _ended(self._producer)


async def _ended(client: Any) -> None:
    with contextlib.suppress(KafkaError, OSError, TimeoutError):
        async with asyncio.timeout(STOP_S):
            await client.stop()
