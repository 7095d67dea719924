"""Connects repeatedly at a constant rate and closes each connection three seconds later; nothing is sent.

python -m bench.storms.connect_app PORT ATTEMPTS_PER_SECOND SOURCES      SOURCES addresses of 127.1.0.0/16, one after the other

The process prints "ready", runs until its standard input is closed, then prints how many attempts reached the network.
"""

import collections
import contextlib
import select
import socket
import sys
import time

from bench.harness.engine import HOST, READY

KEPT_SECONDS = 3
TURN_S = 0.005


def source(number: int) -> str:
    """Return the address of this number."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


def main(port: str, attempts_per_second: str, sources: str) -> None:
    """Connect until the process is stopped."""
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    kept: collections.deque[tuple[float, socket.socket]] = collections.deque()
    began, number, attempts = time.monotonic(), 0, 0
    while not select.select([sys.stdin], [], [], TURN_S)[0]:
        due = (time.monotonic() - began) * float(attempts_per_second)
        while number < due:
            sock = socket.socket()
            sock.setblocking(False)
            with contextlib.suppress(OSError):
                sock.bind((source(number % int(sources)), 0))
                sock.connect_ex((HOST, int(port)))
                attempts += 1
            kept.append((time.monotonic(), sock))
            number += 1
        while kept and kept[0][0] < time.monotonic() - KEPT_SECONDS:
            kept.popleft()[1].close()
    print(attempts, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
