"""Rate and bound: units of a group by second, the rate of its sensor, and the times of waits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.report.charts.svg import TimeAxis, drawing, line, nice_steps, path, rect, text
from pipeline.text import human_ms, human_rate

HEIGHT: Final = 196
TOP: Final = 44
BASE: Final = 170
LEFT: Final = 84
RIGHT: Final = 988
POINTS_MAX: Final = 452


@dataclass(frozen=True, slots=True)
class RateSeries:
    """One group. All lists except the windows have one entry for each of the same seconds, ascending.

    Attributes:
        rate: units in the second.
        observed: highest rate of the sensor in the second.
        bound: bound in force; None without a quota.
        throttle_windows: (begin, end) in ms of times in which a member had to wait.
        would: (begin, end) in ms of times in which a throttle was not applied.
    """

    name: str
    quota_type: str
    about: str
    seconds_ms: Sequence[int]
    rate: Sequence[float]
    observed: Sequence[float]
    bound: Sequence[float | None]
    throttle_windows: Sequence[tuple[int, int]]
    would: Sequence[tuple[int, int]] = ()


def draw_rates(series: RateSeries, begin_ms: int, end_ms: int) -> str:
    """Return the chart. Seconds above its upper edge are cut off, and the text names the highest of them."""
    axis = TimeAxis(begin_ms, end_ms, LEFT, RIGHT)
    bounds = [bound for bound in series.bound if bound is not None]
    top = max([1.2 * max(series.observed, default=0.0), *(1.35 * bound for bound in bounds[:1]), *(1.1 * bound for bound in bounds), 1e-9])

    def y(rate: float) -> float:
        return BASE - min(rate, top) / top * (BASE - TOP)

    bucket_ms = max(1_000, -(-(end_ms - begin_ms) // POINTS_MAX // 1_000) * 1_000)
    pixel_ms = (end_ms - begin_ms) / (RIGHT - LEFT)
    highest = max(series.rate, default=0.0)
    cut = f"; highest second {human_rate(series.quota_type, highest)}" if highest > top else ""
    parts = [
        text(LEFT, 16, series.name, kind="name"),
        text(LEFT, 34, series.about + cut),
        *_grid(axis, top, series.quota_type),
        *(_throttle_window(axis, begin, end, "would", "would have waited") for begin, end in _joined(series.would, pixel_ms)),
        *(_throttle_window(axis, begin, end, "waiting", "clients wait") for begin, end in _joined(series.throttle_windows, pixel_ms)),
        *(
            path([(axis.x(at), y(rate)) for at, rate in run], "area", closed_at=BASE)
            for run in _runs(series, bucket_ms, begin_ms, end_ms, "rate")
        ),
        *(path([(axis.x(at), y(rate)) for at, rate in run], "observed") for run in _runs(series, bucket_ms, begin_ms, end_ms, "observed")),
        _bound_line(series, axis, y),
    ]
    if bounds:
        parts.append(text(RIGHT, 34, f"bound {human_rate(series.quota_type, bounds[-1])}", anchor="end", kind="bad"))
    return drawing(HEIGHT, f"{series.name}: rate against bound; {waits_text(series)}", [part for part in parts if part])


def waits_text(series: RateSeries) -> str:
    """Return the share of time in which clients waited, or would have waited, as text."""
    waited_ms, would_ms = (sum(end - begin for begin, end in of) for of in (series.throttle_windows, series.would))
    waited = f"clients waited during {human_ms(waited_ms)}" if waited_ms or not would_ms else "no client had to wait"
    return waited + (f"; would have waited during {human_ms(would_ms)}" if would_ms else "")


def _grid(axis: TimeAxis, top: float, quota_type: str) -> list[str]:
    parts = []
    for value in nice_steps(top):
        height = BASE - value / top * (BASE - TOP)
        parts.append(line(LEFT, height, RIGHT, height, "grid" if value else "base"))
        parts.append(text(LEFT - 8, height + 4, human_rate(quota_type, value) if value else "0", anchor="end"))
    return [*parts, *axis.labels(BASE + 17)]


def _throttle_window(axis: TimeAxis, begin: float, end: float, kind: str, tooltip: str) -> str:
    at, until = max(axis.x(begin), LEFT), min(axis.x(end), RIGHT)
    return rect(at, TOP, until - at, BASE - TOP, kind, tooltip=f"{tooltip}, {human_ms(end - begin)}") if until > at else ""


def _joined(throttle_windows: Sequence[tuple[int, int]], pixel_ms: float) -> list[tuple[int, int]]:
    """Join windows with a gap of less than a pixel."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(throttle_windows):
        if joined and begin - joined[-1][1] < pixel_ms:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _runs(series: RateSeries, bucket_ms: int, begin_ms: int, end_ms: int, of: str) -> list[list[tuple[int, float]]]:
    """Return the mean rates of buckets, or the maxima of the sensor's rates. Without traffic the sensor's line has a gap."""
    buckets: dict[int, list[float]] = {}
    for at, value in zip(series.seconds_ms, series.rate if of == "rate" else series.observed, strict=True):
        if begin_ms <= at < end_ms:
            buckets.setdefault((at - begin_ms) // bucket_ms, []).append(value)
    if of == "rate":
        seconds = bucket_ms / 1_000
        last = -(-(end_ms - begin_ms) // bucket_ms)
        return [[(begin_ms + at * bucket_ms, sum(buckets.get(at, ())) / seconds) for at in range(last)]]
    runs: list[list[tuple[int, float]]] = []
    for bucket, values in sorted(buckets.items()):
        at = begin_ms + bucket * bucket_ms
        if not runs or at - runs[-1][-1][0] > max(11_000, bucket_ms):
            runs.append([])
        runs[-1].append((at, max(values)))
    return runs


def _bound_line(series: RateSeries, axis: TimeAxis, y: Callable[[float], float]) -> str:
    points: list[tuple[float, float]] = []
    for at, bound in zip(series.seconds_ms, series.bound, strict=True):
        if bound is None:
            continue
        height = y(bound)
        if points and points[-1][1] != height:
            points.append((axis.x(at), points[-1][1]))
        if not points or points[-1][1] != height:
            points.append((axis.x(at), height))
    if points:
        points = [(LEFT, points[0][1]), *points, (RIGHT, points[-1][1])]
    return path(points, "bound")
