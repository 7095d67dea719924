"""The topic as a log with one writer at a time: an aiokafka reader of committed records, and a writer that fences the others.

Compare-and-set on a log: all Sluices write with one transactional id. InitProducerId of a Sluice aborts the transaction of the previous
holder of the id, and later commits of that holder fail. So if a holder reads to the end of the log after InitProducerId and then commits,
no other Sluice has written in between.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

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
    for_code,
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
DENIALS: Final = (TopicAuthorizationFailedError, ClusterAuthorizationFailedError, TransactionalIdAuthorizationFailed)
"""Errors of brokers that do not permit a request."""

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
    if isinstance(error, DENIALS):
        return f"the brokers deny Sluice ({type(error).__name__.removesuffix('Error')})"
    text = str(error).partition("\n")[0]
    return text or type(error).__name__


async def check_topic(settings: Settings, topic: str, *, create: bool, replication_factor: int | None) -> None:
    """Check that the topic exists, has one partition and is compacted; with `create`, create a missing topic.

    Raises:
        TopicProblem, KafkaError, OSError: the topic cannot be used.
    """
    async with TopicAdmin(settings, CLIENT_ID, REQUEST_MS) as admin:
        partitions = await admin.partitions(topic)
        if not partitions:
            if not create:
                raise TopicProblem("does not exist; create it with cleanup.policy=compact, or write create = true")
            await admin.create(topic, replication_factor, {"cleanup.policy": "compact"})
            return
        if partitions != 1:
            raise TopicProblem(f"has {partitions} partitions; name a topic with one")
        policy = (await admin.configs(topic)).get("cleanup.policy", "compact")
        if policy != "compact":
            raise TopicProblem(f"has cleanup.policy={policy}, which would lose quotas; set cleanup.policy=compact")


class TopicAdmin:
    """A client that examines and creates topics with one partition; a context manager."""

    def __init__(self, settings: Settings, client_id: str, request_ms: int) -> None:
        self._client = AIOKafkaAdminClient(**settings(), client_id=client_id, request_timeout_ms=request_ms)

    async def __aenter__(self) -> Self:
        try:
            await self._client.start()
        except BaseException:
            await self._client.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._client.close()

    async def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic; 0: it does not exist.

        Raises:
            TopicProblem, KafkaError: the brokers do not describe it.
        """
        (found,) = await self._client.describe_topics([topic])
        code = found["error_code"]
        if code == UnknownTopicOrPartitionError.errno:
            return 0
        if code:
            raise _refusal(code, f"cannot be described (error {code})")
        return len(found["partitions"])

    async def configs(self, topic: str) -> dict[str, str]:
        """Return the settings of a topic; an empty dict: Sluice is not authorized to read them."""
        (answer,) = await self._client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        code, _, _, _, entries = answer.resources[0]
        return {entry[0]: str(entry[1]) for entry in entries} if not code else {}

    async def replicas(self) -> int:
        """Return the replication factor of a created topic: `REPLICAS`, or the number of brokers if it is lower."""
        return min(REPLICAS, len((await self._client.describe_cluster())["brokers"]))

    async def create(self, topic: str, replication_factor: int | None, configs: Mapping[str, str]) -> None:
        """Create a topic with one partition, unless another Sluice has created it meanwhile.

        Raises:
            TopicProblem, KafkaError: the brokers do not create it.
        """
        replicas = replication_factor or await self.replicas()
        answer = await self._client.create_topics([NewTopic(topic, 1, replicas, topic_configs=dict(configs))])
        for _, code, message in answer.topic_errors:
            if code not in (0, TopicAlreadyExistsError.errno):
                raise _refusal(code, f"cannot be created (error {code}): {message}")


def _refusal(code: int, problem: str) -> Exception:
    """Return the exception for an error code of a broker."""
    kind = for_code(code)
    return kind() if issubclass(kind, DENIALS) else TopicProblem(problem)


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


async def stop_client(client: Any) -> None:
    """Stop a producer or consumer of aiokafka without a time limit. Errors of the brokers do not matter any more."""
    try:
        await client.stop()
    except (KafkaError, OSError, TimeoutError):
        pass
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # a consumer awaits its fetch, which it has cancelled; if that waited for its next try, `stop` ends here and leaves connections
        await client._client.close()


async def _ended(client: Any) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_S):
            await stop_client(client)
