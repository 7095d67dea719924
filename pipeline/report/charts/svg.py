"""Elements of SVG: a drawing with a text alternative, and axes of time and of values."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Final

WIDTH: Final = 1_000
_TIME_STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800)


def drawing(height: float, title: str, parts: Iterable[str]) -> str:
    """Return a drawing over the full width of the page."""
    body = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">\n<title>{escape(title)}</title>\n{body}\n</svg>\n'
    )


def text(x: float, y: float, words: str, *, anchor: str = "start", kind: str = "") -> str:
    """Return a text element."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{_kind(kind)}>{escape(words)}</text>'


def short(words: str, most: int) -> str:
    """Return at most `most` characters: the beginning and the end, since names often differ at the end."""
    return words if len(words) <= most else f"{words[: most - most // 2 - 1]}…{words[-(most // 2) :]}"


def rect(x: float, y: float, width: float, height: float, kind: str, *, tooltip: str = "", more: str = "") -> str:
    """Return a rectangle, with a tooltip unless `tooltip` is empty."""
    tip = f"<title>{escape(tooltip)}</title>" if tooltip else ""
    return f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0):.2f}" height="{max(height, 0):.2f}"{_kind(kind)}{more}>{tip}</rect>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """Return a straight line."""
    return f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}"{_kind(kind)}/>'


def path(points: Sequence[tuple[float, float]], kind: str, *, closed_at: float | None = None, more: str = "") -> str:
    """Return a line through points, or the area between the line and the height `closed_at`."""
    if not points:
        return ""
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    end = "" if closed_at is None else f"L{points[-1][0]:.1f} {closed_at:.1f}L{points[0][0]:.1f} {closed_at:.1f}Z"
    return f'<path d="M{steps}{end}"{_kind(kind)}{more}/>'


def _kind(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Maps times in ms to horizontal positions between `left` and `right`."""

    begin_ms: int
    end_ms: int
    left: float
    right: float

    def x(self, time_ms: float) -> float:
        """Return the horizontal position of a time."""
        span_ms = max(self.end_ms - self.begin_ms, 1)
        return self.left + (time_ms - self.begin_ms) / span_ms * (self.right - self.left)

    def ticks(self, most: int = 9) -> list[tuple[float, str]]:
        """Return positions with labels, at full minutes, hours or days."""
        span_s = (self.end_ms - self.begin_ms) / 1_000
        step_s = next((step for step in _TIME_STEPS_S if span_s / step <= most), _TIME_STEPS_S[-1])
        first = math.ceil(self.begin_ms / 1_000 / step_s) * step_s
        times = range(first, int(self.end_ms // 1_000) + 1, step_s)
        form = "%d %b" if step_s >= 86_400 else "%d %b %H:%M" if span_s > 86_400 else "%H:%M" if step_s >= 60 else "%H:%M:%S"
        return [(self.x(time_s * 1_000), datetime.fromtimestamp(time_s, UTC).strftime(form)) for time_s in times]

    def labels(self, y: float) -> list[str]:
        """Return the labels below the axis; none extends beyond the edge."""
        parts = []
        for at, label in self.ticks():
            near_edge = at > self.right - 4 * len(label)
            parts.append(text(min(at, self.right) if not near_edge else self.right, y, label, anchor="end" if near_edge else "middle"))
        return parts


def nice_steps(top: float, most: int = 4) -> list[float]:
    """Return values from 0 to `top` for grid lines, in steps of 1, 2 or 5 times a power of ten."""
    if top <= 0:
        return [0.0]
    power = 10.0 ** math.floor(math.log10(top / most))
    step = next(step * power for step in (1, 2, 5, 10) if top / (step * power) <= most)
    return [step * at for at in range(math.floor(top / step + 1e-9) + 1)]
