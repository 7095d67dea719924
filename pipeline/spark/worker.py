"""What a Python worker of Spark does once: it keeps its memory, and what it imported."""

import ctypes
import functools
import gc
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 2**30


@functools.cache
def keep_memory() -> None:
    """Let memory that was freed stay with this process, to be used again.

    A task makes hundreds of arrays of some megabytes, one after the other. The C library gives each back to the machine when it is
    freed and asks for the next one anew, and the machine clears every page of it: a sixth of the time of a task. Where the C library
    is another one than GNU's, all stays as it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


@functools.cache
def settle() -> None:
    """After the first task: let nothing that is there by now be looked at for garbage again.

    Spark collects garbage after each task. What was imported is most of what there is, stays, and takes longer to look through than a small
    task takes.
    """
    gc.freeze()
