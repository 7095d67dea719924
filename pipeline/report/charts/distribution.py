"""Distribution of waits by length, one bar per power of two."""

from collections.abc import Mapping
from typing import Final

from pipeline.report.charts.svg import drawing, line, nice_steps, rect, text
from pipeline.text import human_ms

LEFT: Final = 64
RIGHT: Final = 968
TOP: Final = 22
BASE: Final = 176
HEIGHT: Final = 214


def draw_waits(counts: Mapping[int, int], before: Mapping[int, int] | None = None) -> str:
    """Return the chart.

    Args:
        counts: number of waits by the upper limit of their bucket in ms, a power of two.
        before: the same for another day or quota file, drawn beside it.
    """
    used = [bucket for bucket in {*counts, *(before or {})} if counts.get(bucket) or (before or {}).get(bucket)]
    if not used:
        return drawing(40, "No waits", [text(LEFT, 24, "No request had to wait.", kind="value")])
    buckets = []
    bucket = min(used)
    while bucket <= max(used):
        buckets.append(bucket)
        bucket *= 2
    top = max([*counts.values(), *(before or {}).values()]) * 1.08
    step = (RIGHT - LEFT) / len(buckets)
    parts = [*_grid(top)]
    for number, bucket in enumerate(buckets):
        x = LEFT + number * step
        if before is None:
            parts.append(_bar(x + step * 0.08, step * 0.84, counts.get(bucket, 0), top, "bar", bucket))
        else:
            parts.append(_bar(x + step * 0.08, step * 0.4, before.get(bucket, 0), top, "before", bucket))
            parts.append(_bar(x + step * 0.52, step * 0.4, counts.get(bucket, 0), top, "after", bucket))
        parts.append(text(x + step, BASE + 17, human_ms(bucket), anchor="middle"))
        if before is None and counts.get(bucket):
            parts.append(
                text(x + step / 2, BASE - counts[bucket] / top * (BASE - TOP) - 5, f"{counts[bucket]:,}", anchor="middle", kind="value")
            )
    parts.append(text(LEFT, BASE + 34, "length of the wait, each bar twice as long as the one before"))
    return drawing(HEIGHT, "Distribution of waits", parts)


def _grid(top: float) -> list[str]:
    parts = []
    for value in nice_steps(top):
        height = BASE - value / top * (BASE - TOP)
        parts.append(line(LEFT, height, RIGHT, height, "grid" if value else "base"))
        parts.append(text(LEFT - 8, height + 4, f"{value:,.0f}", anchor="end"))
    return parts


def _bar(x: float, width: float, number: int, top: float, kind: str, bucket: int) -> str:
    height = number / top * (BASE - TOP)
    return (
        rect(x, BASE - height, width, height, kind, tooltip=f"{number:,} waits of {human_ms(bucket // 2)} to {human_ms(bucket)}")
        if number
        else ""
    )


def in_buckets(lengths: Mapping[int, int]) -> dict[int, int]:
    """Return the number of waits by the smallest power of two in ms that they do not exceed.

    Args:
        lengths: number of waits by length in ms.
    """
    buckets: dict[int, int] = {}
    for length, number in lengths.items():
        bucket = 1 << (length - 1).bit_length()
        buckets[bucket] = buckets.get(bucket, 0) + number
    return buckets
