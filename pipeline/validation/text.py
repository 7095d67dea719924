"""The verdict as text for a terminal."""

from collections.abc import Iterator

from pipeline.storage.paths import AnyPath
from pipeline.text import counted, table_lines
from pipeline.validation.against_broker import HEADER, cells
from pipeline.validation.fleet import FleetUsage
from pipeline.validation.verdict import Verdict


def lines_of(verdict: Verdict, max_violations: int, *, explain: bool, table: AnyPath | str | None = None) -> Iterator[str]:
    """Yield the lines of a verdict.

    Args:
        verdict: the verdict.
        max_violations: number of groups to show the first divergence of.
        explain: also show the live samples that prove each divergence.
        table: the directory with the first divergences of all groups; None: they are in no table.
    """
    yield f"decisions   {verdict.decisions:,} of {counted(verdict.groups, 'group')}, each recomputed"
    yield f"coverage    {verdict.coverage_percent:.4g} %" + (f", {verdict.dropped:,} not written" if verdict.dropped else "")
    if verdict.unjudged:
        why = "which follow missing decisions or an upgrade too closely, or are of buckets that workers share"
        yield f"unjudged    {verdict.unjudged:,} more, {why}"
    for line in verdict.removed:
        yield f"removed     {line}"
    for quota_type, count in sorted(verdict.counts.items()):
        throttled = f"{count['throttled']:,} throttled, {count['throttle_ms']:,} ms"
        yield f"{quota_type:<11} {counted(count['decisions'], 'decision')}, {counted(count['units'], 'unit')}, {throttled}"
    if verdict.observed.decisions:
        would = f"{verdict.observed.decisions:,} of these would have waited, {verdict.observed.ms:,} ms in all"
        yield f"observed    {would}; quotas were only observed"
    for name, text in other_looks(verdict):
        yield f"{name:<11} {text}"
    if verdict.against_broker is not None:
        yield from _against_broker(verdict)
    for line in verdict.incomplete:
        yield f"incomplete  {line}"
    if not verdict.violations:
        but = f", but {' and '.join(verdict.objections)}" if verdict.objections else ""
        yield f"verdict     {verdict.word}: every throttle time equals the recomputed one{but}"
        return
    kinds = ", ".join(f"{kind} {number:,}" for kind, number in sorted(verdict.kinds().items()))
    yield f"verdict     {verdict.violations:,} divergences ({kinds}); the first of each group:"
    for divergence in verdict.divergences(max_violations):
        yield from divergence.lines(explain=explain)
    more = verdict.groups_with_divergences - max_violations
    if more > 0:
        yield f"  … and {more} more groups (" + ("--max-violations)" if table is None else f"all of them are in {table})")


def _against_broker(verdict: Verdict) -> Iterator[str]:
    compared = verdict.against_broker or []
    text = f"{verdict.groups_apart:,} of them apart" if verdict.groups_apart else "none of them apart"
    answers = counted(sum(one.answers for one in compared), "answer")
    yield f"brokers     {answers} of {counted(len(compared), 'group')} that they or Sluice throttled, {text}"
    if compared:
        yield from (f"  {line}" for line in table_lines(HEADER, map(cells, compared)))


def _fleet(fleet: FleetUsage) -> Iterator[tuple[str, str]]:
    lag = f"unknown for {fleet.lag_ms_max:,} ms at most, 99 % for {fleet.lag_ms_p99:,} ms or less"
    compared = f"{counted(fleet.compared, 'comparison')} of a decision with the other members' usage"
    yield "fleet", f"{fleet.name}, {counted(fleet.groups, 'group')}, {compared}" + (f", {lag}" if fleet.compared else "")
    if fleet.highest_rate is not None:
        highest = f"at most {fleet.highest_rate:.3f} of the bound over all members"
        yield "fleet rate", f"{counted(fleet.rates, 'group')} over a minute or more, {highest}"
    for one in fleet.usage:
        assumed = f"assumed {one.assumed:,} of members that were not heard, {one.assumed_now:,} during decisions"
        units = f"{counted(one.units, 'unit')}, {assumed}, {one.left_out:,} left out"
        yield "member", f"{one.member}, {one.quota_type}: {units}"
    if fleet.without_files:
        yield "no files", f"of members of {fleet.name}: {', '.join(fleet.without_files)}"
    for reason in fleet.not_compared:
        yield "no fleet", f"not compared with other members: {reason}"


def other_looks(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield the results of checks other than the replay, each as a name and a line."""
    highest = verdict.long_runs.highest
    if highest is not None:
        paced = ", paced" if highest.is_paced else ""
        long_runs = counted(verdict.long_runs.groups, "group")
        yield (
            "long run",
            f"{long_runs}, at most {highest.ratio:.3f} of the bound, limit {highest.allowed:.3f}{paced}",
        )
    if verdict.shared is not None:
        shared = verdict.shared
        remote = f"{counted(shared.remote_records, 'record')} of usage of another one"
        yield "workers", f"{shared.workers}, {counted(shared.groups, 'group')}, {remote}, {counted(shared.skipped_units, 'unit')} too old"
        lag = f"unknown for {shared.lag_ms_max:,} ms at most, 99 % for {shared.lag_ms_p99:,} ms or less"
        yield "lag", f"{counted(shared.compared, 'comparison')} of a decision with another worker's usage, {lag}"
        if shared.highest_ratio is not None:
            yield "all workers", f"at most {shared.highest_ratio:.3f} of a bound in 10 s"
    for fleet in verdict.fleets:
        yield from _fleet(fleet)
