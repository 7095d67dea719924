"""Goodput and offered load: units that passed, and the estimate of units that clients would have sent without waits."""

from collections.abc import Sequence
from typing import Final

from pipeline.report.charts.svg import drawing, line, rect, short, text
from pipeline.rollup.published.pressure import Pressure
from pipeline.text import human_ms, human_rate

LEFT: Final = 236
RIGHT: Final = 560
ROW: Final = 34
HEAD: Final = 26
_PLACES: Final = ((580, "goodput of offered"), (772, "time to drain: half · 95 % · longest"))


def draw_pressure(groups: Sequence[tuple[str, str, Pressure]]) -> str:
    """Return the chart. Each row has its own scale, since groups differ by orders of magnitude.

    Args:
        groups: (name, quota type, pressure).
    """
    parts = [text(at, 15, words) for at, words in _PLACES]
    for number, (name, quota_type, pressure) in enumerate(groups):
        parts += _row(name, quota_type, pressure, HEAD + number * ROW)
    return drawing(HEAD + len(groups) * ROW + 6, "Goodput against offered load", parts)


def _row(name: str, quota_type: str, pressure: Pressure, y: float) -> list[str]:
    top = max(pressure.offered, pressure.bound or 0.0, 1e-12)
    goodput, offered = (LEFT + rate / top * (RIGHT - LEFT) for rate in (pressure.goodput, pressure.offered))
    rates = tuple(human_rate(quota_type, rate) for rate in (pressure.goodput, pressure.offered))
    drains = " · ".join(human_ms(pressure.drain_ms(percent)) for percent in (50, 95, 100))
    parts = [
        text(LEFT - 14, y + 17, short(name, 33), anchor="end", kind="value"),
        rect(LEFT, y + 4, offered - LEFT, 18, "area", tooltip=f"{name}: about {rates[1]} offered"),
        rect(LEFT, y + 4, goodput - LEFT, 18, "bar", tooltip=f"{name}: {rates[0]} went through"),
        text(_PLACES[0][0], y + 17, f"{rates[0]} of {rates[1]}", kind="value"),
        text(_PLACES[1][0], y + 17, drains if pressure.drains_ms else _without_waits(pressure), kind="value"),
    ]
    if pressure.bound is not None:
        at = LEFT + pressure.bound / top * (RIGHT - LEFT)
        parts.append(line(at, y, at, y + 26, "bound"))
    return parts


def _without_waits(pressure: Pressure) -> str:
    if not pressure.is_listed:
        return "not known at level sample"
    return f"no client; would have, {human_ms(pressure.would_ms)}" if pressure.would_ms else "no client waited"
