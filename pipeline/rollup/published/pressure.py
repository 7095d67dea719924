"""Pressure of clients on their quotas: goodput, offered load, and the lengths of waits.

Throttles that were decided and not applied, as in `observe`, do not reduce the goodput.

The offered load is an estimate. C connections that waited W in total during a time T were each active for T - W / C. Without waits, they
would have moved T / (T - W / C) times as much. C is the largest number of connections that waited at the same time, so the estimate is
too high when other connections never waited.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

BUSY_MIN: Final = 0.02
"""Lower limit of the active share of time. It limits the estimate of the offered load to 1 / BUSY_MIN times the goodput."""

HOUR_MS: Final = 3_600_000

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Pressure:
    """The pressure of one group. Rates are in units per second, over the active time of the hours that the series covers.

    Attributes:
        goodput: rate of the units that passed.
        offered: estimated rate of the units that clients would have sent without waits.
        bound: the last recorded bound; None when there was no quota.
        drains_ms: lengths of the windows in which a client waited, ascending.
        waiting_max: highest number of clients that waited at the same time.
        would_ms: total length of the windows in which a throttle was decided and not applied.
        is_listed: False when clients were throttled at level `sample`, which records no times; the waits are then unknown.
    """

    goodput: float
    offered: float
    bound: float | None
    drains_ms: Sequence[int]
    waiting_max: int
    would_ms: int = 0
    is_listed: bool = True

    def drain_ms(self, percent: float) -> float:
        """Return a percentile of the time to drain in ms, 0 when no client waited."""
        return float(np.percentile(self.drains_ms, percent)) if self.drains_ms else 0.0


def pressure_of(series: Rows, throttle_windows: Rows, scale: float) -> Pressure:
    """Return the pressure of one group.

    Args:
        series: the group's rows of rate_series, at least one.
        throttle_windows: the group's rows of throttle_stretches, applied or not.
        scale: factor from recorded units to units of the rate: 1, or percent per nanosecond.
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
    """Return the time from the first to the last second in ms, without whole hours that have no rows.

    The series covers only the groups that waited longest in an hour, so such an hour is unknown.
    """
    total_ms, begin, last = 0, min(times), min(times)
    for at in sorted(times):
        if at // HOUR_MS > last // HOUR_MS + 1:
            total_ms, begin = total_ms + last + 1_000 - begin, at
        last = at
    return total_ms + last + 1_000 - begin


def is_applied(throttle_window: Mapping[str, Any]) -> bool:
    """Whether a client had to wait. Tables of days that an earlier version closed lack the column, and count as applied."""
    return throttle_window.get("applied") is not False
