"""Time limits for all clients. They prevent hangs and are no expectations."""

import time

FLUSH_SECONDS = 120
IDLE_SECONDS = 30


class Patience:
    """Fails when there is no progress for a while."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = time.monotonic()

    def note(self, *, progress: bool, what: str) -> None:
        """Restart the limit on progress; otherwise fail when it has expired, with the present state."""
        if progress:
            self._last = time.monotonic()
        assert time.monotonic() - self._last < self._seconds, f"nothing new for {self._seconds} s after {what}"
