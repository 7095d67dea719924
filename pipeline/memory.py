"""Memory settings: keep freed memory in a process that judges many files, and the memory available to a JVM."""

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ARROW_KEEPS: Final = ("MIMALLOC_PURGE_DELAY", "-1")
"""Arrow keeps freed memory for reuse. By default it returns memory to the kernel after 10 ms, and the kernel clears every page that it
allocates again. Arrow reads this environment variable once, when it is loaded."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 2**30

HEAP_SHARE: Final = 2
"""The JVM's heap gets one byte in this many. The rest is for the JVM's other memory, Python workers and the page cache."""
HEAP_MIB_MIN: Final = 512
"""Spark does not start with less than 450 MiB."""
HEAP_MIB_MAX: Final = 31 * 1_024
"""With a larger heap, the JVM cannot compress references, so each takes twice the memory."""
_MIB: Final = 2**20


@functools.cache
def keep_memory() -> None:
    """Keep freed memory in this process. Arrow's memory is included only when Arrow is not loaded yet.

    A file set allocates hundreds of arrays of some megabytes, one after the other. By default the C library returns each freed array to
    the kernel, which clears every page of the next one; this takes a sixth of the time of a task. Without glibc this does nothing.
    """
    if "pyarrow" not in sys.modules:
        os.environ.setdefault(*ARROW_KEEPS)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def heap_mib(memory_bytes: int) -> int:
    """Return the heap limit of Spark's driver in MiB, for a machine with `memory_bytes` bytes of memory."""
    return min(max(memory_bytes // HEAP_SHARE // _MIB, HEAP_MIB_MIN), HEAP_MIB_MAX)


def memory_bytes(root: Path = Path("/")) -> int:
    """Return the memory that this process may use, in bytes: the machine's memory, or the lowest cgroup limit that applies.

    Args:
        root: directory that contains `proc` and `sys`.
    """
    try:
        lines = (root / "proc" / "meminfo").read_text().splitlines()
    except OSError:  # not Linux
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    total = next(int(line.split()[1]) * 1_024 for line in lines if line.startswith("MemTotal:"))
    return min([total, *_cgroup_limits(root)])


def _cgroup_limits(root: Path) -> Iterator[int]:
    """Yield the limits of this process's cgroup and its ancestors, in bytes, for cgroup v1 and v2. A container may see only the root."""
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
