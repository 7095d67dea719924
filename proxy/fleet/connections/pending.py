"""Entries about connections that wait for the next message of the hub."""

from __future__ import annotations

from typing import Final

import numpy as np

from proxy.fleet.connections.entries import CONNECTION, NO_CONNECTIONS, Connections

MESSAGE_MAX: Final = 2_000
"""Entries about connections in one message, 64 kB: beside the most entries about groups the message stays below the 1 MB of brokers."""


class PendingConnections:
    """The last entry of each digest that was not published yet."""

    def __init__(self) -> None:
        self._entries: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, data: bytes) -> None:
        """Add entries, as bytes; the last one of a digest is enough."""
        size = CONNECTION.itemsize
        for at in range(0, len(data), size):
            entry = data[at : at + size]
            self._entries[entry[: CONNECTION["digest"].itemsize]] = entry

    def take(self, bytes_max: int) -> Connections:
        """Return the entries for one message of at most this size, at least one, the oldest first."""
        if not self._entries:
            return NO_CONNECTIONS
        count = max(1, min(MESSAGE_MAX, bytes_max // CONNECTION.itemsize))
        taken = [self._entries.pop(digest) for digest in list(self._entries)[:count]]
        return np.frombuffer(b"".join(taken), CONNECTION)
