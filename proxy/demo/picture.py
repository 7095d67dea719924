"""The picture of a run in SVG: one panel for each client, all with one time scale.

It has its own background, and follows the reader's light or dark colour scheme. Colour-blind readers can distinguish its colours, and no
information is in colour alone: the bound is dashed, the model is a line, the measurement is an area.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

WIDTH: Final = 960
MARGIN_LEFT: Final = 64
MARGIN_RIGHT: Final = 88
EDGE: Final = 28
HEAD_HEIGHT: Final = 136
PLOT_HEIGHT: Final = 132
PANEL_HEIGHT: Final = 206
PANEL_HEAD: Final = 34
FOOT_HEIGHT: Final = 34
PLOT_WIDTH: Final = WIDTH - MARGIN_LEFT - MARGIN_RIGHT
SECOND_STEPS: Final = (1, 2, 5, 10, 20)
TICKS_MAX: Final = 8

STYLE: Final = """
  svg { color-scheme: light dark }
  text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; fill: #1f2328 }
  .card { fill: #ffffff; stroke: #d0d7de } .title { font-size: 23px; font-weight: 700 } .small { font-size: 13px; fill: #59636e }
  .axis { font-size: 12px; fill: #59636e } .name { font-size: 16px; font-weight: 700 } .result { font-size: 13px }
  .grid { stroke: #d8dee4; stroke-width: 1 } .base { stroke: #818b98; stroke-width: 1 }
  .model { fill: none; stroke: #1f2328; stroke-width: 1.8; stroke-linejoin: round }
  .bound { stroke: #cf222e; stroke-width: 2; stroke-dasharray: 7 5 } .bound-name { font-size: 12px; font-weight: 600; fill: #cf222e }
  .area { opacity: .5 } .mean { fill: none; stroke-width: 3; stroke-linecap: round; stroke-linejoin: round }
  .fill0 { fill: #5aa0f2 } .line0 { stroke: #0b57b7 } .text0 { fill: #0b57b7 }
  .fill1 { fill: #f2a444 } .line1 { stroke: #a85a00 } .text1 { fill: #a85a00 }
  .fill2 { fill: #4dbd98 } .line2 { stroke: #0f7357 } .text2 { fill: #0f7357 }
  .fill3 { fill: #b58ae8 } .line3 { stroke: #6b2fb3 } .text3 { fill: #6b2fb3 }
  .fill4 { fill: #e88ab0 } .line4 { stroke: #a1195a } .text4 { fill: #a1195a }
  .fill9 { fill: #a8b1bb } .line9 { stroke: #6e7781 } .good { fill: #1a7f37; font-weight: 700 } .bad { fill: #cf222e; font-weight: 700 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .card { fill: #0d1117; stroke: #3d444d } .small, .axis { fill: #9198a1 }
    .grid { stroke: #262c36 } .base { stroke: #656c76 } .model { stroke: #f0f6fc }
    .bound { stroke: #ff7b72 } .bound-name { fill: #ff7b72 }
    .fill0 { fill: #2f6fc4 } .line0 { stroke: #79b8ff } .text0 { fill: #79b8ff }
    .fill1 { fill: #b0700f } .line1 { stroke: #ffb757 } .text1 { fill: #ffb757 }
    .fill2 { fill: #1f8767 } .line2 { stroke: #5fe0b5 } .text2 { fill: #5fe0b5 }
    .fill3 { fill: #7a4dbf } .line3 { stroke: #c9a6ff } .text3 { fill: #c9a6ff }
    .fill4 { fill: #a8416f } .line4 { stroke: #ff9ac2 } .text4 { fill: #ff9ac2 }
    .fill9 { fill: #656c76 } .line9 { stroke: #9198a1 } .good { fill: #3fb950 } .bad { fill: #ff7b72 }
  }
"""

PARTS_STYLE: Final = ".part0 { opacity: .9 } .part1 { opacity: .6 } .part2 { opacity: .4 } .part3 { opacity: .25 }"
"""Shades of the bars of several proxies, from the lowest up."""


@dataclass(frozen=True)
class Panel:
    """The data of one client's panel; panels of the same unit have the same scale.

    Attributes:
        unit: unit of the rates.
        wants: description of the offered load.
        measured, predicted: rate in each second.
        parts: the measured rate at each proxy, if there are several.
        mean: second, and mean rate of the ten seconds before it.
    """

    name: str
    caption: str
    unit: str
    bound: float | None
    wants: str
    measured: Sequence[float]
    predicted: Sequence[float]
    mean: Sequence[tuple[float, float]]
    result: str
    is_good: bool
    parts: Sequence[Sequence[float]] = ()


class Scale:
    """Converts seconds and rates to coordinates inside a plot."""

    def __init__(self, seconds: int, top: float) -> None:
        self.seconds = seconds
        self.top = top

    def x(self, second: float) -> float:
        """Return the horizontal coordinate of a second."""
        return MARGIN_LEFT + second / self.seconds * PLOT_WIDTH

    def y(self, rate: float) -> float:
        """Return the vertical coordinate of a rate; 0 is the top of the plot."""
        return PLOT_HEIGHT * (1 - rate / self.top)

    def rates(self) -> list[float]:
        """Return the rates that have a grid line."""
        step = next((step for step in (0.5, 1, 2, 5, 10, 20, 50, 100) if self.top / step <= 4), self.top)
        return [step * at for at in range(math.floor(self.top / step + 1e-9) + 1)]

    def ticks(self) -> range:
        """Return the seconds that have a label."""
        step = next((step for step in SECOND_STEPS if self.seconds / step <= TICKS_MAX), SECOND_STEPS[-1])
        return range(0, self.seconds + 1, step)


def draw(panels: Sequence[Panel], seconds: int, proxies: int = 1, *, paced: bool = False) -> str:
    """Return the picture of a run with this number of proxies as SVG; `paced`: bytes passed by a schedule."""
    scales = {panel.unit: _scale([one for one in panels if one.unit == panel.unit], seconds) for panel in panels}
    height = HEAD_HEIGHT + len(panels) * PANEL_HEIGHT + FOOT_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img"'
        ' aria-labelledby="title description">',
        '<title id="title">Sluice holds Kafka clients to their quotas, as Kafka\'s own arithmetic predicts</title>',
        f'<desc id="description">{escape(describe(panels, seconds))}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="12"/>',
        *(_paced_head(seconds) if paced else _head(seconds) if proxies == 1 else _fleet_head(seconds, proxies)),
        *(_legend() if proxies == 1 else _fleet_legend(proxies)),
    ]
    for at, panel in enumerate(panels):
        parts += _panel(panel, at, scales[panel.unit])
    parts += _foot(height)
    return "\n".join([*parts, "</svg>", ""])


def _scale(panels: Sequence[Panel], seconds: int) -> Scale:
    top = max((value for panel in panels for value in (panel.bound or 0.0, *panel.measured, *panel.predicted)), default=0.0)
    return Scale(seconds, max(1.0, math.ceil(top * 1.04 * 2) / 2))


def describe(panels: Iterable[Panel], seconds: int) -> str:
    """Return a text description of the picture."""
    lines = [f"What each client gets through Sluice over {seconds} seconds, beside what Kafka's quota arithmetic predicts."]
    for panel in panels:
        bound = "no quota" if panel.bound is None else f"a quota of {panel.bound:g} {panel.unit}"
        lines.append(f"{panel.name} {panel.caption}: {bound}, would like {panel.wants}; {panel.result}.")
    return " ".join(lines)


def _head(seconds: int) -> list[str]:
    return [
        f'<text class="title" x="{EDGE}" y="44">Held to the quota, as Kafka would have held it</text>',
        f'<text class="small" x="{EDGE}" y="68">Four unmodified Kafka clients, and a burst of connections, through Sluice for'
        f" {seconds} s. Kafka looks at the last 10 to 11 s:</text>",
        f'<text class="small" x="{EDGE}" y="86">ten seconds of quota may be used at once, then all wait until their mean is down again.'
        " The model knows the load only.</text>",
    ]


def _paced_head(seconds: int) -> list[str]:
    return [
        f'<text class="title" x="{EDGE}" y="44">Held to the quota evenly: paced enforcement</text>',
        f'<text class="small" x="{EDGE}" y="68">Four unmodified Kafka clients, and a burst of connections, through Sluice for'
        f" {seconds} s. Bytes and request time pass by a schedule:</text>",
        f'<text class="small" x="{EDGE}" y="86">one second of quota may be used at once, then each request waits for its time.'
        " Connections are as in Kafka.</text>",
    ]


def _legend() -> list[str]:
    y = 116
    x = EDGE
    return [
        f'<rect class="fill9 area" x="{x}" y="{y - 11}" width="22" height="13"/>',
        f'<text class="small" x="{x + 30}" y="{y}">measured, each second</text>',
        f'<path class="model" d="M{x + 216} {y}v-9h11v7h11"/>',
        f'<text class="small" x="{x + 246}" y="{y}">predicted by the exact model</text>',
        f'<path class="mean line9" d="M{x + 472} {y - 4}h22"/>',
        f'<text class="small" x="{x + 502}" y="{y}">measured, mean of 10 s</text>',
        f'<path class="bound" d="M{x + 690} {y - 4}h26"/>',
        f'<text class="small" x="{x + 724}" y="{y}">quota</text>',
    ]


def _fleet_head(seconds: int, proxies: int) -> list[str]:
    return [
        f"<style>{PARTS_STYLE}</style>",
        f'<text class="title" x="{EDGE}" y="44">{proxies} proxies, one quota for each client</text>',
        f'<text class="small" x="{EDGE}" y="68">Unmodified Kafka clients through a fleet of {proxies} Sluices for {seconds} s.'
        " orders, reports and clicks are at all proxies, with one quota each.</text>",
        f'<text class="small" x="{EDGE}" y="86">Bars are what passed in each second, proxy 1 at the bottom.'
        " The model is one broker of Kafka with the same load.</text>",
    ]


def _fleet_legend(proxies: int) -> list[str]:
    y = 116
    x = EDGE
    parts = []
    for number in range(proxies):
        parts.append(f'<rect class="fill9 part{number}" x="{x}" y="{y - 11}" width="16" height="13"/>')
        parts.append(f'<text class="small" x="{x + 22}" y="{y}">proxy {number + 1}</text>')
        x += 86
    return [
        *parts,
        f'<path class="model" d="M{x} {y}v-9h11v7h11"/>',
        f'<text class="small" x="{x + 30}" y="{y}">model, each second</text>',
        f'<path class="mean line9" d="M{x + 176} {y - 4}h22"/>',
        f'<text class="small" x="{x + 206}" y="{y}">all proxies, mean of 10 s</text>',
        f'<path class="bound" d="M{x + 382} {y - 4}h26"/>',
        f'<text class="small" x="{x + 416}" y="{y}">quota of all proxies</text>',
    ]


def _panel(panel: Panel, at: int, scale: Scale) -> list[str]:
    tone = at % 5
    head = HEAD_HEIGHT + at * PANEL_HEIGHT
    mark, word = ("good", "✓") if panel.is_good else ("bad", "✗")
    return [
        f'<g transform="translate(0 {head})">',
        f'<text x="{EDGE}" y="20"><tspan class="name text{tone}">{escape(panel.name)}</tspan>'
        f'<tspan class="small" dx="10">{escape(panel.caption)}</tspan></text>',
        f'<text class="result" x="{WIDTH - EDGE}" y="20" text-anchor="end">{escape(panel.result)}'
        f' <tspan class="{mark}">{word}</tspan></text>',
        f'<g transform="translate(0 {PANEL_HEAD})">',
        *_grid(scale, panel.unit),
        *_areas(panel, tone, scale),
        f'<path class="model" d="{_steps(panel.predicted, scale)}"/>',
        f'<path class="mean line{tone}" d="{_curve(panel.mean, scale)}"/>',
        *_bound(panel, scale),
        "</g></g>",
    ]


def _grid(scale: Scale, unit: str) -> list[str]:
    right = WIDTH - MARGIN_RIGHT
    parts = []
    for rate in scale.rates():
        y = scale.y(rate)
        parts.append(f'<path class="{"grid" if rate else "base"}" d="M{MARGIN_LEFT} {y:.1f}H{right}"/>')
        parts.append(f'<text class="axis" x="{MARGIN_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{rate:g}</text>')
    for second in scale.ticks():
        x = scale.x(second)
        parts.append(f'<path class="base" d="M{x:.1f} {PLOT_HEIGHT}v4"/>')
        parts.append(f'<text class="axis" x="{x:.1f}" y="{PLOT_HEIGHT + 18}" text-anchor="middle">{second} s</text>')
    middle = PLOT_HEIGHT / 2
    turned = f"translate({MARGIN_LEFT - 38} {middle}) rotate(-90)"
    parts.append(f'<text class="axis" transform="{turned}" text-anchor="middle">{escape(unit)}</text>')
    return parts


def _bound(panel: Panel, scale: Scale) -> list[str]:
    right, bound = WIDTH - MARGIN_RIGHT, panel.bound
    if bound is None:
        return [f'<text class="axis" x="{right + 8}" y="{PLOT_HEIGHT / 2}">no quota</text>']
    y = scale.y(bound)
    return [
        f'<path class="bound" d="M{MARGIN_LEFT} {y:.1f}H{right}"/>',
        f'<text class="bound-name" x="{right + 8}" y="{y - 2:.1f}">quota</text>',
        f'<text class="bound-name" x="{right + 8}" y="{y + 13:.1f}">{bound:g} {escape(panel.unit)}</text>',
    ]


def _foot(height: int) -> list[str]:
    return [
        f'<text class="axis" x="{EDGE}" y="{height - 20}">Drawn by "sluice demo" from one run in front of'
        " librdkafka's mock. 1 MB = 1,000,000 bytes. % of one thread of a broker, as estimated.</text>",
    ]


def _areas(panel: Panel, tone: int, scale: Scale) -> list[str]:
    """Return the bars, those of several proxies on top of each other."""
    if not panel.parts:
        return [f'<path class="area fill{tone}" d="{_area(panel.measured, scale)}"/>']
    below = [0.0] * len(panel.measured)
    areas = []
    for number, part in enumerate(panel.parts):
        areas.append(f'<path class="part{number} fill{tone}" d="{_area(part, scale, below)}"/>')
        below = [low + value for low, value in zip(below, part, strict=True)]
    return areas


def _area(values: Sequence[float], scale: Scale, below: Sequence[float] = ()) -> str:
    """Return the path of one bar for each second, with a gap between them; each begins at 0, or at its value of `below`."""
    gap = 0.6
    bars = []
    for at, (value, low) in enumerate(zip(values, below or [0.0] * len(values), strict=True)):
        if value > 0:
            base = f"{scale.y(low):.1f}"
            bars.append(f"M{scale.x(at) + gap:.1f} {base}V{scale.y(low + value):.1f}H{scale.x(at + 1) - gap:.1f}V{base}Z")
    return "".join(bars)


def _steps(values: Sequence[float], scale: Scale) -> str:
    return f"M{MARGIN_LEFT} {scale.y(0):.1f}" + "".join(f"V{scale.y(value):.1f}H{scale.x(at + 1):.1f}" for at, value in enumerate(values))


def _curve(points: Sequence[tuple[float, float]], scale: Scale) -> str:
    return "M" + "L".join(f"{scale.x(second):.1f} {scale.y(rate):.1f}" for second, rate in points)
