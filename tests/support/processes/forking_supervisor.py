"""`python -m tests.support.processes.forking_supervisor`: starts a worker with the fork server for each line that it reads.

It prints the worker's id. The line `kill` kills the fork server before. The line `end` closes the links of the last worker, and prints its
exit code.
"""

import os
import signal
import socket
import sys
import time

from proxy.shared_usage.segment import Segment
from proxy.workers.messaging.passing import socket_pair
from proxy.workers.processes.fork_server import ChildProcess, ForkServer, start_fork_server
from tests.support.processes.sluice_workers import children_of

Started = tuple[ChildProcess, list[socket.socket]]


def main() -> None:
    """Start workers until the input ends."""
    server = start_fork_server()
    assert server is not None
    segment = Segment.create(2, 16, 11, 1_000)
    started: list[Started] = []
    for line in map(str.strip, sys.stdin):
        if line == "end":
            print(_exit_code(*started.pop()), flush=True)
            continue
        if line == "kill":
            os.kill(children_of(os.getpid(), "sluice-forks")[0], signal.SIGKILL)
        started.append(_start(server, segment))
        print(started[-1][0].pid, flush=True)
    server.close()


def _start(server: ForkServer, segment: Segment) -> Started:
    pairs = [pair() for pair in (socket.socketpair, socket_pair, socket_pair)]
    process = server.spawn("proxy.workers.main", [*(there.fileno() for _, there in pairs), segment.descriptor])
    for _, there in pairs:
        there.close()
    return process, [here for here, _ in pairs]


def _exit_code(process: ChildProcess, links: list[socket.socket]) -> int:
    for link in links:
        link.close()
    while (code := process.poll()) is None:
        time.sleep(0.01)
    return code


if __name__ == "__main__":
    main()
