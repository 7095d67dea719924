"""A Sluice whose metering has a bad disk while the file that BAD_DISK names exists: `python -m bench.faults.bad_disk run ...`.

The content of the file selects the fault: `full` lets every write fail, any other word lets it wait.
"""

import errno
import os
import time
from pathlib import Path
from typing import Any

from proxy.metering import writer
from proxy.metering.segment import SegmentWriter
from sluice_cli.__main__ import main

BAD_DISK = "SLUICE_BENCH_BAD_DISK"
FULL, STALLED = "full", "stalled"


class BadDisk(SegmentWriter):
    """Writes when the disk is good."""

    def write(self, *arguments: Any) -> None:
        """Wait, or fail, before anything is written."""
        while (kind := _kind()) is not None:
            if kind == FULL:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            time.sleep(0.01)
        super().write(*arguments)


def _kind() -> str | None:
    try:
        return Path(os.environ[BAD_DISK]).read_text()
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    writer.SegmentWriter = BadDisk  # type: ignore[misc]
    main()
