"""The texts of `sluice top`: the line about the proxy, the columns of a group, and one group in full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pipeline.text import human_bytes, human_ms, human_rate
from proxy.base.printable import printable
from sluice.admin import ClientQuotaEntity
from sluice_cli.quotas.printing import shown
from sluice_cli.top.groups import Group, LiveState, left_ms, use_of

COLUMNS: Final = ("group", "broker", "quota", "rate", "bound", "use", "left", "waits/min", "members")
NAME_CHARS_MAX: Final = 60
MEMBERS_SHOWN: Final = 10
_KINDS: Final = {"Produce": "produce", "Fetch": "fetch", "Request": "request time", "ControllerMutation": "mutations"}


def head_lines(state: LiveState) -> Iterator[str]:
    """Yield the lines about the proxy."""
    head = state.head
    mode = "OBSERVES ONLY" if head["mode"] == "observe" else head["mode"]
    failed = [f"{name} {detail}" for name, ok, detail in head["state"]["checks"] if not ok]
    source = head["source"]
    yield _safe(f"{mode}, {head['state']['name']}{': ' + '; '.join(failed) if failed else ''}")
    yield _safe(f"quotas {source['source']}, {source['entries']} entries{', ' + source['error'] if source['error'] else ''}")
    memory, cpu = head["memory"], head["rates"]["cpu"]
    parts = [
        f"{head['connections']['open']} connections",
        f"CPU {'-' if cpu is None else f'{100 * cpu:.0f} %'}",
        f"memory {human_bytes(memory['resident_bytes'])}",
        f"loop lag {human_ms(head['lag_ms']['last'])}, longest {human_ms(head['lag_ms']['max'])}",
    ]
    if head["workers"]:
        parts.append(f"{sum(not worker['is_stale'] for worker in head['workers'])} of {len(head['workers'])} workers answer")
    if head["fleet"] is not None:
        parts.append(f"{sum(member['is_heard'] for member in head['fleet']['members'])} of {len(head['fleet']['members'])} members heard")
    yield ", ".join(parts)
    waiting = sum(left_ms(group, state.now_ms) > 0 for group in state.groups.values())
    more = f", {state.left_out} more are not shown" if state.left_out else ""
    yield f"{waiting} of {len(state.groups)} groups wait{more}"


def cells_of(group: Group, now_ms: int) -> tuple[str, ...]:
    """Return the texts of `COLUMNS`."""
    kind, left = str(group["quota_type"]), left_ms(group, now_ms)
    return (
        printable(group["name"], NAME_CHARS_MAX),
        printable(group["broker"], NAME_CHARS_MAX),
        _KINDS.get(kind, kind),
        human_rate(kind, group["observed"]),
        human_rate(kind, group["bound"]),
        f"{100 * use_of(group):.0f} %" if group["bound"] else "-",
        human_ms(left) if left else "-",
        human_ms(group["waited_ms_a_minute"]),
        str(group["connections"]),
    )


def group_lines(page: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about one group, from the page /ui/group."""
    kind, left = page["quota_type"], max(0, page["throttled_until_ms"] - page["now_ms"])
    yield _safe(page["name"])
    wait = f"waits {human_ms(left)} more" if left else "does not wait"
    yield _safe(
        f"{_KINDS.get(kind, kind)} at {page['broker']}: {human_rate(kind, page['observed'])} of {human_rate(kind, page['bound'])}; {wait}"
    )
    yield f"throttled {page['throttle_count']} times, for {human_ms(page['throttle_ms_total'])} in all"
    yield ""
    yield f"{page['key']}, by level of precedence:" if page["levels"] else _safe(f"rule: {page['rule']}")
    for level in page["levels"]:
        value = "-" if level["value"] is None else human_rate(kind, level["value"])
        yield _safe(f"  {'=>' if level['wins'] else '  '} {shown(ClientQuotaEntity.of(level['entity']))}: {value}")
    if page["set_by"] is not None:
        line = page["set_by"]
        yield _safe(f"set by {line.get('principal') or 'outside'} at {line['time']} (line {line['seq']}): {line['old']} -> {line['new']}")
    yield ""
    yield "last verdicts, the newest first:" if page["verdicts"] else "it has never waited"
    for verdict in reversed(page["verdicts"]):
        yield f"  {human_ms(max(0, page['now_ms'] - verdict['time_ms']))} ago: {arithmetic(verdict, kind)}"
    members = page["members"]
    yield ""
    yield f"{members['connections']} connections of {members['clients']} clients share it"
    for member in members["named"][:MEMBERS_SHOWN]:
        yield _safe(f"  {member['principal']} {member['client_id']}: {member['connections']}")


def arithmetic(verdict: Mapping[str, Any], quota_type: str) -> str:
    """Return how the throttle time follows from rate O, quota T and window W."""
    observed, bound, window_ms, throttle_ms = (verdict[key] for key in ("observed", "bound", "window_ms", "throttle_ms"))
    if quota_type == "ControllerMutation":
        return f"-O / T = {-observed:g} / {bound:g} per s = {throttle_ms} ms"
    return f"(O - T) / T x W = ({observed:.10g} - {bound:.10g}) / {bound:.10g} x {window_ms} ms = {throttle_ms} ms"


def _safe(text: str) -> str:
    return printable(text, 1_000)
