"""Before and after: the percentage of decisions with a wait, today and under other quotas, by group."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from pipeline.report.charts.svg import drawing, line, text

LEFT: Final = 236
RIGHT: Final = 640
ROW: Final = 28
HEAD: Final = 42
_PLACES: Final = ((664, "bound today → then"), (842, "all waits today → then"))


@dataclass(frozen=True, slots=True)
class Shift:
    """One group: percentages, and text for its bound and its waits."""

    name: str
    before_percent: float
    after_percent: float
    bound: str
    waits: str


def draw_shifts(shifts: Sequence[Shift]) -> str:
    """Return the chart: a grey dot for today, and a coloured dot for the other quotas."""
    top = max([5.0, *(shift.before_percent for shift in shifts), *(shift.after_percent for shift in shifts)])
    end = HEAD + len(shifts) * ROW
    parts = [text(at, 30, words) for at, words in _PLACES]
    for share in (0, 25, 50, 75, 100):
        if share <= top:
            x = _x(share, top)
            parts.append(line(x, HEAD - 4, x, end, "grid"))
            parts.append(text(x, 30, f"{share} %", anchor="middle"))
    for number, shift in enumerate(shifts):
        parts += _row(shift, HEAD + number * ROW + ROW / 2, top)
    return drawing(end + 8, "Share of decisions that had to wait, today and then", parts)


def _row(shift: Shift, y: float, top: float) -> list[str]:
    before, after = _x(shift.before_percent, top), _x(shift.after_percent, top)
    status = (
        "after"
        if abs(shift.after_percent - shift.before_percent) < 0.5
        else "worse"
        if shift.after_percent > shift.before_percent
        else "better"
    )
    tooltip = escape(f"{shift.name}: {shift.before_percent:.1f} % of decisions wait today, {shift.after_percent:.1f} % then")
    return [
        text(LEFT - 14, y + 4, shift.name if len(shift.name) <= 33 else shift.name[:32] + "…", anchor="end", kind="value"),
        line(before, y, after, y, "stem"),
        f'<circle cx="{before:.1f}" cy="{y:.1f}" r="5" class="before"><title>{tooltip}</title></circle>',
        f'<circle cx="{after:.1f}" cy="{y:.1f}" r="6.5" class="{status}"><title>{tooltip}</title></circle>',
        text(_PLACES[0][0], y + 4, shift.bound, kind="value"),
        text(_PLACES[1][0], y + 4, shift.waits, kind="value"),
    ]


def _x(percent: float, top: float) -> float:
    return LEFT + percent / max(top, 1e-9) * (RIGHT - LEFT)
