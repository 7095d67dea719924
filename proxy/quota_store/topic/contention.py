"""The wait of a writer that another one has fenced. Without it two writers on a slow cluster fence each other forever.

Each try begins with InitProducerId, which ends the try of every other writer. A try succeeds when no other one begins before its commit.
So a fenced writer waits a random part of a time that grows with the duration of its tries and with their number.

Source: exponential backoff with full jitter, as of `ExponentialBackoff` in Kafka's clients.
"""

import random
from typing import Final

from proxy.quota_store.store import StoreUnavailable

LIMIT_S: Final = 25.0
"""Time in which a change has to be written; admin clients wait 30 s for a response."""
_LONGEST_EXPONENT: Final = 4


class Contention:
    """The tries of one change.

    Args:
        place: name of the store in messages.
        now_s: time at which the first try begins.
        generator: random numbers; None: a generator of its own.
    """

    def __init__(self, place: str, now_s: float, generator: random.Random | None = None) -> None:
        self._place = place
        self._began_s = now_s
        self._try_began_s = now_s
        self._tries = 0
        self._random = generator or random.Random()  # noqa: S311 - it spreads the tries of writers, and protects nothing

    def begin(self, now_s: float) -> None:
        """Begin a try."""
        self._try_began_s = now_s

    def lost(self, now_s: float) -> float:
        """Return the time to wait before the next try, in seconds.

        Raises:
            StoreUnavailable: the time for this change is over; nothing was changed.
        """
        self._tries += 1
        if now_s - self._began_s >= LIMIT_S:
            line = f"{self._place}: other processes changed quotas for {LIMIT_S:.0f} s without a pause; try again, nothing was changed"
            raise StoreUnavailable(line)
        longest_s = (now_s - self._try_began_s) * 2.0 ** min(self._tries, _LONGEST_EXPONENT)
        return min(self._random.uniform(0.0, longest_s), self._began_s + LIMIT_S - now_s)
