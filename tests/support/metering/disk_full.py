"""Meters onto a disk that fills up, in a child process: `python -m tests.support.metering.disk_full DIR tmpfs|limit|device`.

With `tmpfs` it mounts one of 1 MiB over DIR, which needs a mount namespace. There are two substitutes: `limit` lowers the size limit of
all files (EFBIG); with `device` appends to segments go to /dev/full for a while (ENOSPC).
"""

import resource
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import proxy.metering.segment as segment
from pipeline.manifest import find_manifests, problems_of
from pipeline.validation.local import validate
from tests.support.metering.metering_writer_fixture import MeteringWriterFixture

NO_TMPFS = 77
DISK = "1m"
STAND_INS = ("limit", "device")
LIMIT_BYTES = 4_000
"""Less than the size of a batch: with more, each new segment would have room for one."""
RECOVERED_S = 10.0
FULL = threading.Event()


class StandInWarning(UserWarning):
    """A test ran with a substitute for a full disk; pytest's summary shows it."""


class _Device(segment._Appender):
    """Appends to a disk that is full while `FULL` is set; the error is the kernel's own."""

    def write(self, data: Any) -> None:
        if FULL.is_set():
            with open("/dev/full", "wb", buffering=0) as device:
                device.write(data)
        super().write(data)


def has_unshare() -> bool:
    """Whether `unshare` for mount namespaces is available."""
    return shutil.which("unshare") is not None


def main(directory: Path, kind: str) -> int:
    """Fill the disk, continue, free it, stop, validate."""
    if kind == "tmpfs" and subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", directory], check=False).returncode:
        return NO_TMPFS
    if kind == "device":
        segment._Appender = _Device  # type: ignore[misc]
    proxy = MeteringWriterFixture(directory, waiting_bytes_max=3_000_000)
    proxy.writer.start()
    counts, seed = proxy.writer.counts, 0
    if kind in STAND_INS:
        _begin_whole(proxy)
        _fill(kind)
    while not (counts.write_errors and counts.dropped_decisions):
        proxy.play(4_000, seed)
        proxy.meter.flush()
        seed += 1
        time.sleep(0.02)
    assert counts.write_errors > 0
    assert proxy.problems[0] is not None
    _make_room(directory, kind)
    deadline = time.monotonic() + RECOVERED_S
    while counts.waiting_bytes or proxy.problems[-1] is not None:
        assert time.monotonic() < deadline
        proxy.now_ms += 20
        time.sleep(0.02)
    assert proxy.problems[-1] is None
    proxy.play(30_000, seed)
    proxy.meter.flush()
    assert proxy.writer.stop(60)
    verdict = validate(directory)
    assert verdict.kinds() == {}, verdict.kinds()
    assert verdict.dropped == counts.dropped_decisions == proxy.meter.dropped
    assert verdict.decisions + verdict.unjudged + verdict.dropped == proxy.meter.next_seq
    assert [problem for manifest in find_manifests(directory) for problem in problems_of(directory, manifest)] == []
    assert list(directory.rglob(".tmp-*")) == []
    return 0


def _begin_whole(proxy: MeteringWriterFixture) -> None:
    """Write something before the disk is full, as in the other ways."""
    proxy.play(4_000, 1_000)
    proxy.meter.flush()
    while proxy.writer.counts.waiting_bytes:
        time.sleep(0.01)
    assert proxy.writer.counts.decisions == 4_000


def _fill(kind: str) -> None:
    if kind == "device":
        FULL.set()
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, resource.RLIM_INFINITY))


def _make_room(directory: Path, kind: str) -> None:
    FULL.clear()
    if kind == "tmpfs":
        subprocess.run(["mount", "-o", "remount,size=64m", directory], check=True)
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
