"""Starts Spark's Python workers on this machine: `python -m pipeline.spark.daemon`, in place of PySpark's own daemon.

Spark closes the socket of a worker that was idle for a minute. The worker then writes to this socket. A Unix socket refuses the write at
once, and PySpark's daemon would print a traceback, for example in a stream that waits for files or during a long query.
"""

from typing import Any

from pyspark import daemon

_work = daemon.worker


def worker(sock: Any, authenticated: bool) -> int:
    """Serve the tasks of one worker. Return 0 when the worker can be reused, and 1 when its socket is closed."""
    try:
        return int(_work(sock, authenticated))
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
