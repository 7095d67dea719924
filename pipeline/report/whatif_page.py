"""The report of a what-if: waits before and after, for every quota file."""

from collections.abc import Mapping, Sequence
from typing import Final

from pipeline.report.charts.before_after import Shift, draw_shifts
from pipeline.report.charts.distribution import draw_waits, in_buckets
from pipeline.report.page import Figure, Page, Section, draw_page, draw_table
from pipeline.text import human_ms, human_rate
from pipeline.whatif.comparison import MODES, Change, pacing_text
from pipeline.whatif.outcome import Outcomes
from pipeline.whatif.pacing import PACED

GROUPS_MAX: Final = 24

Buckets = tuple[Mapping[int, int], Mapping[int, int]]
"""Number of waits by length in powers of two: as recorded, and under the quota file."""


def buckets_of(outcomes: Outcomes) -> Buckets:
    """Return the number of waits by length over all groups."""
    before: dict[int, int] = {}
    after: dict[int, int] = {}
    for outcome in outcomes.values():
        for waits, lengths in ((outcome.recorded, before), (outcome.waits, after)):
            for length, number in zip(waits.lengths, waits.numbers, strict=True):
                lengths[length] = lengths.get(length, 0) + number
    return in_buckets(before), in_buckets(after)


def draw_whatif(changes: Sequence[Change], mode: str, buckets: Mapping[str, Buckets], *, title: str = "Effect of other quotas") -> str:
    """Return the report as HTML; `buckets` is by name of the quota file."""
    page = Page(title, f"Mode {mode}: {MODES[mode]}.")
    page.foot = (
        f"Made by sluice meter. Mode {mode}: {MODES[mode]}. Every wait is computed with the arithmetic of the proxy from every decision."
    )
    for name in dict.fromkeys(change.scenario for change in changes):
        own = [change for change in changes if change.scenario == name]
        if not page.figures:
            page.figures = _figures(own)
        shown = sorted(own, key=lambda change: -max(change.throttled_today, change.throttled))[:GROUPS_MAX]
        before, after = buckets[name]
        page.sections += [
            Section(name, _DESCRIPTION, [draw_shifts([_shift(change) for change in shown])]),
            Section(f"{name}: distribution of waits", "Grey: as recorded. Blue: under these quotas.", [draw_waits(after, before)]),
            Section(f"{name}: group by group", "", [_table(own)]),
        ]
    return draw_page(page)


_DESCRIPTION: Final = "Grey dot: share of decisions with a wait, as recorded. Coloured dot: under these quotas; green is less, red is more."


def _figures(own: Sequence[Change]) -> list[Figure]:
    decisions = max(sum(change.decisions for change in own), 1)
    today, then = sum(change.throttled_today for change in own), sum(change.throttled for change in own)
    waits_today, waits = sum(change.wait_ms_today for change in own), sum(change.wait_ms for change in own)
    return [
        Figure(f"{100 * today / decisions:.1f} %", "of decisions wait today"),
        Figure(f"{100 * then / decisions:.1f} %", "would wait then", "good" if then <= today else "bad"),
        Figure(human_ms(waits_today), "all waits today"),
        Figure(human_ms(waits), "all waits then", "good" if waits <= waits_today else "bad"),
        Figure(f"{len(own)}", "groups"),
    ]


def _shift(change: Change) -> Shift:
    decisions = max(change.decisions, 1)
    bounds = (human_rate(change.quota_type, change.bound_today), human_rate(change.quota_type, change.bound))
    return Shift(
        f"{change.group} ({change.quota_type})",
        100 * change.throttled_today / decisions,
        100 * change.throttled / decisions,
        " → ".join(bounds),
        f"{human_ms(change.wait_ms_today)} → {human_ms(change.wait_ms)}",
    )


def _table(own: Sequence[Change]) -> str:
    has_sent = any(change.sent_percent is not None for change in own)
    several = len({change.proxy_id for change in own}) > 1
    paced = any(change.pacing_today == PACED or change.pacing == PACED for change in own)
    header = [
        *(["proxy"] if several else []),
        "group",
        "type",
        "broker",
        "decisions",
        "bound",
        *(["pacing"] if paced else []),
        "throttled",
        "p50 wait",
        "p95 wait",
        "longest wait",
        *(["sent"] if has_sent else []),
        "note",
    ]
    return draw_table(header, ([change.proxy_id] * several + _row(change, has_sent, paced=paced) for change in own))


def _row(change: Change, has_sent: bool, *, paced: bool) -> list[str]:
    row = [change.group, change.quota_type, change.node or "-", f"{change.decisions:,}", human_rate(change.quota_type, change.bound)]
    row += [pacing_text(change)] if paced else []
    row += [f"{change.throttled:,}", human_ms(change.wait_p50_ms), human_ms(change.wait_p95_ms), human_ms(change.wait_max_ms)]
    if has_sent:
        row.append("-" if change.sent_percent is None else f"{change.sent_percent:.1f} %")
    return [*row, change.note]
