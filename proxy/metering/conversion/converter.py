"""The converter: a thread that starts a child process to convert finished segments."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from proxy.meter.batch import Fact
from proxy.metering.conversion.unended import unended
from proxy.metering.retention import DISK_FAILURE, Removed, Retention
from proxy.telemetry.counters import MeteringCounts

RETRY_S: Final = 5.0
CONVERT_S_MAX: Final = 600.0

Convert = Callable[[Path, Fact], tuple[int, Removed]]
"""Converts segments, see `proxy.metering.conversion.convert.run`; returns its exit code, and what retention removed."""


def convert_in_child(directory: Path, order: Fact) -> tuple[int, Removed]:
    """Run `proxy.metering.conversion.convert`: compression takes long, and a thread of this process would block the event loop."""
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter, our own module
            [sys.executable, "-m", "proxy.metering.conversion.convert", str(directory)],
            input=msgspec.json.encode(order),
            stdout=subprocess.PIPE,
            timeout=CONVERT_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return DISK_FAILURE, Removed()
    return done.returncode, msgspec.json.decode(done.stdout, type=Removed) if done.stdout else Removed()


class Converter:
    """Converts finished segments in order; each continues the state of the one before it."""

    def __init__(self, directory: Path, retention: Retention, convert: Convert, counts: MeteringCounts, *, publish: bool) -> None:
        self._counts = counts
        self._convert_all = convert
        self._directory = directory
        self._retention = retention
        self._publish = publish
        self.on_converted: Callable[[], None] = lambda: None
        self.on_lost: Callable[[int], None] = lambda _file_sets: None
        self._queue: queue.SimpleQueue[tuple[str, Fact | None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="metering-converter", daemon=True)
        self._waiting: list[tuple[str, Fact | None]] = []

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, file_set: str, end: Fact | None = None) -> None:
        """Queue a segment; `end` is how it ended, None: unknown."""
        self._queue.put((file_set, end))

    def stop(self, timeout_s: float) -> bool:
        """Convert the queued segments, then end; False when that takes longer or fails."""
        self._queue.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive() and not self._waiting

    def _run(self) -> None:
        if unended(self._directory):
            self._convert()
        while True:
            try:
                item = self._queue.get(timeout=RETRY_S if self._waiting else self._retention.check_interval_s)
            except queue.Empty:
                if self._waiting or self._retention.is_limited:
                    self._convert()
                continue
            if item is not None:
                self._waiting.append(item)
            if self._queue.empty() and (item is not None or self._waiting):
                self._convert()
            if item is None:
                return

    def _convert(self) -> None:
        """Convert all queued segments in a child process; when the disk fails, they stay for the next time."""
        order = {
            "stems": [{"stem": file_set, "end": end} for file_set, end in self._waiting],
            "publish": self._publish,
            **self._retention.as_fact(),
        }
        code, removed = self._convert_all(self._directory, order)
        self._counts.conversion_failures += code != 0
        self._counts.file_sets_removed += removed.file_sets
        self._counts.file_sets_lost += removed.lost
        if removed.lost:
            self.on_lost(removed.lost)
        self.on_converted()
        if code != DISK_FAILURE:
            self._waiting.clear()  # any other failure is an unreadable segment: `sluice meter repair` says why
