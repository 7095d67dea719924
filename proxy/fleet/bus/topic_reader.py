"""Reads a topic with one partition without a consumer group, and notices when nothing can be read any more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import ConsumerStoppedError, OffsetOutOfRangeError

from proxy.fleet.bus.bus import BusError, Received
from proxy.quota_store.topic.log import stop_client

WAIT_MS: Final = 500
"""Maximum time that the brokers hold a fetch without messages; `receive` looks for problems this often."""
POLL_INTERVAL_S: Final = 2.0
"""Interval of requests for the end of the log: aiokafka repeats a fetch that fails for ever, and reports nothing."""
READ_S: Final = 5.0
"""Time limit of requests for positions."""
IDLE_POLLS_MAX: Final = 2
"""Number of polls without a message, although the log has some, after which fetches count as failed."""
ABSENCES_MAX: Final = 2
"""Number of looks in a row that find no topic, after which it counts as deleted. A broker that has just started may not know it yet."""
LOOK_AGAIN_MS: Final = 200
"""Time between two such looks. aiokafka asks for the topic meanwhile, since it knows no leader."""
LOST: Final = "messages were lost: the topic was deleted or made anew, or messages were deleted before this member read them"


class TopicReader:
    """Reads messages in the order of the log.

    A topic that is deleted is noticed within about a second, because fetches fail and the brokers do not know it. A topic that is made anew
    is noticed because it ends before the position of this reader. If it has grown past that position by the time of the next fetch or poll,
    nothing is noticed.

    Args:
        settings: arguments of a client of the brokers.
        topic: name of the topic.
    """

    def __init__(self, settings: dict[str, Any], topic: str) -> None:
        self._partition = TopicPartition(topic, 0)
        self._consumer = AIOKafkaConsumer(
            **settings,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_min_bytes=1,
            fetch_max_wait_ms=WAIT_MS,
        )
        self._polling: asyncio.Task[None] | None = None
        self._position = 0  # of the next message
        self._polled = (0, 0)  # position and end of the log at the last poll
        self._idle_polls = 0
        self._absences = 0
        self._is_receiving = False
        self._is_lost = False
        self._problem: Exception | None = None

    async def start(self) -> None:
        """Connect, and continue at the end of the log.

        Raises:
            KafkaError, OSError: the topic cannot be read.
        """
        await self._consumer.start()
        self._continue_at(await self._end())
        self._polling = asyncio.ensure_future(self._poll_forever())

    async def read_from(self, time_ms: int) -> int:
        """Continue at the first message of this time or later, or at the end of the log; return the position.

        Raises:
            KafkaError, TimeoutError: no broker responded.
        """
        async with asyncio.timeout(READ_S):
            end = await self._end()  # requested first: a message that arrives before the next request is found by its time
            found = (await self._consumer.offsets_for_times({self._partition: time_ms}))[self._partition]
        self._continue_at(end if found is None else found.offset)
        return self._position

    async def receive(self) -> Sequence[Received]:
        """Return the next messages, at least one.

        Raises:
            BusError: messages were lost; this stays so until `read_from`.
            Exception: the topic cannot be read now.
        """
        self._is_receiving = True
        try:
            while True:
                self._raise_problem()
                if messages := await self._fetched():
                    self._position, self._absences = messages[-1].position + 1, 0
                    return messages
                self._look_for_topic()
        finally:
            self._is_receiving = False

    async def stop(self) -> None:
        """Disconnect."""
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
        await stop_client(self._consumer)

    async def _end(self) -> int:
        return int((await self._consumer.end_offsets([self._partition]))[self._partition])

    def _continue_at(self, position: int) -> None:
        self._position, self._is_lost, self._problem, self._idle_polls, self._absences = position, False, None, 0, 0
        if self._consumer.assignment():
            self._consumer.seek(self._partition, position)

    def _raise_problem(self) -> None:
        """Report a loss until `read_from`, and any other problem once for each poll that finds it."""
        problem, self._problem = self._problem, None
        if self._is_lost:
            raise BusError(LOST)
        if problem is not None:
            raise problem

    async def _fetched(self) -> Sequence[Received]:
        """Return the next messages; none: they did not arrive within `WAIT_MS`, or there is a problem.

        Between two calls nothing is fetched: aiokafka would fetch the first message that arrives, and the rest only after it was taken.
        """
        if not self._consumer.assignment():  # not earlier: the brokers respond to `read_from` after a fetch that waits
            self._consumer.assign([self._partition])
            self._consumer.seek(self._partition, self._position)
        self._consumer.resume(self._partition)
        try:
            found = await self._consumer.getmany(timeout_ms=LOOK_AGAIN_MS if self._absences else WAIT_MS)
        except OffsetOutOfRangeError:
            self._is_lost = True
            return ()
        except ConsumerStoppedError:
            raise BusError("was stopped") from None
        if found:
            self._consumer.pause(self._partition)
        return [Received(one.offset, one.timestamp, one.value) for one in found.get(self._partition, ())]

    def _look_for_topic(self) -> None:
        """Note a loss if the brokers do not know the topic. This sends no request: aiokafka asks them after each fetch that fails."""
        exists = bool(self._consumer.partitions_for_topic(self._partition.topic))
        self._absences = 0 if exists else self._absences + 1
        self._is_lost = self._is_lost or self._absences >= ABSENCES_MAX

    async def _poll_forever(self) -> None:
        while True:
            await asyncio.sleep(POLL_INTERVAL_S)
            try:
                async with asyncio.timeout(READ_S):
                    await self._poll()
            except Exception as error:  # noqa: BLE001 - aiokafka raises also errors of other types; `receive` raises it
                self._problem = error

    async def _poll(self) -> None:
        """Compare the position with the end of the log, which shows also that a broker responds.

        Raises:
            BusError: fetches fail.
            KafkaError: no broker responded.
        """
        position, (position_before, end_before) = self._position, self._polled
        end = await self._end()
        self._polled = position, end
        self._is_lost = self._is_lost or end < min(position, self._position)  # messages may have arrived meanwhile
        is_idle = self._is_receiving and self._position == position == position_before < end_before
        self._idle_polls = self._idle_polls + 1 if is_idle else 0
        if self._idle_polls >= IDLE_POLLS_MAX:
            raise BusError("the topic has messages that fetches do not return")
