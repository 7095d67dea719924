"""The offered load: the time of the next request, the same for the real client and the model."""

from typing import Final

BACKLOG_MS: Final = 100
"""Maximum backlog in ms: a throttled client sends at most this much of its delayed load later, and drops the rest."""


class Pace:
    """Offers a request every `interval_ms`.

    Attributes:
        due_ms: time of the next request.
    """

    def __init__(self, interval_ms: int, start_ms: int) -> None:
        self.interval_ms = interval_ms
        self.due_ms = start_ms

    def done(self, now_ms: int) -> None:
        """Record that a request was sent at `now_ms`."""
        self.due_ms = max(self.due_ms + self.interval_ms, now_ms - BACKLOG_MS)
