"""`--profile`: each process of a Sluice profiles its event loop, and prints the profile when it ends."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def profiled(process: str, requests: Callable[[], int], *, wanted: bool) -> Iterator[None]:
    """Profile the thread for the length of a block, if `wanted`, and print the profile to standard error.

    Args:
        process: the name of the process, which is printed above the profile; empty: there is only one.
        requests: returns the number of requests that the process has forwarded.
        wanted: whether it is profiled.
    """
    if not wanted:
        yield
        return
    from proxy.observe.profile import Profiler  # imported here: without profiling no profiler is loaded

    profiler = Profiler()
    profiler.start()
    try:
        yield
    finally:
        title = f"{process}\n" if process else ""
        sys.stderr.write(f"{title}{profiler.report(requests())}\n")
