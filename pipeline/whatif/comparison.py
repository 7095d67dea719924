"""Before and after as plain rows, the source of tables, JSON, CSV and reports."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from pipeline.text import counted, human_ms, human_rate, table_lines
from pipeline.whatif.groups import Group, display_name, is_limited
from pipeline.whatif.outcome import Outcome, Outcomes
from pipeline.whatif.pacing import PACED, REQUEST, pacing_of
from pipeline.whatif.run_outcome import CLOSED

SHOWN: Final = 20
FETCH: Final = "Fetch"
AGE_S: Final = 25
"""The age in seconds from which Sluice lets requests of a paced group pass before their time."""
MODES: Final = {
    "open": "requests at the recorded times: an upper bound on waits, since real clients slow down",
    "regroup": "requests at the recorded times; clients are grouped by the file, and their samples recomputed",
    "closed": "clients send after the new waits, with their recorded pauses",
}


class Change(msgspec.Struct):
    """One group under one quota file. `pacing` is empty for quota types that have no pacing."""

    scenario: str
    group: str
    quota_type: str
    proxy_id: str
    node: str
    decisions: int
    units: int
    bound_today: float | None
    bound: float | None
    pacing_today: str
    pacing: str
    throttled_today: int
    throttled: int
    wait_ms_today: int
    wait_ms: int
    wait_p50_ms: int
    wait_p95_ms: int
    wait_max_ms: int
    sent_percent: float | None
    note: str


def changes_of(scenario: str, outcomes: Outcomes, mode: str) -> list[Change]:
    """Return the change of every group, largest change of waits first."""
    changes = [_change(scenario, group, outcome, mode) for group, outcome in outcomes.items()]
    return sorted(changes, key=_rank)


def _rank(change: Change) -> tuple[int, str, str, str, str]:
    return -abs(change.wait_ms - change.wait_ms_today), change.quota_type, change.group, change.proxy_id, change.node


def _change(scenario: str, group: Group, outcome: Outcome, mode: str) -> Change:
    bound = outcome.bound_today if outcome.bound is None else outcome.bound
    sent = 100 * outcome.units_sent / outcome.units_offered if mode == CLOSED and outcome.units_offered > 0 else None
    notes = [
        "" if outcome.bound is not None else "not in a quota file: bound as recorded",
        f"{outcome.groups} groups become one" if outcome.groups > 1 else "",
        "its clients would be in another group, with another bound: --mode regroup simulates that" if outcome.moves else "",
        "" if outcome.is_certain else "its members would be split; the record does not distinguish them",
        "connections unknown: each group played as one" if mode == CLOSED and not outcome.knows_connections else "",
        ""
        if outcome.knows_requests
        else "lets refused requests pass, of which the record has the first topic only; what was asked for again counts twice",
        f"waits above {AGE_S} s: Sluice lets one request in {AGE_S} s pass before its time, and clients give up; not simulated"
        if outcome.paced and outcome.waits.max_ms > AGE_S * 1_000
        else "",
        "a fetch waits for what it reserves, which is not recorded: its waits are a lower bound"
        if outcome.paced and group.quota_type == FETCH
        else "",
        "a request waits for the handler time that it reserves, which is not recorded: its waits are a lower bound"
        if outcome.paced and group.quota_type == REQUEST
        else "",
    ]
    return Change(
        scenario,
        display_name(group),
        group.quota_type,
        group.proxy_id,
        group.node,
        outcome.decisions,
        outcome.units,
        outcome.bound_today if is_limited(outcome.bound_today, group.quota_type) else None,
        bound if is_limited(bound, group.quota_type) else None,
        pacing_of(group.quota_type, paced=outcome.paced_today),
        pacing_of(group.quota_type, paced=outcome.paced),
        outcome.recorded.number,
        outcome.waits.number,
        outcome.recorded.total_ms,
        outcome.waits.total_ms,
        outcome.waits.percentile_ms(50),
        outcome.waits.percentile_ms(95),
        outcome.waits.max_ms,
        sent,
        "; ".join(note for note in notes if note),
    )


def as_dict(changes: Sequence[Change], mode: str) -> dict[str, Any]:
    """Return a what-if as plain data for JSON."""
    scenarios = []
    for name in dict.fromkeys(change.scenario for change in changes):
        own = [change for change in changes if change.scenario == name]
        sums = {key: sum(getattr(change, key) for change in own) for key in ("throttled_today", "throttled", "wait_ms_today", "wait_ms")}
        scenarios.append({"quotas": name, **sums, "groups": [msgspec.structs.asdict(change) for change in own]})
    return {"mode": mode, "means": MODES[mode], "scenarios": scenarios}


def lines_of(changes: Sequence[Change], mode: str) -> Iterator[str]:
    """Yield the lines of a what-if for a terminal."""
    yield f"mode {mode}: {MODES[mode]}"
    for name in dict.fromkeys(change.scenario for change in changes):
        own = [change for change in changes if change.scenario == name]
        today, then = sum(change.wait_ms_today for change in own), sum(change.wait_ms for change in own)
        yield ""
        yield f"{name}: all waits {human_ms(today)} -> {human_ms(then)}, {counted(len(own), 'group')}"
        paced = any(PACED in (change.pacing_today, change.pacing) for change in own)
        header = ["group", "type", "node", "bound today", "bound", *(["pacing"] if paced else []), "throttled today", "throttled"]
        header += ["waits today", "waits", "p95 wait", "longest wait"]
        header = [*header, "sent"] if mode == CLOSED else header
        several = len({change.proxy_id for change in own}) > 1
        header = ["proxy", *header] if several else header
        yield from table_lines(header, ([change.proxy_id] * several + _row(change, mode, paced=paced) for change in own[:SHOWN]))
        if len(own) > SHOWN:
            yield f"... and {len(own) - SHOWN} more groups (--format json or csv shows all)"
        yield from notes_of(own)


def _row(change: Change, mode: str, *, paced: bool) -> list[str]:
    row = [
        change.group,
        change.quota_type,
        change.node or "-",
        human_rate(change.quota_type, change.bound_today),
        human_rate(change.quota_type, change.bound),
        *([pacing_text(change)] if paced else []),
        f"{change.throttled_today:,}",
        f"{change.throttled:,}",
        human_ms(change.wait_ms_today),
        human_ms(change.wait_ms),
        human_ms(change.wait_p95_ms),
        human_ms(change.wait_max_ms),
    ]
    if mode == CLOSED:
        row.append("-" if change.sent_percent is None else f"{change.sent_percent:.1f} %")
    return row


def pacing_text(change: Change) -> str:
    """Return the pacing of a group: as recorded, and in the replay if that differs."""
    return (change.pacing if change.pacing == change.pacing_today else f"{change.pacing_today} -> {change.pacing}") or "-"


def notes_of(changes: Iterable[Change]) -> Iterator[str]:
    """Yield the caveats of the figures of these groups, each once."""
    groups: dict[str, list[str]] = {}
    for change in changes:
        if change.note:
            groups.setdefault(change.note, []).append(change.group)
    for note, names in groups.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield f"note        {note} ({'; '.join(names[:3])}{more})"
