"""Utilisation by group and time: how much of its quota each one used, and where it waited."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.report.svg import TimeAxis, drawing, rect, text
from pipeline.text import human_ms

LEFT: Final = 232
RIGHT: Final = 996
ROW: Final = 26
NUMBERS_FROM: Final = 30
"""Cells as wide as this carry their number."""


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One group: percent of its bound in each column, None: nothing came or no quota; and how long was waited in it."""

    name: str
    percent: Sequence[float | None]
    waited_ms: Sequence[int]


def draw_heat(rows: Sequence[HeatRow], begin_ms: int, column_ms: int, columns: int) -> str:
    """Return the map; above 100 percent a cell takes another colour, and a bar below it says how much of the time somebody waited."""
    width = (RIGHT - LEFT) / max(columns, 1)
    axis = TimeAxis(begin_ms, begin_ms + columns * column_ms, LEFT, RIGHT)
    parts = []
    for number, row in enumerate(rows):
        top = 6 + number * ROW
        parts.append(text(LEFT - 10, top + 15, _short(row.name), anchor="end", kind="value"))
        for column, (percent, waited) in enumerate(zip(row.percent, row.waited_ms, strict=True)):
            parts.append(_cell(LEFT + column * width, top, width, percent, waited, row.name, column_ms))
    base = 6 + len(rows) * ROW
    parts += axis.labels(base + 16)
    parts += _legend(base + 30)
    return drawing(base + 52, "Utilisation of each quota over time", parts)


def _cell(x: float, y: float, width: float, percent: float | None, waited: int, name: str, column_ms: int) -> str:
    gap = 1.5 if width > 8 else 0.4
    box = (x + gap / 2, y, width - gap, ROW - 6)
    if percent is None:
        return rect(*box, "", more=' fill="var(--heat0)" opacity=".45"')
    says = f"{name}: {percent:.0f} % of the bound" + (f", waits of {human_ms(waited)}" if waited else "")
    parts = [rect(*box, "", says=says, more=f' fill="{_colour(percent)}"')]
    share = min(1.0, waited / column_ms)
    if share > 0.005:
        parts.append(rect(box[0], y + ROW - 5, box[2] * share, 3, "", more=' fill="var(--amber-ink)"'))
    if width >= NUMBERS_FROM:
        ink = "#fff" if percent > 55 else "var(--ink)"
        parts.append(
            f'<text x="{x + width / 2:.1f}" y="{y + 14:.1f}" text-anchor="middle" style="fill:{ink};font-size:11px">{percent:.0f}</text>'
        )
    return "".join(parts)


def _colour(percent: float) -> str:
    if percent > 100:  # a little above is normal: a wait follows the request that went over
        return f"color-mix(in srgb, var(--over) {min(100.0, (percent - 100) * 1.25):.0f}%, var(--heat1))"
    return f"color-mix(in srgb, var(--heat1) {min(100.0, max(percent, 0.0)):.0f}%, var(--heat0))"


def _legend(y: float) -> list[str]:
    words = (("0 %", 0), ("100 %", 206), ("180 %", 330), ("share of time with waits", 424))
    parts = [text(LEFT + at, y + 12, label) for label, at in words]
    parts += [rect(LEFT + 28 + at * 17, y + 2, 17, 12, "", more=f' fill="{_colour(at * 10.0)}"') for at in range(10)]
    parts += [rect(LEFT + 250 + at * 15, y + 2, 15, 12, "", more=f' fill="{_colour(120.0 + at * 15)}"') for at in range(5)]
    parts.append(rect(LEFT + 392, y + 6, 26, 4, "", more=' fill="var(--amber-ink)"'))
    return parts


def _short(name: str) -> str:
    most = int((LEFT - 10) / 6.7)
    return name if len(name) <= most else name[: most - 1] + "…"
