"""A worker process is started as its supervisor starts it."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from proxy.config.flags import Flags
from proxy.shared_usage.segment import Segment
from proxy.workers.messaging.link import LENGTH
from proxy.workers.messaging.messages import Start, encoded
from proxy.workers.messaging.passing import socket_pair
from tests.support.places import ROOT

END_S_MAX = 30
START = Start(None, None, Flags(listen="127.0.0.1:1", upstream="127.0.0.1:2"), 0, [0, 1])


@pytest.fixture
def started() -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """Yield a worker that waits for its first message, and the supervisor's end of its link."""
    segment = Segment.create(2, 16, 11, 1_000)
    pairs = [socket.socketpair(), socket_pair(), socket_pair()]
    descriptors = [*(there.fileno() for _, there in pairs), segment.descriptor]
    command = [sys.executable, "-m", "proxy.workers.main", *map(str, descriptors)]
    process = subprocess.Popen(command, pass_fds=descriptors, cwd=ROOT)
    for _, there in pairs:
        there.close()
    try:
        yield process, pairs[0][0]
    finally:
        process.kill()
        process.wait()
        for here, _ in pairs:
            here.close()


def test_a_supervisor_that_dies_before_it_said_anything_leaves_no_worker(started: tuple[subprocess.Popen[bytes], socket.socket]) -> None:
    """A worker whose supervisor dies before the first message ends with exit code 1."""
    process, link = started
    link.close()
    assert process.wait(END_S_MAX) == 1


def test_a_supervisor_that_dies_while_a_worker_begins_leaves_no_worker(started: tuple[subprocess.Popen[bytes], socket.socket]) -> None:
    """A worker whose supervisor dies while it starts ends with exit code 0."""
    process, link = started
    message = encoded(START)
    link.sendall(LENGTH.pack(len(message)) + message)
    link.close()
    assert process.wait(END_S_MAX) == 0


def test_a_terminal_that_goes_away_ends_no_worker(started: tuple[subprocess.Popen[bytes], socket.socket]) -> None:
    """SIGHUP and SIGINT do not end a worker, and the end of its supervisor does."""
    process, link = started
    message = encoded(START)
    link.sendall(LENGTH.pack(len(message)) + message)
    link.recv(1)  # wait until it is ready
    for sig in (signal.SIGHUP, signal.SIGINT):
        os.kill(process.pid, sig)
    link.close()
    assert process.wait(END_S_MAX) == 0
