"""Entries about connections that wait for the next message of the hub."""

from __future__ import annotations

from typing import Final

import numpy as np

from proxy.fleet.connections.entries import CONNECTION, NO_CONNECTIONS, Connections

MESSAGE_MAX: Final = 2_000
"""Entries about connections in one message, 64 kB: beside the most entries about groups the message stays below the 1 MB of brokers."""
PENDING_MAX: Final = 65_536
"""Maximum number of entries, which wait while the bus cannot be used; beyond it the oldest one is dropped."""


class PendingConnections:
    """The last entry of each digest that was not published yet."""

    def __init__(self) -> None:
        self._entries: dict[bytes, bytes] = {}
        self._taken: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, data: bytes) -> None:
        """Add entries, as bytes; the last one of a digest is enough."""
        size = CONNECTION.itemsize
        for at in range(0, len(data), size):
            entry = data[at : at + size]
            self._entries[entry[: CONNECTION["digest"].itemsize]] = entry
        while len(self._entries) > PENDING_MAX:
            del self._entries[next(iter(self._entries))]

    def take(self, bytes_max: int) -> Connections:
        """Return the entries for one message of at most this size, at least one, the oldest first; without `published` they come again."""
        if self._taken:
            self._entries, self._taken = {**self._taken, **self._entries}, {}
        if not self._entries:
            return NO_CONNECTIONS
        count = max(1, min(MESSAGE_MAX, bytes_max // CONNECTION.itemsize))
        self._taken = {digest: self._entries.pop(digest) for digest in list(self._entries)[:count]}
        return np.frombuffer(b"".join(self._taken.values()), CONNECTION)

    def published(self) -> None:
        """The bus has accepted the entries that were taken last."""
        self._taken = {}
