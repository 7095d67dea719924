"""A limit of open files for this process, near the number that are open."""

import contextlib
import os
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def few_descriptors(more: int) -> Iterator[None]:
    """Let this process open only `more` further descriptors, none with 0.

    The limit stays above what is open: `poll` of another thread of the test process fails with EINVAL when the limit is below the number of
    files that it watches.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
