"""Time limits for all clients. They guard against hangs, and are no expectations."""

import time

FLUSH_SECONDS = 120
IDLE_SECONDS = 30


class Patience:
    """Fails when nothing has happened for a while."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = time.monotonic()

    def note(self, *, progress: bool, what: str) -> None:
        """Start anew on progress; otherwise fail once the time is over, saying what there is."""
        if progress:
            self._last = time.monotonic()
        assert time.monotonic() - self._last < self._seconds, f"nothing new for {self._seconds} s after {what}"
