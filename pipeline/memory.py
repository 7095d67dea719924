"""Memory of a process that judges many files: what was freed stays with it, to be used again."""

import ctypes
import functools
import os
import sys
from typing import Final

ARROW_KEEPS: Final = ("MIMALLOC_PURGE_DELAY", "-1")
"""What Arrow frees it uses again. After 10 ms it would give it back to the machine, which clears every page of it when it is asked for
anew; it reads this once, when it is loaded."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 2**30


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
