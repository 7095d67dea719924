"""Which rows of builds that do not count are removed, and when.

Rows of a run that ended early are removed by the next run that publishes: no run that began before it can publish any more. Rows of a build
that a later one replaced stay for `KEPT_MS`, since a query that has read `runs` before still counts them.
"""

import datetime
import time
from typing import Final

KEPT_MS: Final = 3_600_000
"""Time that a query may take, from reading `runs` to reading its other tables."""


def kept_since_ms() -> int:
    """Return the time, in milliseconds of Unix time, since when builds that counted keep their rows."""
    return int(time.time() * 1_000) - KEPT_MS


def days_of(first: datetime.date, last: datetime.date) -> str:
    """Return a filter in SQL for the days of a run and the day before, on which an earlier run may have left replaced rows."""
    return f"date >= '{first - datetime.timedelta(days=1)}' AND date <= '{last}'"
