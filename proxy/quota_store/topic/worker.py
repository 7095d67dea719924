"""The thread that reads and writes the topic, with its own event loop."""

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from aiokafka.errors import KafkaError

from proxy.config.sections.credentials import CredentialsError
from proxy.quota_store.remote import Answered, Judge, StoreState, Worker
from proxy.quota_store.store import Origin, StoreUnavailable
from proxy.quota_store.topic.contention import Contention
from proxy.quota_store.topic.log import Fenced, Settings, TopicProblem, TopicReader, TopicWriter, Truncated, check_topic, problem_of
from proxy.quota_store.topic.records import TopicState, records_of

RETRY_S: Final = 1.0
POLL_INTERVAL_S: Final = 5.0
"""Interval of requests for the end of the log, since a reader without new records could be disconnected."""
COMMIT_S: Final = 20.0
SHORTER_TRIES: Final = 10
"""Number of retries, since a broker that has just restarted may not know the committed end of its log yet."""
READY_S: Final = 5.0
"""Time limit for the thread to start; it protects against a hang."""
_FAILURES: Final = (KafkaError, OSError, TimeoutError, CredentialsError)


class TopicWorker:
    """Reads the topic until it is stopped, and writes on request.

    Args:
        settings: returns the settings of connections to the brokers.
        topic: name of the topic.
        place: name of the store in messages.
        on_state: called with each new state, on the thread.
        create, replication_factor: as of `TopicStore`.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        place: str,
        on_state: Callable[[Worker, StoreState], None],
        *,
        create: bool,
        replication_factor: int | None,
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._place = place
        self._on_state = on_state
        self._create = create
        self._replication_factor = replication_factor
        self._state = TopicState()
        self._offset = 0  # all earlier offsets are read
        self._name = secrets.token_bytes(8)
        self._number = 0  # of the last write
        self._read_number = -1  # of the last write that was read back
        self._reader: TopicReader | None = None
        self._writer: TopicWriter | None = None
        self._whole = False
        self._truncated = False
        self._shorter = 0
        self._arrived = asyncio.Condition()
        self._asked: asyncio.Queue[tuple[Judge, Answered]] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None
        self._polls: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="sluice-topic", daemon=True)

    # --- from any thread

    def start(self) -> None:
        """Start the thread, which reads the topic."""
        self._thread.start()

    def stop(self) -> None:
        """Request the end of the thread, without waiting."""
        self._call(lambda: self._main.cancel() if self._main is not None else None)

    def alter(self, decide: Judge, answered: Answered) -> None:
        """Make the changes of `decide`; `answered` is called on the thread."""
        self._call(lambda: self._asked.put_nowait((decide, answered)))

    def poll(self, done: Callable[[], None]) -> None:
        """Read to the end of the log now; after a truncation, accept the topic as it is. `done` is called on the thread."""

        async def read() -> None:
            if self._truncated:
                self._truncated, self._state, self._offset = False, TopicState(), 0
                await self._let_go()
            with contextlib.suppress(*_FAILURES, Truncated):
                async with asyncio.timeout(POLL_INTERVAL_S):
                    while self._reader is None or not self._whole:  # noqa: ASYNC110 - the next try sets it
                        await asyncio.sleep(0.02)
                    await self._until(await self._reader.end())
            done()

        self._call(lambda: self._keep(asyncio.ensure_future(read())))

    def _call(self, function: Callable[[], Any]) -> None:
        if self._thread.is_alive() and self._ready.wait(READY_S) and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(function)

    # --- on the thread

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        # aiokafka does not await its failed futures; their failures are reported as the store's state
        self._loop.set_exception_handler(lambda _loop, _context: None)
        self._main = asyncio.ensure_future(self._serve())
        self._ready.set()
        with contextlib.suppress(asyncio.CancelledError):
            await self._main

    def _keep(self, task: "asyncio.Task[None]") -> None:
        self._polls.add(task)
        task.add_done_callback(self._polls.discard)

    async def _serve(self) -> None:
        altering = asyncio.ensure_future(self._alter_forever())
        try:
            while True:
                await self._follow()
                await asyncio.sleep(RETRY_S)
        finally:
            altering.cancel()
            await asyncio.gather(altering, *self._polls, return_exceptions=True)
            if self._writer is not None:
                await self._writer.stop()
            await self._let_go()

    async def _follow(self) -> None:
        """Read until a problem occurs, and report the problem."""
        try:
            await check_topic(self._settings, self._topic, create=self._create, replication_factor=self._replication_factor)
            reader = TopicReader(self._settings, self._topic)
            try:
                await reader.start()
                await self._catch_up(reader)
                self._reader = reader
                await self._read_on(reader)
            finally:
                self._whole = False
                await self._let_go(reader)
        except Truncated:
            self._shorter += 1
            self._truncated = self._truncated or self._shorter >= SHORTER_TRIES
            self._report("outside", self._truncation())
        except TopicProblem as problem:
            self._report("outside", f"{self._place}: {problem}")
        except Exception as error:  # noqa: BLE001 - aiokafka raises also errors of other types; the next try may succeed
            self._report("outside", f"{self._place}: {problem_of(error)}; the last quotas that were read apply until it responds")

    def _truncation(self) -> str:
        return (
            f"{self._place}: is shorter than it was, or made anew; the last quotas that were read apply: "
            "write them again, or take the topic as it is by SIGHUP"
        )

    async def _catch_up(self, reader: TopicReader) -> None:
        """Read to the current end of the log before content is reported, since a part of the log is no valid content."""
        end = await reader.end()
        if end < self._offset and not self._truncated:
            raise Truncated
        state = TopicState(self._state, merged=self._truncated)
        while await reader.position() < end:
            for record in await reader.some():
                state.apply(*record[:3])
        self._state, self._offset, self._shorter = state, await reader.position(), 0
        self._whole = True
        self._report("outside")

    async def _read_on(self, reader: TopicReader) -> None:
        beat = asyncio.ensure_future(self._beat(reader))
        try:
            while not beat.done():
                await self._take(reader)
            beat.result()
        finally:
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)

    async def _beat(self, reader: TopicReader) -> None:
        while True:
            await asyncio.sleep(POLL_INTERVAL_S)
            if await reader.end() < await reader.position():
                raise Truncated
            self._report("outside")

    async def _take(self, reader: TopicReader) -> None:
        """Read the next records. Records of other writers are reported before later records of this one."""
        origins: list[Origin] = []
        for record in await reader.some():
            origin: Origin = "outside"
            if record.writer is not None and record.writer.startswith(self._name):
                origin = "own"
                self._read_number = int.from_bytes(record.writer.removeprefix(self._name))
            if origins and origins[-1] != origin:
                self._report(origins[-1])
            self._state.apply(*record[:3])
            origins.append(origin)
        if origins:
            self._report(origins[-1])
        self._offset = await reader.position()
        async with self._arrived:
            self._arrived.notify_all()

    async def _let_go(self, reader: TopicReader | None = None) -> None:
        reader = reader or self._reader
        if reader is self._reader:
            self._reader = None
        if reader is not None:
            await reader.stop()

    def _report(self, origin: Origin, error: str | None = None) -> None:
        if error is None and self._truncated:
            error = self._truncation()
        self._on_state(self, StoreState(self._state.content(), origin, error, self._state.rejected, self._state.problems))

    # --- changes

    async def _alter_forever(self) -> None:
        while True:
            decide, answered = await self._asked.get()
            answer, problem = None, None
            try:
                answer = await self._altered(decide)
            except Exception as error:  # noqa: BLE001 - an error of `decide`, or StoreUnavailable: the caller gets it
                problem = error
            answered(answer, problem)

    async def _altered(self, decide: Judge) -> Any:
        contention = Contention(self._place, self._time_s())
        while True:
            contention.begin(self._time_s())
            if not self._whole or self._truncated:
                raise StoreUnavailable(f"{self._place}: does not answer, or has changed; see /readyz, nothing was changed")
            writer = await self._writing()
            answer, changes = decide(self._state.content())
            records = records_of(self._state.content(), changes)
            if not records:
                return answer
            if await self._committed(writer, records):
                return answer
            await asyncio.sleep(contention.lost(self._time_s()))

    def _time_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def _writing(self) -> TopicWriter:
        """Return a writer that has fenced all others, after everything that they wrote is read.

        Raises:
            StoreUnavailable: no writer can start now.
        """
        if self._writer is None:
            writer = TopicWriter(self._settings, self._topic)
            try:
                async with asyncio.timeout(COMMIT_S):
                    await writer.start()
                    if self._reader is None:
                        raise TimeoutError("the brokers are not connected")
                    await self._until(await self._reader.end())
            except _FAILURES as error:
                await writer.stop()
                raise StoreUnavailable(f"{self._place}: cannot be written: {problem_of(error)}; nothing was changed") from None
            self._writer = writer
        return self._writer

    async def _committed(self, writer: TopicWriter, records: Sequence[tuple[bytes, bytes | None]]) -> bool:
        """Write the records and read them back; False: another writer fenced this one, and nothing was written.

        Raises:
            StoreUnavailable: the outcome is unknown.
        """
        self._number += 1
        try:
            async with asyncio.timeout(COMMIT_S):
                offset = await writer.write(records, self._name + self._number.to_bytes(8))
        except Fenced:
            await self._drop_writer()
            return False
        except _FAILURES as error:
            await self._drop_writer()
            return await self._resolve_outcome(problem_of(error))
        try:
            async with asyncio.timeout(COMMIT_S):
                await self._until(offset + 1)
        except TimeoutError:
            raise StoreUnavailable(f"{self._place}: the change is made and could not be read back yet", is_certain=False) from None
        return True

    async def _resolve_outcome(self, problem: str) -> bool:
        """Return whether the last write was committed: a new writer ends the open transaction, so that the log can be read to its end.

        Raises:
            StoreUnavailable: no new writer can start yet.
        """
        try:
            await self._writing()
        except StoreUnavailable:
            line = f"{self._place}: {problem}; whether the change was made is known when it responds again"
            raise StoreUnavailable(line, is_certain=False) from None
        return self._read_number == self._number

    async def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.stop()

    async def _until(self, offset: int) -> None:
        """Wait until everything before `offset` is read."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: self._offset >= offset)
