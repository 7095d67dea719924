"""The bus over a Kafka topic with one partition, whose leader gives each message a position and a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NodeNotReadyError,
    NotLeaderForPartitionError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)

from proxy.fleet.bus.bus import BusError, Received, Sent
from proxy.fleet.bus.topic_needs import CONFIGS, Commands, unsuitable
from proxy.fleet.bus.topic_reader import TopicReader
from proxy.quota_store.topic.log import DENIALS, Settings, TopicAdmin, problem_of, stop_client

CLIENT_ID: Final = "sluice-fleet"
REQUEST_MS: Final = 3_000
"""Time limit of a request, and of the retries of a message that the leader has not accepted."""
START_S: Final = 10.0
SEND_S: Final = 5.0
STOP_S: Final = 4.0
_CREATE_TIME: Final = 0
"""Timestamp type of a message that has the time of its producer."""
_SILENCE: Final = (TimeoutError, KafkaTimeoutError, NodeNotReadyError, RequestTimedOutError)
_NO_LEADER: Final = (LeaderNotAvailableError, NotLeaderForPartitionError, UnknownTopicOrPartitionError)


class TopicBus:
    """One member's connection to the bus in a topic; see `Bus`.

    Args:
        settings: returns the arguments of connections to the brokers.
        topic: name of the topic.
        create: whether a missing topic is created.
        replication_factor: of a created topic; None: 3, or the number of brokers if it is lower.
    """

    def __init__(self, settings: Settings, topic: str, *, create: bool, replication_factor: int | None) -> None:
        self.name = f"topic:{topic}"
        self._settings = settings
        self._topic = topic
        self._create = create
        self._replication_factor = replication_factor
        self._commands: Commands | None = None
        self._producer: AIOKafkaProducer | None = None
        self._reader: TopicReader | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Check or create the topic, and connect. An existing topic is used unchecked where Sluice may not read its settings.

        Raises:
            BusError: the topic is missing or unsuitable, or the brokers deny something or do not respond.
        """
        assert self._producer is None, "started twice"
        try:
            async with self._limited(START_S):
                await self._connect()
        except BaseException:
            await self.stop()
            raise

    async def send(self, data: bytes) -> Sent:
        """Send one message; the result is that of the leader, which does not wait for its followers.

        Raises:
            BusError: the leader did not accept it, or the outcome is unknown.
        """
        if self._producer is None:
            raise BusError("is not started")
        async with self._limited(SEND_S):
            sent = await self._producer.send_and_wait(self._topic, data, partition=0)
        if sent.timestamp_type == _CREATE_TIME:
            raise BusError(self._remedy({"message.timestamp.type": "CreateTime"}))
        return Sent(sent.offset, sent.timestamp)

    async def read_from(self, time_ms: int) -> int:
        """Let `receive` continue at the first message of this time or later, or at the end of the log; return the position.

        Raises:
            BusError: the brokers do not respond.
        """
        if self._reader is None:
            raise BusError("is not started")
        async with self._limited(None):
            return await self._reader.read_from(time_ms)

    async def receive(self) -> Sequence[Received]:
        """Return the next messages, at least one.

        Raises:
            BusError: messages were lost, which stays so until `read_from`; or the topic cannot be read now.
        """
        if self._reader is None:
            raise BusError("is not started")
        async with self._limited(None):
            return await self._reader.receive()

    async def stop(self) -> None:
        """Disconnect within `STOP_S`; clients that need longer, because brokers do not respond, end by themselves."""
        producer, reader, self._producer, self._reader = self._producer, self._reader, None, None
        if producer is not None:
            self._end(asyncio.ensure_future(_abandon(producer)))
        if reader is not None:
            self._end(asyncio.ensure_future(reader.stop()))
        if self._ending:
            await asyncio.wait(set(self._ending), timeout=STOP_S)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _connect(self) -> None:
        self._commands = Commands(self._settings(), self._topic)
        await self._check()
        clients = {**self._settings(), "client_id": CLIENT_ID, "request_timeout_ms": REQUEST_MS}
        self._producer = AIOKafkaProducer(**clients, acks=1, linger_ms=0)
        await self._producer.start()
        self._reader = TopicReader(clients, self._topic)
        await self._reader.start()

    async def _check(self) -> None:
        async with TopicAdmin(self._settings, CLIENT_ID, REQUEST_MS) as admin:
            partitions = await admin.partitions(self._topic)
            if partitions == 0:
                await self._make(admin)
            elif partitions != 1:
                raise BusError(f"has {partitions} partitions, and they cannot be removed; name a topic with one, or delete this one")
            elif wrong := unsuitable(await admin.configs(self._topic)):
                raise BusError(self._remedy(wrong))

    async def _make(self, admin: TopicAdmin) -> None:
        if self._create:
            await admin.create(self._topic, self._replication_factor, CONFIGS)
            return
        assert self._commands is not None
        replicas = self._replication_factor or await admin.replicas()
        raise BusError(f"does not exist; write create = true, or run: {self._commands.create(replicas)}")

    def _remedy(self, wrong: dict[str, str]) -> str:
        assert self._commands is not None
        return f"has {', '.join(f'{name}={value}' for name, value in wrong.items())}; run: {self._commands.alter(wrong)}"

    @contextlib.asynccontextmanager
    async def _limited(self, limit_s: float | None) -> AsyncIterator[None]:
        """Limit the time of a block, and turn each of its errors into a BusError."""
        try:
            async with asyncio.timeout(limit_s):
                yield
        except BusError:
            raise
        except Exception as error:  # aiokafka raises also errors of other types
            raise BusError(self._problem(error)) from error

    def _problem(self, error: Exception) -> str:
        if isinstance(error, DENIALS) and self._commands is not None:
            command = self._commands.allow(create=self._create)
            return f"{problem_of(error)}; put Sluice's principal in the place of NAME and run: {command}"
        if isinstance(error, _SILENCE):
            return "the brokers do not respond"
        if isinstance(error, _NO_LEADER):
            return "the topic has no leader now, or was deleted"
        return problem_of(error)


async def _abandon(producer: AIOKafkaProducer) -> None:
    """Disconnect without sending what the leader has not accepted: after a newer message, the other members take it for a replay."""
    if producer._sender is not None:
        await producer._sender.close()
    await stop_client(producer)
