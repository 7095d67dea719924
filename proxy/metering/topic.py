"""A Kafka topic as a second sink: complete file sets are sent to it file by file, with the manifest last.

The sink has its own thread and event loop. It connects to the brokers directly, so Sluice neither throttles nor meters it. A file set is
marked when it is written, and the mark is removed when all replicas have acknowledged every part: delivery is at least once. A consumer
drops duplicates by the name of the file set, which has the number of its first decision.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from metering_format.places import PART_HEADER, PATH_HEADER
from proxy.base.files import remove
from proxy.config.sections.credentials import CredentialsError
from proxy.metering.marks import marks_of, named_by
from proxy.telemetry.counters import MeteringCounts

PART_BYTES: Final = 512 * 1024
"""Maximum size of a message's value in bytes, below a broker's default limit of 1 MiB."""
RETRY_S: Final = 5.0
READS_MAX: Final = 10
"""Maximum number of reads of a manifest while files that it names are missing."""
REQUEST_TIMEOUT_MS: Final = 15_000
CLIENT_ID: Final = "sluice-metering"


class UnreadableError(Exception):
    """A file set cannot be read; the text is one line."""


class TopicSink:
    """Publishes file sets in the order in which they were written.

    Args:
        directory: metering directory.
        proxy_id: proxy with the file sets to publish.
        topic: name of the topic.
        client_settings: returns the settings of an aiokafka client; called for each connection.
        counts: counters that are updated.
        on_problem: called once when publishing fails, and once (None) when it works again; called from the thread.
    """

    def __init__(
        self,
        directory: Path,
        proxy_id: str,
        topic: str,
        client_settings: Callable[[], dict[str, Any]],
        counts: MeteringCounts,
        on_problem: Callable[[str | None], None],
    ) -> None:
        self._directory = directory
        self._proxy_id = proxy_id
        self._topic = topic
        self._client_settings = client_settings
        self._counts = counts
        self._on_problem = on_problem
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="metering-topic", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wanted = asyncio.Event()
        self._stopping = False
        self._failing = False
        self._producer: Any = None

    def start(self) -> None:
        """Start the thread, which first publishes marked file sets of earlier runs."""
        self._thread.start()

    def notify(self) -> None:
        """Report that there may be a new file set to publish; may be called on any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wanted.set)

    def stop(self, timeout_s: float) -> bool:
        """Publish the remaining file sets and end the thread; False: that takes longer than `timeout_s`, and the next start continues."""
        self._stopping = True
        self.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            while True:
                done = await self._publish_all()
                if self._stopping and (done or self._failing):
                    return
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wanted.wait(), RETRY_S)
                self._wanted.clear()
        finally:
            await self._let_go()

    async def _publish_all(self) -> bool:
        """Publish every marked file set; False: a send failed. A file set that cannot be read stays marked; the others are published."""
        from aiokafka.errors import KafkaError

        problem = None
        try:
            for mark in marks_of(self._directory, self._proxy_id):
                try:
                    await self._publish(mark)
                except UnreadableError as error:
                    problem = problem or str(error)
        except (KafkaError, OSError, CredentialsError) as error:
            await self._let_go()
            problem = f"{type(error).__name__}: {error}"
        self._report(problem)
        return problem is None

    def _report(self, problem: str | None) -> None:
        self._counts.publish_failures += problem is not None
        if self._failing != (problem is not None):
            self._failing = problem is not None
            self._on_problem(problem)

    async def _publish(self, mark: Path) -> None:
        contents = self._contents(mark)
        producer = await self._connected()
        for path, data in contents:
            sent = []
            for part, value in parts_of(data):
                headers = [(PATH_HEADER, path.encode()), (PART_HEADER, part.encode())]
                sent.append(await producer.send(self._topic, value, key=self._proxy_id.encode(), headers=headers))
            await asyncio.gather(*sent)
        remove(mark)
        self._counts.file_sets_published += bool(contents)

    def _contents(self, mark: Path) -> list[tuple[str, bytes]]:
        """Return name and content of the files of a set, the manifest last; empty if retention has removed the set.

        Raises:
            UnreadableError: the manifest is invalid, or a file that it names is missing.
        """
        path = named_by(mark)
        try:
            manifest = self._read(path)
            for _ in range(READS_MAX):
                if manifest is None:
                    return []
                named = [str(entry["path"]) for entry in msgspec.json.decode(manifest)["files"]]
                files = [(name, data) for name in named if (data := self._read(name)) is not None]
                if len(files) == len(named):
                    return [*files, (path, manifest)]
                manifest = self._read(path)  # the removal of a user's names renames files
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            raise UnreadableError(f"{path}: not a manifest ({error}), so its file set is not sent; restore it") from error
        raise UnreadableError(f"{path}: names files that are not there, so its file set is not sent; restore them")

    def _read(self, path: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return (self._directory / path).read_bytes()
        return None

    async def _connected(self) -> Any:
        if self._producer is None:
            from aiokafka import AIOKafkaProducer

            producer = AIOKafkaProducer(**self._client_settings(), client_id=CLIENT_ID, acks="all", request_timeout_ms=REQUEST_TIMEOUT_MS)
            try:
                await producer.start()
            except BaseException:
                await producer.stop()
                raise
            self._producer = producer
        return self._producer

    async def _let_go(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()


def parts_of(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield part header and value of each message for a file; an empty file has one message."""
    count = max(-(-len(data) // PART_BYTES), 1)
    for number in range(count):
        yield f"{number}/{count}", data[number * PART_BYTES : (number + 1) * PART_BYTES]
