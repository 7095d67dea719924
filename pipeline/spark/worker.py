"""Sets up a Python worker of Spark, once per process."""

import functools
import gc


@functools.cache
def settle() -> None:
    """Exclude all present objects from garbage collection; called after the first task.

    Spark collects garbage after each task. Most objects belong to imported modules and stay alive. To traverse them takes longer than a
    small task.
    """
    gc.freeze()
