"""Entries of messages about connections, and the digests that name what they are about.

An entry is complete by itself: a later one replaces it. So loss and duplicates change nothing after the next entry.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

DIGEST_BYTES: Final = 16
CONNECTION: Final = np.dtype([("digest", "V16"), ("total", "<i8"), ("recent", "<u4"), ("open", "<u4")])
"""What it is about; a number that grew with each connection that was counted in the rate; how many of these are of the last window, at
least those of its last third; and how many connections are open."""
Connections = npt.NDArray[np.void]
NO_CONNECTIONS: Final[Connections] = np.zeros(0, CONNECTION)
RECENT_MAX: Final = 2**32 - 1


def connection_digest(fleet_key: bytes, *named: str | int) -> bytes:
    """Return the digest of an address, a listener, the process or a principal; without the key no name can be found from it."""
    return blake2b(repr(named).encode("utf-8", "surrogatepass"), key=fleet_key, digest_size=DIGEST_BYTES, person=b"connections").digest()
