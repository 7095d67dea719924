"""Starts Spark's Python workers on this machine: `python -m pipeline.spark.daemon`, in place of PySpark's own daemon.

Spark closes the socket of a worker that was idle for a minute, or whose task has ended before the worker was there, as on a busy machine.
The worker then writes to this socket. A Unix socket refuses the write at once, and PySpark's daemon would print a traceback, for example in
a stream that waits for files or during a long query.
"""

import os
import sys
import traceback
from typing import Any, Final

from pyspark import daemon

RAISES: Final = "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"
"""Variable of the environment with which PySpark raises the error of a last write, and does not print it."""
CLOSED: Final = (BrokenPipeError, ConnectionResetError)

_work = daemon.worker


def worker(sock: Any, authenticated: bool) -> int:
    """Serve the tasks of one worker. Return 0 when the worker can be reused, and 1 when its socket is closed."""
    os.environ[RAISES] = "1"
    try:
        return int(_work(sock, authenticated))
    except CLOSED:
        return 1


class Tracebacks:
    """What PySpark's daemon uses of the module `traceback`. It prints none if the socket is closed."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        """Print the current exception."""
        if not isinstance(sys.exception(), CLOSED):
            traceback.print_exc()


if __name__ == "__main__":
    daemon.worker = worker
    vars(daemon)["traceback"] = Tracebacks
    daemon.manager()
