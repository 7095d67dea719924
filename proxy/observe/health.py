"""Health of the process: whether it should be restarted."""

from collections import deque
from typing import Final

ERRORS_PER_MINUTE_MAX: Final = 100
MINUTE_MS: Final = 60_000
_SAMPLES_MAX: Final = 128


class Health:
    """Counts connections that ended by an internal error within a minute; each such error is a bug."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=_SAMPLES_MAX)

    def complaint(self, internal_errors: int, now_ms: int) -> str | None:
        """Return the problem, or None; `internal_errors` is the count since the process began."""
        while len(self._samples) > 1 and now_ms - self._samples[1][0] >= MINUTE_MS:
            self._samples.popleft()
        since_ms, before = self._samples[0] if self._samples else (now_ms, 0)
        if not self._samples or now_ms - self._samples[-1][0] >= MINUTE_MS // _SAMPLES_MAX:
            self._samples.append((now_ms, internal_errors))
        minutes = max(1.0, (now_ms - since_ms) / MINUTE_MS)
        errors = internal_errors - before
        if errors <= ERRORS_PER_MINUTE_MAX * minutes:
            return None
        return f"{errors} internal errors within {max(1, (now_ms - since_ms) // 1_000)} s"
