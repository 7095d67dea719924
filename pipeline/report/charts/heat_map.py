"""Utilisation by group and time: the used percentage of each quota, and the waits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.report.charts.svg import TimeAxis, drawing, rect, short, text
from pipeline.text import human_ms

LEFT: Final = 232
RIGHT: Final = 996
ROW: Final = 26
NAME_MAX: Final = int((LEFT - 10) / 6.7)
NUMBERS_FROM: Final = 30
"""Width from which a cell shows its number."""


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One group. Each column has the percentage of its bound (None without traffic or quota), and the waits, applied and not applied."""

    name: str
    percent: Sequence[float | None]
    waited_ms: Sequence[int]
    would_ms: Sequence[int]


def draw_heat(rows: Sequence[HeatRow], begin_ms: int, column_ms: int, columns: int) -> str:
    """Return the chart. A cell above 100 percent has another colour, and a bar below it shows the share of time with waits."""
    width = (RIGHT - LEFT) / max(columns, 1)
    axis = TimeAxis(begin_ms, begin_ms + columns * column_ms, LEFT, RIGHT)
    parts = []
    for number, row in enumerate(rows):
        top = 6 + number * ROW
        parts.append(text(LEFT - 10, top + 15, short(row.name, NAME_MAX), anchor="end", kind="value"))
        for column, (percent, *waits) in enumerate(zip(row.percent, row.waited_ms, row.would_ms, strict=True)):
            shares = [min(1.0, ms / column_ms) for ms in waits]
            tooltip = f"{row.name}: {percent or 0.0:.0f} % of the bound" + _waits_text(*waits)
            parts.append(_cell(LEFT + column * width, top, width, percent, shares, tooltip))
    base = 6 + len(rows) * ROW
    parts += axis.labels(base + 16)
    parts += _legend(base + 30)
    return drawing(base + 52, "Utilisation of each quota over time", parts)


def _waits_text(waited_ms: int, would_ms: int) -> str:
    waited = f", waits of {human_ms(waited_ms)}" if waited_ms else ""
    return waited + (f", would have waited {human_ms(would_ms)}" if would_ms else "")


def _cell(x: float, y: float, width: float, percent: float | None, shares: Sequence[float], tooltip: str) -> str:
    gap = 1.5 if width > 8 else 0.4
    box = (x + gap / 2, y, width - gap, ROW - 6)
    if percent is None:
        return rect(*box, "", more=' fill="var(--heat0)" opacity=".45"')
    parts = [rect(*box, "", tooltip=tooltip, more=f' fill="{_colour(percent)}"')]
    for share, ink in reversed(list(zip(shares, ("amber-ink", "grey"), strict=True))):  # applied waits are drawn above the others
        if share > 0.005:
            parts.append(rect(box[0], y + ROW - 5, box[2] * share, 3, "", more=f' fill="var(--{ink})"'))
    if width >= NUMBERS_FROM:
        ink = "#fff" if percent > 55 else "var(--ink)"
        parts.append(
            f'<text x="{x + width / 2:.1f}" y="{y + 14:.1f}" text-anchor="middle" style="fill:{ink};font-size:11px">{percent:.0f}</text>'
        )
    return "".join(parts)


def _colour(percent: float) -> str:
    if percent > 100:  # slightly above is normal, since the wait follows the request that exceeded the quota
        return f"color-mix(in srgb, var(--over) {min(100.0, (percent - 100) * 1.25):.0f}%, var(--heat1))"
    return f"color-mix(in srgb, var(--heat1) {min(100.0, max(percent, 0.0)):.0f}%, var(--heat0))"


def _legend(y: float) -> list[str]:
    words = (("0 %", 0), ("100 %", 206), ("180 %", 330), ("share of time with waits", 424), ("would have waited", 620))
    parts = [text(LEFT + at, y + 12, label) for label, at in words]
    parts += [rect(LEFT + 28 + at * 17, y + 2, 17, 12, "", more=f' fill="{_colour(at * 10.0)}"') for at in range(10)]
    parts += [rect(LEFT + 250 + at * 15, y + 2, 15, 12, "", more=f' fill="{_colour(120.0 + at * 15)}"') for at in range(5)]
    parts += [rect(LEFT + at, y + 6, 26, 4, "", more=f' fill="var(--{ink})"') for at, ink in ((392, "amber-ink"), (588, "grey"))]
    return parts
