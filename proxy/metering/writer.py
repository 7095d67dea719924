"""The writer: one thread between the loop and the disk, and a child process for each rotation.

A full or failing disk never reaches the data path: what cannot be written waits in a bounded list, the oldest goes first and is
counted, and the disk is tried again every few seconds.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from proxy.metering.batch import Batch, Fact
from proxy.metering.layout import SEGMENTS, make_directory, stem_name
from proxy.metering.raw import DTYPE
from proxy.metering.segment import SegmentWriter

QUEUE_BATCHES: Final = 128
PENDING_BYTES_MAX: Final = 64 * 2**20
RETRY_S: Final = 5.0
TICK_S: Final = 0.25
SYNC_S: Final = 1.0
CONVERT_S_MAX: Final = 600.0


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """Where and how; `header` is what each segment says of its run."""

    directory: Path
    header: Fact
    rotate_bytes: int = 128 * 2**20
    rotate_ms: int = 300_000


@dataclass(slots=True)
class WriterCounts:
    """Plain numbers that a scrape reads."""

    decisions: int = 0
    dropped_decisions: int = 0
    dropped_usage_rows: int = 0
    segments: int = 0
    write_errors: int = 0
    last_error: str = ""


@dataclass(slots=True)
class _Open:
    """The segment in use."""

    writer: SegmentWriter
    stem: str
    opened_ms: int
    hour: int
    described: set[int] = field(default_factory=set)


class MeteringWriter:
    """Takes batches from the loop, appends them to a segment, rotates.

    Args:
        now_ms: wall milliseconds of the run's own clock (monotonic and one offset).
        on_problem: told once when the disk fails, and once (None) when it works again; called from the thread.
    """

    def __init__(self, settings: WriterSettings, now_ms: Callable[[], int], on_problem: Callable[[str | None], None]) -> None:
        self.counts = WriterCounts()
        self._settings = settings
        self._now_ms = now_ms
        self._on_problem = on_problem
        self._queue: queue.Queue[Batch | str] = queue.Queue(QUEUE_BATCHES)
        self._groups: dict[int, Fact] = {}
        self._bounds: dict[int, Fact] = {}
        self._state: Fact | None = None
        self._pending: deque[Batch] = deque()
        self._open: _Open | None = None
        self._previous: str | None = None
        self._next_seq = 0
        self._failing = False
        self._retry_at_ms = 0
        self._synced_ms = 0
        self._thread = threading.Thread(target=self._run, name="metering-writer", daemon=True)
        self._converter = Converter(settings.directory)

    def start(self, left_over: Iterable[str] = ()) -> None:
        """Begin; segments that an earlier run left are converted first."""
        self._converter.start()
        for stem in left_over:
            self._converter.put(stem)
        self._thread.start()

    def hand_over(self, batch: Batch) -> bool:
        """Queue a batch; False when there is no room. Called from the loop: never waits."""
        try:
            self._queue.put_nowait(batch)
        except queue.Full:
            self.counts.dropped_decisions += batch.count
            return False
        return True

    def rotate(self) -> None:
        """Begin a new file set as soon as possible."""
        self._queue.put("rotate")

    def stop(self, timeout_s: float) -> bool:
        """Write what is queued, rotate, convert; False when that took longer and the next start will convert the rest."""
        self._queue.put("stop")
        self._thread.join(timeout_s)
        return not self._thread.is_alive() and self._converter.stop(timeout_s)

    # --- the thread

    def _run(self) -> None:
        while True:
            try:
                item = self._queue.get(timeout=TICK_S)
            except queue.Empty:
                item = ""
            if isinstance(item, Batch):
                self._pending.append(item)
            self._write_pending()
            if item == "rotate" or self._is_due():
                self._rotate(final=False)
            if item == "stop":
                self._rotate(final=True)
                return

    def _write_pending(self) -> None:
        now_ms = self._now_ms()
        if self._failing and now_ms < self._retry_at_ms:
            self._shed()
            return
        try:
            while self._pending:
                self._write(self._pending[0])
                self._pending.popleft()
            if self._open is not None and now_ms - self._synced_ms >= SYNC_S * 1_000:
                self._synced_ms = now_ms
                self._open.writer.sync()
        except OSError as error:
            self._fail(error)
            self._shed()
            return
        if self._failing:
            self._failing = False
            self._on_problem(None)

    def _write(self, batch: Batch) -> None:
        opened = self._open or self._begin(batch.first_seq)
        refs = np.unique(np.frombuffer(batch.raw, DTYPE)["group_ref"]).tolist() if batch.count else []
        self._groups.update({fact["group"]["group_ref"]: fact for fact in batch.facts if "group" in fact})
        facts = [fact for ref in refs if ref not in opened.described for fact in self._about(ref)]
        for fact in batch.facts:
            self._remember(fact)
        opened.described.update(refs)
        opened.writer.write(batch, facts + [fact for fact in batch.facts if "group" not in fact])
        self._next_seq = batch.first_seq + batch.count
        self.counts.decisions += batch.count

    def _remember(self, fact: Fact) -> None:
        if "bound" in fact:
            self._bounds[fact["bound"]["group_ref"]] = fact
        elif "state" in fact:
            self._state = fact

    def _about(self, ref: int) -> list[Fact]:
        """A group, and the bound that it had before the changes of this batch."""
        return [fact for fact in (self._groups.get(ref), self._bounds.get(ref)) if fact is not None]

    def _begin(self, first_seq: int) -> _Open:
        now_ms = self._now_ms()
        stem = stem_name(self._settings.header["run_id"], first_seq)
        place = self._settings.directory / SEGMENTS
        make_directory(place)
        opened = _Open(SegmentWriter(place / stem), stem, now_ms, now_ms // 3_600_000)
        header = {**self._settings.header, "first_seq": first_seq, "opened_ts_ms": now_ms, "previous": self._previous}
        state = [] if self._state is None else [{"state": {**self._state["state"], "from_seq": first_seq}}]
        opened.writer.write(Batch(first_seq, 0, b"", []), [{"run": header}, *state])
        self._open = opened
        self._next_seq = first_seq
        self.counts.segments += 1
        return opened

    def _is_due(self) -> bool:
        opened = self._open
        if opened is None:
            return False
        now_ms = self._now_ms()
        is_old = now_ms - opened.opened_ms >= self._settings.rotate_ms or now_ms // 3_600_000 != opened.hour
        return is_old or opened.writer.bytes >= self._settings.rotate_bytes

    def _rotate(self, *, final: bool) -> None:
        opened, self._open = self._open, None
        if opened is None:
            if not final:
                return
            try:
                opened = self._begin(self._next_seq)
            except OSError as error:
                self._fail(error)
                return
            self._open = None
        end = {"end": {"final": final, "dropped_usage_rows": self.counts.dropped_usage_rows}}
        try:
            opened.writer.write(Batch(self._next_seq, 0, b"", []), [end])
        except OSError as error:
            self._fail(error)
        opened.writer.close()
        self._previous = opened.stem
        self._converter.put(opened.stem)

    def _fail(self, error: OSError) -> None:
        self.counts.write_errors += 1
        self.counts.last_error = str(error)
        self._retry_at_ms = self._now_ms() + int(RETRY_S * 1_000)
        opened, self._open = self._open, None
        if opened is not None:  # its end may be half a batch: a new segment begins after it
            opened.writer.close()
            self._previous = opened.stem
            self._converter.put(opened.stem)
        if not self._failing:
            self._failing = True
            self._on_problem(str(error))

    def _shed(self) -> None:
        """Let the oldest batches go once too many wait; their facts and word of the gap go with the next."""
        while sum(len(batch.raw) for batch in self._pending) > PENDING_BYTES_MAX:
            oldest = self._pending.popleft()
            self.counts.dropped_decisions += oldest.count
            gap: Fact = {"gap": {"from_seq": oldest.first_seq, "n": oldest.count, "reason": "disk_full"}}
            self._pending[0].facts[:0] = [*oldest.facts, gap]


class Converter:
    """Runs `proxy.metering.convert` for one segment after the other."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="metering-converter", daemon=True)
        self.failures = 0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def put(self, stem: str) -> None:
        """Convert a segment when its turn comes."""
        self._queue.put(stem)

    def stop(self, timeout_s: float) -> bool:
        """Convert what is queued, then end; False when that takes longer."""
        self._queue.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (stem := self._queue.get()) is not None:
            try:
                done = subprocess.run(  # noqa: S603 - our own interpreter, our own module
                    [sys.executable, "-m", "proxy.metering.convert", str(self._directory), stem], timeout=CONVERT_S_MAX, check=False
                )
            except (OSError, subprocess.TimeoutExpired):
                self.failures += 1
                continue
            self.failures += done.returncode != 0


def left_over(directory: Path) -> list[str]:
    """Return the segments that an earlier run left, in order."""
    suffix = ".facts.open"
    place = directory / SEGMENTS
    return sorted(path.name.removesuffix(suffix) for path in place.glob(f"*{suffix}")) if place.is_dir() else []


def header_of(run_id: str, proxy_id: str, wall_offset_ms: int, **told: Any) -> Fact:
    """What each segment says of its run."""
    return {"run_id": run_id, "proxy_id": proxy_id, "wall_offset_ms": wall_offset_ms, **told}
