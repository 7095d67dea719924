"""Formats recommendations for a terminal."""

from collections.abc import Iterator, Sequence

from metering_format.event_kinds import MUTATION
from pipeline.recommend.proposal import Proposal
from pipeline.text import human_ms, human_rate, table_lines
from pipeline.whatif.comparison import Change, notes_of
from pipeline.whatif.pacing import PACED


def lines_of(
    proposals: Sequence[Proposal], expected: Sequence[Change], left_out: Sequence[str], percentile: float, *, explain: bool = False
) -> Iterator[str]:
    """Yield the proposals and the result of an open-loop what-if for each; `explain` adds the arithmetic of each bound."""
    then, proposed = _by_group(expected), {(item.group, item.quota_type) for item in proposals}
    yield f"bounds from p{percentile:g} of the rate over the sensor's windows; p50, p99 and max are of single seconds"
    if any(item.quota_type == MUTATION for item in proposals):
        lowest = f"p{percentile:g} of the lowest rates at which requests would have passed"
        yield f"of {MUTATION}, whose bucket lets bursts through, from {lowest}"
    if any(item.pacing == PACED for item in proposals):
        yield f"of paced groups, from p{percentile:g} of the lowest rates at which requests would have passed without a wait"
    yield ""
    header = ("group", "type", "p50", "p99", "max", "bound today", "proposed", "waits today", "waits then", "confidence", "why")
    yield from table_lines(header, (_row(item, then.get((item.group, item.quota_type), (0, 0))) for item in proposals))
    yield from notes_of(change for change in expected if (change.group, change.quota_type) in proposed)
    for line in left_out:
        yield f"note        {line}"
    for item in proposals if explain else ():
        yield from _explained(item)


def _explained(item: Proposal) -> Iterator[str]:
    """Yield the arithmetic of one bound."""
    base, bound = human_rate(item.quota_type, item.base), human_rate(item.quota_type, item.bound)
    times = human_rate(item.quota_type, item.base * item.headroom)
    yield ""
    yield f"{item.group} ({item.quota_type}): {item.key} = {item.bound:.12g}"
    if item.quota_type == MUTATION:
        of = "of the lowest rates at which requests pass"
        yield f"    p{item.percentile:g} {of}, with a bucket that holds {item.span_s:g} s of its rate: {base}"
    elif item.pacing == PACED:
        of = "of the lowest rates at which requests pass without a wait"
        yield f"    p{item.percentile:g} {of}, with a burst of {item.span_s:g} s, one for each of {item.seconds:,} active seconds: {base}"
    else:
        yield f"    p{item.percentile:g} of the rates over {item.span_s:g} s, one for each of {item.seconds:,} active seconds: {base}"
    yield f"    x headroom {item.headroom:g} = {times}, rounded up to two digits: {bound}"


def _by_group(expected: Sequence[Change]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the number of waits today and under the proposal by group, over all brokers."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for change in expected:
        today, then = found.get((change.group, change.quota_type), (0, 0))
        found[change.group, change.quota_type] = (today + change.wait_ms_today, then + change.wait_ms)
    return found


def _row(item: Proposal, waits: tuple[int, int]) -> tuple[str, ...]:
    rates = (human_rate(item.quota_type, rate) for rate in (item.p50, item.p99, item.max, item.bound_today, item.bound))
    return (item.group, item.quota_type, *rates, human_ms(waits[0]), human_ms(waits[1]), item.confidence, item.why)
