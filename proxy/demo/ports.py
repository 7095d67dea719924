"""Finds free ports for a proxy that needs their numbers before it starts."""

import random
import socket
from typing import Final

FIRST_PORT: Final = 12_000
LAST_PORT: Final = 32_000  # below the kernel's range for outgoing connections
TRIES: Final = 1_000


def free_ports(count: int) -> int:
    """Return the first of `count` consecutive ports without a listener at 127.0.0.1.

    Raises:
        OSError: there are no such ports.
    """
    dice = random.SystemRandom()
    for _ in range(TRIES):
        first = dice.randrange(FIRST_PORT, LAST_PORT - count)
        if all(map(_is_free, range(first, first + count))):
            return first
    raise OSError(f"no {count} neighbouring free ports between {FIRST_PORT} and {LAST_PORT}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
