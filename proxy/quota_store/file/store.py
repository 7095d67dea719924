"""The store in a file that operators edit and Sluice alters. The file is read, validated, applied and written as a whole or not at all."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from proxy.config.problem import ConfigProblems, Problem
from proxy.config.toml_reader import read_bounded
from proxy.quota_store.file.advice import advice_on_quotas
from proxy.quota_store.file.lock import FileLock, last_commit
from proxy.quota_store.file.quota_file import read_quota_text
from proxy.quota_store.file.quota_text import Key, QuotaText, TargetKey, altered, altered_whole, cut
from proxy.quota_store.file.write import in_locked_folder, writable_by_others, write_whole
from proxy.quota_store.store import (
    VALUES,
    ContentHolder,
    Decide,
    OnContent,
    Origin,
    StoreChange,
    StoreContent,
    StoreUnavailable,
    Table,
    changed,
)
from proxy.telemetry import log
from proxy.telemetry.status import SourceStatus
from quota.admin.kraft import Change
from quota.admin.messages import IP
from quota.connections.client_address import plain_address

T = TypeVar("T")

QUOTA_FILE_BYTES_MAX: Final = 16 * 1024 * 1024
POLL_SECONDS: Final = 0.5
SMALL_FILE_BYTES: Final = 64 * 1024
"""Up to this size in bytes a file is read at every poll, since an edit in place may leave its size and time unchanged."""
PROBLEMS_LOGGED_MAX: Final = 8
SETTLE_SECONDS: Final = 0.05
"""Time between two reads of a changed file. Both have to be equal, since an editor that writes in place truncates the file first."""
SETTLE_TRIES_MAX: Final = 40
ALTER_TRIES_MAX: Final = 40
"""Maximum number of attempts when the file is edited between reading and writing."""


class _Seen(NamedTuple):
    """The values that a poll compares. Kubernetes swaps symlinks, so path and time alone do not identify a file."""

    stat: tuple[int, int, int]
    digest: bytes


class _Reading(NamedTuple):
    """The result of one read of the file.

    Attributes:
        content: None when its bytes are those already applied.
        advice: lines about quotas of the content that probably mean something else.
    """

    seen: _Seen
    content: StoreContent | None
    advice: Sequence[str] = ()


class _Commit(NamedTuple):
    """The result of an alteration: the answer of `decide`, and the file after it."""

    answer: Any
    seen: _Seen
    content: StoreContent
    text: QuotaText | None


async def _settle() -> None:
    await asyncio.sleep(SETTLE_SECONDS)


def read_quota_file(path: Path, *, any_sign: bool = False) -> StoreContent:
    """Return the content of the file at `path`; with `any_sign`, accept values of 0 and below.

    Raises:
        ConfigProblems: the file cannot be read, or a part of it is invalid.
    """
    return read_quota_text(read_bounded(path, QUOTA_FILE_BYTES_MAX), str(path), any_sign=any_sign)


class FileStore(ContentHolder):
    """Keeps the last valid content of a file, and reports each new content.

    While the file is invalid or missing, the last valid content stays; `status` has the time and the reason. Other processes may alter the
    same file.

    Args:
        path: path of the file, which must exist.
        on_content: called with each new content.
        now_ms: monotonic clock.
        wall_time_s: wall clock, seconds since the epoch.
        any_sign: whether values of 0 and below may be set (the ZooKeeper profile).
        altering: whether clients may alter quotas; then `start` refuses a file that group or world may write.
        pause: awaited between two reads of a changed file.
    """

    def __init__(
        self,
        path: Path,
        on_content: OnContent,
        *,
        now_ms: Callable[[], int],
        wall_time_s: Callable[[], float],
        any_sign: bool = False,
        altering: bool = False,
        pause: Callable[[], Awaitable[None]] = _settle,
    ) -> None:
        super().__init__(on_content)
        self.path = path
        self._now_ms = now_ms
        self._wall_time_s = wall_time_s
        self._any_sign = any_sign
        self._altering = altering
        self._pause = pause
        self._seen: _Seen | None = None
        self._rejected: _Seen | None = None
        self._lines: tuple[str, ...] = ()
        self._text: QuotaText | None = None
        self._last_success_s = 0.0
        self._last_success_ms = 0
        self._busy = asyncio.Lock()
        self._altering_now: set[asyncio.Task[Any]] = set()

    @property
    def status(self) -> SourceStatus:
        """State of the store for metrics and readiness."""
        return SourceStatus(
            f"file:{self.path}",
            len(self.content.quotas),
            self._last_success_s,
            self._last_success_ms,
            self._lines[0] if self._lines else None,
        )

    async def start(self) -> None:
        """Read the file for the first time.

        Raises:
            ConfigProblems: the file is invalid, so there is no content to start with.
        """
        if self._altering and (problem := writable_by_others(self.path) or in_locked_folder(self.path)):
            raise ConfigProblems([Problem(str(self.path), "", *problem)])
        reading = await asyncio.to_thread(self._poll, always=True)
        self._accept(reading, "start")

    async def reload(self) -> bool:
        """Read the file now, even if size and time are unchanged; True: its content is in place."""
        return await self._refresh(always=True)

    async def follow_forever(self) -> None:
        """Poll the file twice a second until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.poll()

    async def poll(self) -> bool:
        """Read the file if it has changed; True: its content is in place."""
        return await self._refresh(always=False)

    async def alter(self, decide: Decide[T]) -> T:
        """Rewrite the file with the changes of `decide`; return the answer of `decide`.

        A lock file excludes other processes meanwhile. An earlier edit by hand is applied first, also if no poll has read it yet.

        Raises:
            StoreUnavailable: the file is invalid, others may write it, or it cannot be written; it is unchanged.
        """
        task = asyncio.ensure_future(self._alter(decide))
        self._altering_now.add(task)  # the alteration completes, also when the caller is cancelled
        task.add_done_callback(self._altering_now.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Wait until alterations in progress are complete."""
        if self._altering_now:
            await asyncio.wait(self._altering_now)

    # --- reading

    async def _refresh(self, *, always: bool) -> bool:
        async with self._busy:
            await self._take_newer(always=always)
            return not self._lines

    async def _take_newer(self, *, always: bool) -> None:
        try:
            reading = await self._settled(await asyncio.to_thread(self._poll, always=always))
        except ConfigProblems as problems:
            self._reject(problems)
            return
        self._accept(reading, "outside")

    async def _settled(self, reading: _Reading | None) -> _Reading | None:
        """Return the content of the file after two reads with equal results."""
        for _ in range(SETTLE_TRIES_MAX):
            if reading is None or reading.content is None:
                break
            if await asyncio.to_thread(last_commit, self.path) == reading.seen.digest:
                break  # another Sluice wrote it as a whole
            await self._pause()
            if await asyncio.to_thread(self._digest) == reading.seen.digest:
                break
            reading = await asyncio.to_thread(self._poll, always=True)
        return reading

    def _digest(self) -> bytes:
        return hashlib.sha256(read_bounded(self.path, QUOTA_FILE_BYTES_MAX)).digest()

    def _poll(self, *, always: bool) -> _Reading | None:
        """Return the new state of the file; None: it has not changed. Runs in a thread; of this object it sets only the rejected state.

        Raises:
            ConfigProblems: the file is invalid.
        """
        stat = self._stat()
        last = self._rejected or self._seen
        if not always and last is not None and stat == last.stat and stat[0] > SMALL_FILE_BYTES:
            return None if last is self._rejected else _Reading(last, None)
        data = read_bounded(self.path, QUOTA_FILE_BYTES_MAX)
        seen = _Seen(stat, hashlib.sha256(data).digest())
        if self._rejected is not None and seen.digest == self._rejected.digest and not always:
            return None
        if self._seen is not None and seen.digest == self._seen.digest:
            return _Reading(seen, None)
        self._rejected = seen
        content = read_quota_text(data, str(self.path), any_sign=self._any_sign)
        return _Reading(seen, content, advice_on_quotas(content)[:PROBLEMS_LOGGED_MAX])

    def _stat(self) -> tuple[int, int, int]:
        try:
            stat = self.path.stat()
        except OSError:
            return (-1, 0, 0)  # `read_bounded` reports the reason
        return (stat.st_size, stat.st_mtime_ns, stat.st_ino)

    def _accept(self, reading: _Reading | None, origin: Origin) -> None:
        if reading is None:
            return
        self._seen, self._rejected = reading.seen, None
        self._last_success_s, self._last_success_ms = self._wall_time_s(), self._now_ms()
        content = reading.content
        if content is not None:
            self._text = None
            self.hold(content, origin)
            for line in reading.advice:
                log.warning("quotas_doubtful", source=str(self.path), problem=line)
        if content is not None or self._lines:
            log.info("quotas_loaded", source=str(self.path), entries=len(self.content.quotas))
        self._lines = ()

    def _reject(self, problems: ConfigProblems) -> None:
        lines = tuple(problems.lines())
        if lines != self._lines:  # a file that stays invalid is reported once
            for line in lines[:PROBLEMS_LOGGED_MAX]:
                log.warning("quotas_rejected", source=str(self.path), problem=line, kept_entries=len(self.content.quotas))
        self._lines = lines

    # --- writing

    async def _alter(self, decide: Decide[T]) -> T:
        async with self._busy:
            lock = await asyncio.to_thread(FileLock, self.path)
            try:
                commit = await self._committed(decide, lock)
            finally:
                lock.release()
            self._accept(_Reading(commit.seen, None), "own")
            self.hold(commit.content, "own")
            self._text = commit.text
            answer: T = commit.answer
            return answer

    async def _committed(self, decide: Decide[T], lock: FileLock) -> _Commit:
        for _ in range(ALTER_TRIES_MAX):
            await self._take_newer(always=True)
            if self._lines:
                raise StoreUnavailable(f"{self._lines[0]}; repair it first, nothing was changed")
            try:
                commit = await asyncio.to_thread(self._commit, decide, lock)
            except ConfigProblems:
                continue  # the file was removed or became invalid after the read
            if commit is not None:
                return commit
        raise StoreUnavailable(f"{self.path}: changes all the time; nothing was changed, try again")

    def _commit(self, decide: Decide[T], lock: FileLock) -> _Commit | None:
        """Write the changes of `decide`, in a thread; None: the file was edited meanwhile.

        Raises:
            StoreUnavailable: the file cannot be written.
        """
        data, seen = read_bounded(self.path, QUOTA_FILE_BYTES_MAX), self._seen
        if seen is None or hashlib.sha256(data).digest() != seen.digest:
            return None
        answer, changes = decide(self.content)
        content = changed(self.content, _in_usual_form(changes))
        if content is self.content:
            return _Commit(answer, seen, content, self._text)
        if loose := writable_by_others(self.path):
            raise StoreUnavailable(f"{self.path}: {'; '.join(loose)}, nothing was changed")
        new, text = self._rewritten(data, content)
        if len(new) > QUOTA_FILE_BYTES_MAX:
            raise StoreUnavailable(f"{self.path}: would have more than {QUOTA_FILE_BYTES_MAX} bytes; remove quotas first")
        if self._digest() != seen.digest:
            return None
        digest = hashlib.sha256(new).digest()
        lock.commit(digest)
        try:
            write_whole(self.path, new)
        except OSError as error:
            certain = self._digest() != digest  # otherwise the file is written, but its directory could not be synced
            done = "nothing was changed" if certain else "the change may be lost with the next power cut"
            raise StoreUnavailable(f"{self.path}: cannot be written: {error.strerror}; {done}", is_certain=certain) from None
        return _Commit(answer, _Seen(self._stat(), digest), content, text)

    def _rewritten(self, data: bytes, content: StoreContent) -> tuple[bytes, QuotaText | None]:
        """Return the new bytes of the file, after a check that they parse to `content`.

        Raises:
            StoreUnavailable: the file has a form that cannot be altered.
        """
        text = data.decode()
        try:
            pieces = self._text or cut(text, read_quota_text(data, str(self.path), any_sign=self._any_sign))
            if pieces is not None:
                pieces = altered(pieces, self.content, content)
                self._prove(pieces, content)
                return str(pieces).encode(), pieces
            new = altered_whole(text, self.content, content).encode()
            self._compare(read_quota_text(new, str(self.path), any_sign=self._any_sign), content)
        except (ConfigProblems, LookupError, TypeError, ValueError) as error:
            line = str(error).partition("\n")[0]
            raise StoreUnavailable(f"{self.path}: cannot be altered as it is written ({line}); write each quota under [[quota]]") from error
        return new, None

    def _prove(self, pieces: QuotaText, content: StoreContent) -> None:
        """Parse the altered entries again and compare them. The other entries were parsed before, and their text is unchanged."""
        touched = "".join(f"{entry}\n" for key, entry in pieces.entries.items() if self._is_touched(key, content))
        proved = read_quota_text(touched.encode(), str(self.path), any_sign=self._any_sign)
        quotas = {key: values for key, values in content.quotas.items() if self._is_touched(key, content)}
        tables = {name: self._touched_targets(name, content) for name in VALUES}
        self._compare(proved, StoreContent(quotas, **tables))
        if len(pieces.entries) != len(content.quotas) + len(content.switches) + len(content.pacing):
            raise ValueError("an entry remains")

    def _touched_targets(self, table: Table, content: StoreContent) -> dict[str, str]:
        return {target: mode for target, mode in content.table(table).items() if self._is_touched(TargetKey(table, target), content)}

    def _is_touched(self, key: Key, content: StoreContent) -> bool:
        if isinstance(key, TargetKey):
            return self.content.table(key.table).get(key.target) != content.table(key.table).get(key.target)
        return self.content.quotas.get(key) != content.quotas.get(key)

    @staticmethod
    def _compare(read: StoreContent, wanted: StoreContent) -> None:
        if read != wanted:
            raise ValueError("the result would differ from the change")


def _in_usual_form(changes: Any) -> list[StoreChange]:
    """Return changes with addresses in the form in which the file is read."""
    return [
        change._replace(entity=((IP, plain_address(name)),))
        if isinstance(change, Change) and (name := dict(change.entity).get(IP)) is not None
        else change
        for change in changes
    ]
