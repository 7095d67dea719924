"""Load of a broker by client and window, as stacked bands."""

from collections.abc import Sequence
from typing import Final

from pipeline.report.charts.svg import TimeAxis, drawing, rect, text

LEFT: Final = 64
RIGHT: Final = 988
TOP: Final = 30
BASE: Final = 190
HEIGHT: Final = 216
COLOURS: Final = ("#2f7bdc", "#e08a1e", "#2a9d78", "#b1499b", "#7a6ff0", "#8c959f")
"""Colours of the bands; the last one is for all other clients."""


def draw_shares(title: str, names: Sequence[str], begin_ms: int, window_ms: int, bands: Sequence[Sequence[float]]) -> str:
    """Return the chart.

    Args:
        title: text above the chart.
        names: names of the bands, lowest first.
        begin_ms: wall-clock start of the first window.
        window_ms: length of a window.
        bands: load of each band by window, all in the same unit.
    """
    windows = len(bands[0])
    axis = TimeAxis(begin_ms, begin_ms + windows * window_ms, LEFT, RIGHT)
    top = max((sum(band[at] for band in bands) for at in range(windows)), default=0.0) or 1.0
    width = (RIGHT - LEFT) / max(windows, 1)
    parts = [text(LEFT, 15, title, kind="name")]
    for at in range(windows):
        floor = float(BASE)
        for number, band in enumerate(bands):
            height = band[at] / top * (BASE - TOP)
            tooltip = f"{names[number]}: {100 * band[at] / (sum(its[at] for its in bands) or 1):.0f} %"
            if height > 0.05:
                parts.append(
                    rect(
                        LEFT + at * width,
                        floor - height,
                        width - (0.6 if width > 4 else 0),
                        height,
                        "",
                        tooltip=tooltip,
                        more=_fill(number, names),
                    )
                )
            floor -= height
    x = LEFT + 8.0 * len(title) + 30
    for number, name in enumerate(names):
        parts += [rect(x, 6, 11, 11, "", more=_fill(number, names)), text(x + 16, 15, name)]
        x += 28 + 6.7 * len(name)
    return drawing(HEIGHT, title, [*parts, *axis.labels(BASE + 17)])


def _fill(number: int, names: Sequence[str]) -> str:
    is_rest = number == len(names) - 1 and names[number] == "others"
    return f' fill="{COLOURS[-1] if is_rest else COLOURS[number % (len(COLOURS) - 1)]}"'
