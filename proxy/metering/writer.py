"""The writer: a thread between the event loop and the disk.

A full or failing disk does not affect the data path. Batches that cannot be written wait in a bounded queue. Batches without room in the
queue are counted as lost. The writer tries the disk again every few seconds.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from metering_format.places import SEGMENTS, file_set_name
from proxy.base.files import make_directory
from proxy.meter.batch import Batch, Fact
from proxy.metering.conversion.converter import Convert, Converter, convert_in_child
from proxy.metering.raw import groups_in
from proxy.metering.retention import KEEP_ALL, Retention
from proxy.metering.segment import SegmentWriter
from proxy.telemetry.counters import MeteringCounts

WAITING_BYTES_MAX: Final = 64 * 2**20
ROTATE_DECISIONS: Final = 2_000_000
"""Maximum number of decisions in a segment. The converter holds all in memory, up to half a KiB each, and equal ones need few bytes."""
RETRY_S: Final = 5.0
TICK_S: Final = 0.25
SYNC_S: Final = 1.0
HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """Directory and limits of the writer; `header` is the fact about the run that each segment begins with."""

    directory: Path
    header: Fact
    rotate_bytes: int = 128 * 2**20
    rotate_ms: int = 300_000
    retention: Retention = KEEP_ALL
    waiting_bytes_max: int = WAITING_BYTES_MAX
    publish: bool = False
    rotate_decisions: int = ROTATE_DECISIONS


@dataclass(slots=True)
class _Open:
    """The segment that is being written."""

    writer: SegmentWriter
    file_set: str
    opened_ms: int
    hour: int
    first_seq: int
    described: set[int] = field(default_factory=set)
    described_clients: set[int] = field(default_factory=set)


class MeteringWriter:
    """Receives batches from the event loop, appends them to a segment, and rotates segments.

    The queue is bounded. A batch without room is refused, so the newest batch is lost, not the oldest. Decisions after a loss can only be
    recomputed from a known state of every sensor. Only the event loop has this state, and the refusal informs it at once.

    Args:
        settings: directory and limits.
        now_ms: milliseconds since the epoch by the run's clock, which is the monotonic clock plus a constant offset.
        on_problem: called once when the disk fails, and once (None) when it works again; called from the thread.
        also: second sink, called with every batch.
        convert: converts segments into files.
        counts: counters that are updated.
    """

    def __init__(
        self,
        settings: WriterSettings,
        now_ms: Callable[[], int],
        on_problem: Callable[[str | None], None],
        also: Callable[[Batch], None] | None = None,
        convert: Convert = convert_in_child,
        counts: MeteringCounts | None = None,
    ) -> None:
        self.counts = counts or MeteringCounts()
        self._settings = settings
        self._now_ms = now_ms
        self._on_problem = on_problem
        self._also = also
        self._queue: queue.SimpleQueue[Batch | str | dict[str, Any]] = queue.SimpleQueue()
        self._groups: dict[int, Fact] = {}
        self._bounds: dict[int, Fact] = {}
        self._clients: dict[int, Fact] = {}
        self._state: Fact | None = None
        self._pending: deque[Batch] = deque()
        self._open: _Open | None = None
        self._previous: str | None = None
        self._next_seq = 0
        self._parts = 0
        self._failing = False
        self._retry_at_ms = 0
        self._synced_ms = 0
        self._thread = threading.Thread(target=self._run, name="metering-writer", daemon=True)
        self.converter = Converter(settings.directory, settings.retention, convert, self.counts, publish=settings.publish)

    def start(self, left_over: Iterable[str] = ()) -> None:
        """Start the thread, which first converts the segments in `left_over` of earlier runs."""
        self.converter.start()
        for file_set in left_over:
            self.converter.put(file_set)
        self._thread.start()

    @property
    def waiting_bytes(self) -> int:
        """Approximate number of bytes in the queue."""
        return self.counts.waiting_bytes

    def hand_over(self, batch: Batch) -> bool:
        """Queue a batch; False: there is no room. Called on the event loop; never blocks."""
        size = batch.size
        if self.counts.waiting_bytes + size > self._settings.waiting_bytes_max:
            self.counts.dropped_decisions += batch.count
            return False
        return self.hand_over_last(batch)

    def hand_over_last(self, batch: Batch) -> bool:
        """Queue the last batch of a run, also without room, since it carries the number of batches lost before."""
        self.counts.handed_bytes += batch.size
        self._queue.put(batch)
        return True

    def add_settings(self, settings: dict[str, Any]) -> None:
        """Add settings to the run's; the next decisions are in a new file set, whose manifest has them."""
        self._queue.put(settings)

    def rotate(self) -> None:
        """Request a new file set."""
        self._queue.put("rotate")

    def stop(self, timeout_s: float) -> bool:
        """Write the queue, rotate and convert; False: that takes longer than `timeout_s`, and the next start converts the rest."""
        self._queue.put("stop")
        self._thread.join(timeout_s)
        return not self._thread.is_alive() and not self._pending and self.converter.stop(timeout_s)

    # --- the thread

    def _run(self) -> None:
        try:
            self._begin()  # there is always a segment, so that the progress of a killed process is known
        except OSError as error:
            self._fail(error)
        while True:
            item: Batch | str | dict[str, Any]
            try:
                item = self._queue.get(timeout=TICK_S)
            except queue.Empty:
                item = ""
            if isinstance(item, Batch):
                self._pending.append(item)
                if self._also is not None:
                    self._also(item)
            if item == "stop":
                self._retry_at_ms = 0
            self._write_pending()
            if isinstance(item, dict):
                self._take_settings(item)
            if item == "rotate" or isinstance(item, dict) or self._is_due():
                self._rotate(final=False)
            if item == "stop":
                self._rotate(final=True)
                return

    def _write_pending(self) -> None:
        now_ms = self._now_ms()
        if self._failing and now_ms < self._retry_at_ms:
            return
        try:
            while self._pending:
                batch = self._pending[0]
                self._write(batch)
                self._pending.popleft()
                self.counts.done_bytes += batch.size
            if self._open is not None and now_ms - self._synced_ms >= SYNC_S * 1_000:
                self._synced_ms = now_ms
                self._open.writer.sync()
        except OSError as error:
            self._fail(error)
            return
        if self._failing:
            self._failing = False
            self._on_problem(None)

    def _write(self, batch: Batch) -> None:
        opened = self._open or self._begin()
        refs = groups_in(batch.words, batch.records)
        self._groups.update({fact["group"]["group_ref"]: fact for fact in batch.facts if "group" in fact})
        facts = [fact for ref in refs if ref not in opened.described for fact in self._about(ref)]
        facts += [fact for fact in batch.facts if "group" in fact and fact["group"]["group_ref"] in opened.described]  # a changed name
        self._clients.update({fact["client"]["client_ref"]: fact for fact in batch.facts if "client" in fact})
        client_refs = {row[0] for fact in batch.facts if "usage" in fact for row in fact["usage"]["rows"]}
        facts += [self._clients[ref] for ref in client_refs - opened.described_clients if ref in self._clients]
        facts += [fact for fact in batch.facts if "group" not in fact and "client" not in fact]
        opened.writer.write(facts, batch)
        for fact in batch.facts:
            self._remember(fact)
        opened.described.update(refs)
        opened.described_clients |= client_refs
        self._next_seq = batch.first_seq + batch.count
        self.counts.decisions += batch.count
        self.counts.usage_rows += sum(len(fact["usage"]["rows"]) for fact in batch.facts if "usage" in fact)

    def _remember(self, fact: Fact) -> None:
        if "bound" in fact:
            self._bounds[fact["bound"]["group_ref"]] = fact
        elif "state" in fact:
            self._state = fact

    def _about(self, ref: int) -> list[Fact]:
        """Return the facts of a group and of its bound before the changes of this batch."""
        return [fact for fact in (self._groups.get(ref), self._bounds.get(ref)) if fact is not None]

    def _begin(self) -> _Open:
        now_ms = self._now_ms()
        first_seq = self._next_seq
        file_set = file_set_name(self._settings.header["run_id"], first_seq, self._parts)
        place = self._settings.directory / SEGMENTS
        make_directory(place)
        state = [] if self._state is None else [{"state": {**self._state["state"], "from_seq": first_seq}}]
        writer = SegmentWriter(place / file_set, [self._header(now_ms), *state])
        self._open = _Open(writer, file_set, now_ms, now_ms // HOUR_MS, first_seq)
        self.counts.segments += 1
        return self._open

    def _header(self, now_ms: int) -> Fact:
        fields = {"first_seq": self._next_seq, "part": self._parts, "opened_ts_ms": now_ms, "previous": self._previous}
        return {"run": {**self._settings.header, **fields, "publish": self._settings.publish}}

    def _take_settings(self, added: dict[str, Any]) -> None:
        header = self._settings.header
        self._settings = replace(self._settings, header={**header, "settings": {**header["settings"], **added}})

    def _is_due(self) -> bool:
        opened = self._open
        if opened is None:
            return False
        now_ms = self._now_ms()
        is_old = now_ms - opened.opened_ms >= self._settings.rotate_ms or now_ms // HOUR_MS != opened.hour
        is_large = opened.writer.bytes >= self._settings.rotate_bytes or opened.writer.decisions >= self._settings.rotate_decisions
        return is_old or is_large

    def _rotate(self, *, final: bool) -> None:
        opened = self._open
        if opened is None and (not final or self._pending):
            return
        try:
            if opened is None:
                self._begin()
            elif not final and not opened.writer.is_worth_keeping:
                self._begin_anew(opened)
                return
            self._close(final=final)
            if not final:
                self._begin()
        except OSError as error:
            self._fail(error)

    def _begin_anew(self, opened: _Open) -> None:
        """Let an empty segment begin now, by a new header."""
        now_ms = self._now_ms()
        opened.writer.write([self._header(now_ms)])
        opened.opened_ms, opened.hour = now_ms, now_ms // HOUR_MS

    def _close(self, *, final: bool) -> None:
        """Close the current segment, and convert it."""
        opened, self._open = self._open, None
        assert opened is not None
        opened.writer.close()
        self._previous = opened.file_set
        self._parts = self._parts + 1 if self._next_seq == opened.first_seq else 0
        lost = sum(batch.count for batch in self._pending) if final else 0
        self.converter.put(opened.file_set, {"final": final and not lost, "dropped_usage_rows": self.counts.dropped_usage_rows})

    def _fail(self, error: OSError) -> None:
        self.counts.write_errors += 1
        self.counts.last_error = str(error)
        self._retry_at_ms = self._now_ms() + int(RETRY_S * 1_000)
        opened = self._open
        if opened is not None and not opened.writer.is_worth_keeping:
            opened.writer.discard()
            self._open = None
        elif opened is not None:  # an incomplete end of the segment may be lost: a new segment begins
            self._close(final=False)
        if not self._failing:
            self._failing = True
            self._on_problem(str(error))


def header_of(run_id: str, proxy_id: str, wall_offset_ms: int, **fields: Any) -> Fact:
    """Return the fact about the run that each segment begins with."""
    return {"run_id": run_id, "proxy_id": proxy_id, "wall_offset_ms": wall_offset_ms, **fields}
