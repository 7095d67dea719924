"""The uploader: a thread that starts a child process to upload finished file sets. Compression and TLS would block the event loop."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from proxy.telemetry.counters import MeteringCounts

RETRY_S: Final = 30.0
CHECK_S: Final = 300.0
"""Interval of passes without a new file set: `sluice meter forget` may have changed some."""
DIED: Final = "the process that uploads ended early"


class Uploader:
    """Uploads the file sets of one proxy.

    Args:
        directory: metering directory.
        proxy_id: proxy with the file sets to upload.
        url: directory in an object store.
        counts: counters that are updated.
        on_problem: called once when uploads fail, and once (None) when they work again; called from the thread.
    """

    def __init__(self, directory: Path, proxy_id: str, url: str, counts: MeteringCounts, on_problem: Callable[[str | None], None]) -> None:
        self._directory, self._counts, self._on_problem = directory, counts, on_problem
        self._order = msgspec.json.encode({"url": url, "proxy_id": proxy_id})
        self._thread = threading.Thread(target=self._run, name="metering-upload", daemon=True)
        self._wanted = threading.Event()
        self._stopping = False
        self._failing = False
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the thread, which first uploads file sets of earlier runs."""
        self._thread.start()

    def notify(self) -> None:
        """Report that there may be a new file set; may be called on any thread."""
        self._wanted.set()

    def stop(self, timeout_s: float) -> bool:
        """Upload the remaining file sets and end; False: that takes longer than `timeout_s` or fails, and the next start continues."""
        self._stopping = True
        self.notify()
        self._thread.join(timeout_s)
        if self._thread.is_alive() and self._child is not None:
            self._child.kill()
        return not self._thread.is_alive() and not self._failing

    def _run(self) -> None:
        while True:
            self._wanted.clear()
            is_last = self._stopping
            self._report(self._upload())
            if is_last:
                return
            self._wanted.wait(RETRY_S if self._failing else CHECK_S)

    def _upload(self) -> str | None:
        """Run the child process; return its problem."""
        command = [sys.executable, "-m", "proxy.metering.upload.run", str(self._directory)]
        try:
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:  # noqa: S603 - our own module
                self._child = child
                assert child.stdin is not None
                assert child.stdout is not None
                child.stdin.write(self._order)
                child.stdin.close()
                return self._follow(child.stdout)
        except OSError as error:
            return f"{DIED} ({error})"
        finally:
            self._child = None

    def _follow(self, lines: Iterable[bytes]) -> str | None:
        problem: str | None = DIED
        for line in lines:
            fields = msgspec.json.decode(line)
            if "bytes" in fields:
                self._counts.file_sets_uploaded += 1
                self._counts.uploaded_bytes += fields["bytes"]
            else:
                self._counts.file_sets_to_upload, problem = fields["waiting"], fields["problem"]
        return problem

    def _report(self, problem: str | None) -> None:
        self._counts.upload_failures += problem is not None
        if self._failing != (problem is not None):
            self._failing = problem is not None
            self._on_problem(problem)
