"""Code of child processes that use an inherited segment."""

import contextlib
import fcntl
import multiprocessing
import os
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection

from proxy.base.clock import now_ms
from proxy.shared_usage.file_lock import DEPARTED_AT
from proxy.shared_usage.segment import Segment
from tests.support.memory.shared_workers import SharedWorker


def hold_lock(descriptor: int, pipe: Connection, at: int = 0) -> None:
    """Lock the rows, or another byte of the file, until the process is killed."""
    fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, at)
    pipe.send("locked")
    signal.pause()


@contextlib.contextmanager
def throttles_locked(segment: Segment) -> Iterator[None]:
    """Let another process hold the lock of the row in which departed connections have left throttles."""
    row = next(at for at in range(segment.rows_max) if segment.departed.until_ms(at))
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=hold_lock, args=(segment.descriptor, theirs, DEPARTED_AT + row))
    process.start()
    try:
        assert ours.recv() == "locked"
        yield
    finally:
        process.kill()
        process.join()


def record_many(descriptor: int, pipe: Connection, worker: int, records: int) -> None:
    """Record 1 to 7 units at a time while others do, publish after every thousand records, and return what is known at the end."""
    one = SharedWorker(Segment(os.dup(descriptor)), worker, 1e9, now_ms())
    for number in range(records):
        one.group.record(1 + number % 7, now_ms())
        if not number % 1_000:
            one.publish(now_ms())
    one.publish(now_ms())
    pipe.send("recorded")
    pipe.recv()
    one.pull(now_ms())
    pipe.send(one.known)
