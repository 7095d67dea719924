"""The offered load: when a client wants to send its next request, equal for the real client and the model."""

from typing import Final

BACKLOG_MS: Final = 100
"""A client that was kept waiting makes up for this much of it at most; the rest of its load is given up."""


class Pace:
    """A request every `interval_ms`.

    Attributes:
        due_ms: when the next request is wanted.
    """

    def __init__(self, interval_ms: int, start_ms: int) -> None:
        self.interval_ms = interval_ms
        self.due_ms = start_ms

    def done(self, now_ms: int) -> None:
        """Note that a request went out at `now_ms`."""
        self.due_ms = max(self.due_ms + self.interval_ms, now_ms - BACKLOG_MS)
