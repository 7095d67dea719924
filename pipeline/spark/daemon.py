"""Starts Python workers of Spark on this machine: `python -m pipeline.spark.daemon`, in place of PySpark's own.

Spark closes the socket of a worker that had nothing to do for a minute. The worker says so into that very socket, which a Unix socket
refuses at once, and a traceback of it would stand on the terminal: of a stream that waits for files, or of a long query.
"""

from typing import Any

from pyspark import daemon

_work = daemon.worker


def worker(sock: Any, authenticated: bool) -> int:
    """Serve the tasks of one worker; return 0 where there may be more, else 1: it ends, and no one listens any more."""
    try:
        return int(_work(sock, authenticated))
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
