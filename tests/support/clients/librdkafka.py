"""Ends librdkafka clients that a test left behind: they connect to ports of ended servers, which may belong to another test by then."""

import gc
from pathlib import Path

_known: set[str] = set()
"""Threads of clients that are in use beyond one test: they were there after the last collection."""


def end_clients_left() -> None:
    """End every client without a reference to it.

    A client ends with its object. One in a reference cycle waits for the garbage collector, and an App in the same process freezes such
    cycles, so that they would wait without end. A full collection takes up to a second, so there is none for clients that survived one.
    """
    if _client_threads() - _known:
        gc.unfreeze()
        gc.collect()
        _known.clear()
        _known.update(_client_threads())


def _client_threads() -> set[str]:
    """Return the ids of this process's threads of librdkafka, which have a common prefix."""
    found = set()
    for task in Path("/proc/self/task").glob("*/comm"):
        try:
            if task.read_text().startswith("rdk:"):
                found.add(task.parent.name)
        except OSError:  # the thread has just ended
            continue
    return found
