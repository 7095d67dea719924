"""Pressure of clients on their quotas: units that passed, units that they would have sent, and the lengths of waits.

Waits that were decided and not applied, as in `observe`, kept nothing back.

The offered load is an estimate. C connections that together waited W of a time T were busy for T - W / C of it each; had they not waited,
they would have moved T / (T - W / C) times as much. C is the largest number that was seen waiting at once, so the estimate is high where
others never waited.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

BUSY_MIN: Final = 0.02
"""Who waits nearly all the time would press without limit; the estimate stops at 1 / this."""

HOUR_MS: Final = 3_600_000

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Pressure:
    """Of one group; rates in units per second, over the seconds from its first to its last in hours that the series has of it.

    Attributes:
        drains_ms: lengths of the times in which a client waited, ascending.
        waiting_max: how many waited at once.
        would_ms: how long clients would have waited, had the waits been applied.
        is_listed: False: a client was throttled, and at level `sample` it was not recorded when, so that nothing is known of the rest.
    """

    goodput: float
    offered: float
    bound: float | None
    drains_ms: Sequence[int]
    waiting_max: int
    would_ms: int = 0
    is_listed: bool = True

    def drain_ms(self, percent: float) -> float:
        """Return a percentile of the time to drain."""
        return float(np.percentile(self.drains_ms, percent)) if self.drains_ms else 0.0


def pressure_of(series: Rows, throttle_windows: Rows, scale: float) -> Pressure:
    """Work out the pressure of one group.

    Args:
        series: its rows of rate_series.
        stretches: its rows of throttle_stretches, applied or not.
        scale: units per unit of rate: 1, or percent per nanosecond.
    """
    span_ms = _active_ms([row["second_ms"] for row in series])
    hours = {row["second_ms"] // HOUR_MS for row in series}
    throttle_windows = [row for row in throttle_windows if row["begin_ms"] // HOUR_MS in hours]
    goodput = sum(row["units"] for row in series) * scale / (span_ms / 1_000)
    applied = [row for row in throttle_windows if is_applied(row)]
    waited_ms = sum(row["throttle_ms"] for row in applied)
    at_once = max((row["waiting_max"] for row in applied), default=0)
    busy = 1.0 if not at_once else max(1.0 - waited_ms / (at_once * span_ms), BUSY_MIN)
    bounds = [row["bound"] for row in series if row["bound"] is not None]
    drains = sorted(row["end_ms"] - row["begin_ms"] for row in applied)
    would_ms = sum(row["end_ms"] - row["begin_ms"] for row in throttle_windows if not is_applied(row))
    is_listed = bool(throttle_windows) or not any(row.get("throttled") for row in series)
    return Pressure(goodput, goodput / busy, bounds[-1] if bounds else None, drains, at_once, would_ms, is_listed)


def _active_ms(times: Sequence[int]) -> int:
    """From the first second to the last, but for whole hours without any: others waited longer then, and the series has only those."""
    total_ms, begin, last = 0, min(times), min(times)
    for at in sorted(times):
        if at // HOUR_MS > last // HOUR_MS + 1:
            total_ms, begin = total_ms + last + 1_000 - begin, at
        last = at
    return total_ms + last + 1_000 - begin


def is_applied(throttle_window: Mapping[str, Any]) -> bool:
    """Whether a client had to wait; tables of closed days may be older than the column, and say nothing of it."""
    return throttle_window.get("applied") is not False
