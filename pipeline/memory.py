"""Memory settings: a process that judges many files keeps freed memory for reuse; and the memory available for a JVM."""

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ARROW_KEEPS: Final = ("MIMALLOC_PURGE_DELAY", "-1")
"""What Arrow frees it uses again. After 10 ms it would give it back to the machine, which clears every page of it when it is asked for
anew; it reads this once, when it is loaded."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 2**30

HEAP_SHARE: Final = 2
"""One in so many bytes of memory is for the JVM's heap; the rest is for what it keeps beside it, Python workers and the page cache."""
HEAP_MIB_MIN: Final = 512
"""With less than 450 MiB Spark does not start."""
HEAP_MIB_MAX: Final = 31 * 1_024
"""With more, each reference takes twice as much."""
_MIB: Final = 2**20


@functools.cache
def keep_memory() -> None:
    """Let memory that was freed stay with this process; Arrow's too, where that is not loaded yet.

    A file set makes hundreds of arrays of some megabytes, one after the other. The C library gives each back to the machine when it is
    freed and asks for the next one anew, and the machine clears every page of it: a sixth of the time of a task. Where the C library
    is another one than GNU's, all stays as it is.
    """
    if "pyarrow" not in sys.modules:
        os.environ.setdefault(*ARROW_KEEPS)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def heap_mib(memory_bytes: int) -> int:
    """Return how large the heap of Spark's driver may grow on a machine with so much memory, in MiB."""
    return min(max(memory_bytes // HEAP_SHARE // _MIB, HEAP_MIB_MIN), HEAP_MIB_MAX)


def memory_bytes(root: Path = Path("/")) -> int:
    """Return how much memory this process may use: the machine's, or what the nearest cgroup above it allows.

    Args:
        root: where `proc` and `sys` are.
    """
    try:
        lines = (root / "proc" / "meminfo").read_text().splitlines()
    except OSError:  # not Linux
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    total = next(int(line.split()[1]) * 1_024 for line in lines if line.startswith("MemTotal:"))
    return min([total, *_cgroup_limits(root)])


def _cgroup_limits(root: Path) -> Iterator[int]:
    """The limits of this process's cgroup and of those above it, in version 1 and 2; a container may see only the last one."""
    try:
        lines = (root / "proc" / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    mounted = root / "sys" / "fs" / "cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top, name = (mounted / "memory", "memory.limit_in_bytes") if controllers else (mounted, "memory.max")
        place = top / path.lstrip("/")
        for folder in (place, *(parent for parent in place.parents if parent.is_relative_to(top))):
            with contextlib.suppress(OSError, ValueError):  # "max": none
                yield int((folder / name).read_text())
