"""Explains the figures of a what-if: the quota that applies to each group, and the recorded one."""

from collections.abc import Iterator, Mapping, Sequence

from pipeline.quotas.file import QuotaFile
from pipeline.text import counted, human_ms, human_rate
from pipeline.whatif.comparison import SHOWN
from pipeline.whatif.groups import CONNECTION, Group, display_name, is_limited
from pipeline.whatif.outcome import Outcome, Outcomes
from pipeline.whatif.pacing import PACED, WINDOW
from pipeline.whatif.work import Work

MEMBERS_SHOWN = 5


def explained(found: Mapping[str, Outcomes], quotas: Mapping[str, QuotaFile], work: Sequence[Work]) -> Iterator[str]:
    """Yield a few lines on each group, largest change of waits first.

    Args:
        found: outcomes by quota file.
        quotas: the quota files by name.
        work: the tasks; their scenarios are in the order of the quota files.
    """
    for number, (name, outcomes) in enumerate(found.items()):
        members = _members(work, number)
        held = {group: outcome for group, outcome in outcomes.items() if _is_held(group, outcome)}
        by_change = sorted(held.items(), key=lambda pair: -abs(pair[1].waits.total_ms - pair[1].recorded.total_ms))
        for group, outcome in by_change[:SHOWN]:
            yield ""
            yield from _lines(group, outcome, quotas[name], sorted(members.get(group, {group}), key=display_name))
        if len(held) < len(outcomes):
            yield ""
            yield f"{len(outcomes) - len(held)} more groups have no quota, today and under {name}"


def _is_held(group: Group, outcome: Outcome) -> bool:
    """Whether the group has a quota, today or under the file."""
    return any(is_limited(bound, group.quota_type) for bound in (outcome.bound, outcome.bound_today))


def _members(work: Sequence[Work], number: int) -> dict[Group, set[Group]]:
    """Return the recorded groups that each new group replaces."""
    members: dict[Group, set[Group]] = {}
    for item in work:
        recorded = {sensor.ref: sensor.group for sensor in item.sensors}
        for placed in item.scenarios[number]:
            members.setdefault(placed.group, set()).add(recorded[placed.ref])
    return members


def _lines(group: Group, outcome: Outcome, quotas: QuotaFile, members: Sequence[Group]) -> Iterator[str]:
    yield f"{display_name(group)} ({group.quota_type}, broker {group.node or '-'}), under {quotas.name}:"
    names = [display_name(member) for member in members]
    more = f" and {len(names) - MEMBERS_SHOWN} more" if len(names) > MEMBERS_SHOWN else ""
    yield f"    recorded as   {'; '.join(names[:MEMBERS_SHOWN])}{more}: {counted(outcome.decisions, 'decision')}"
    yield f"    bound         {_bound(group, outcome, quotas)}"
    if outcome.paced_today or outcome.paced:
        today, then = (PACED if paced else WINDOW for paced in (outcome.paced_today, outcome.paced))
        yield f"    pacing        {then}{'' if today == then else f', recorded with {today}'}"
    for label, waits in (("waits today", outcome.recorded), ("waits then", outcome.waits)):
        longest = f", half of them up to {human_ms(waits.percentile_ms(50))}, the longest {human_ms(waits.max_ms)}" if waits.number else ""
        yield f"    {label:<13} {waits.number:,}, together {human_ms(waits.total_ms)}{longest}"


def _bound(group: Group, outcome: Outcome, quotas: QuotaFile) -> str:
    if outcome.bound is None:
        today = outcome.bound_today if is_limited(outcome.bound_today, group.quota_type) else None
        return f"{human_rate(group.quota_type, today)}, as recorded: a quota file has no name for the group"
    if not is_limited(outcome.bound, group.quota_type):
        return "none: no quota of the file holds for it"
    ip = group.ip if group.ip in quotas.connection_rates else "<default>"
    whose = f"ip {ip}" if group.quota_type == CONNECTION else quotas.source(group.quota_type, group.user, group.client_id)
    return f"{human_rate(group.quota_type, outcome.bound)}, the quota of {whose}"
