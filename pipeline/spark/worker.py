"""Set-up of a Python worker of Spark, once: it keeps its imports."""

import functools
import gc


@functools.cache
def settle() -> None:
    """After the first task: let nothing that is there by now be looked at for garbage again.

    Spark collects garbage after each task. What was imported is most of what there is, stays, and takes longer to look through than a small
    task takes.
    """
    gc.freeze()
