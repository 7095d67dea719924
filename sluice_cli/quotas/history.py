"""`sluice quotas history` and `rollback`: the changes of quotas with their authors, and the return to an earlier state."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sized
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from proxy.quota_admin.audit.chain import verify
from proxy.quota_admin.audit.file import lines_back, lines_of
from proxy.quota_admin.audit.log import history as read_history
from sluice.admin import ClientQuotaEntity
from sluice_cli.admin.options import FILE
from sluice_cli.admin.port import AdminPort
from sluice_cli.quotas.access import open_access
from sluice_cli.quotas.apply import ask, change, validate
from sluice_cli.quotas.bulk import Difference, counted, many
from sluice_cli.quotas.bulk import lines_of as difference_lines
from sluice_cli.quotas.connection import ConnectionOptions, admin_port, with_cluster
from sluice_cli.quotas.printing import number, refused, shown

PAGE_LINES: Final = 10_000
CHANGED = "changed"


class TargetEvent(NamedTuple):
    """A change of something that has a target.

    Attributes:
        page: page of the admin port that sets it.
        key: key of its value there.
        none: what no value means.
        of: what it is called before its target; empty: a switch.
    """

    page: str
    key: str
    none: str
    of: str = ""


TARGETS: Final = {
    "switched": TargetEvent("/admin/switches", "mode", "no switch"),
    "paced": TargetEvent("/admin/pacing", "pacing", "as configured", "pacing of "),
}
"""Such changes, by the event of their audit line."""
Targets = dict[tuple[str, str], str | None]
"""Values by event and target; None: there was none."""
_AUDIT = click.option("--audit", type=FILE, metavar="FILE", help="Read this audit log file instead of the admin port.")


@click.command()
@with_cluster
@_AUDIT
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=20,
    show_default=True,
    help="Maximum number of lines to print, counted from the last one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the lines as JSON.")
@click.option(
    "--verify", "check", is_flag=True, help="Verify the hash chain of the audit log; exit with code 1 if a line was changed or removed."
)
def history(connection: ConnectionOptions, audit: Path | None, limit: int, as_json: bool, check: bool) -> None:
    """Print changes of quotas, switches and pacings with time, author and origin, from --admin or --audit."""
    if check:
        _verify(connection, audit)
        return
    for line in reversed(list(_take(_lines(connection, audit, 0), limit))):
        click.echo(json.dumps(line) if as_json else _line_of(line))


@click.command()
@with_cluster
@_AUDIT
@click.option(
    "--to", "seq", type=click.IntRange(0), required=True, metavar="NUMBER", help="Number of the last audit line that stays in effect."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def rollback(connection: ConnectionOptions, audit: Path | None, seq: int, yes: bool) -> None:
    """Restore quotas, switches and pacings to their state after a line of the audit log. The rollback itself is logged as a change."""
    _check_line(connection, audit, seq)
    quotas, targets = _before_changes(connection, audit, seq)
    with open_access(connection) as access:
        there = access.describe()
        changes = [
            Difference(entity, key, now, value)
            for (entity, key), value in quotas.items()
            if (now := there.get(entity, {}).get(key)) != value
        ]
        for line in difference_lines(changes):
            click.echo(line)
        for (event, target), mode in targets.items():
            click.echo(f"{_named(event, target)}: {mode or TARGETS[event].none}")
        if not changes and not targets:
            click.echo("nothing to change")
            return
        if targets and connection.admin is None:
            raise click.UsageError("switches or pacings were changed since; give --admin too")
        if changes:
            validate(access, changes)
        ask(f"Change {counted(changes)} and {_counted_targets(targets)}?", yes=yes)
        if changes:
            change(access, changes)
        for (event, target), mode in targets.items():
            admin_port(connection).post(TARGETS[event].page, {"target": target, TARGETS[event].key: mode})
    click.echo(f"{counted(changes)} and {_counted_targets(targets)} are as they were after line {seq}")


def _check_line(connection: ConnectionOptions, audit: Path | None, seq: int) -> None:
    """Refuse the number of a line that was not written yet."""
    lines = admin_port(connection).get("/admin/history", limit=1)["lines"] if audit is None else _lines(connection, audit, 0)
    newest = next((line["seq"] for line in lines), 0)
    if seq > newest:
        refused(f"--to {seq}: the newest line of the history is {newest}; nothing was changed")


def _before_changes(
    connection: ConnectionOptions, audit: Path | None, seq: int
) -> tuple[dict[tuple[ClientQuotaEntity, str], float | None], Targets]:
    """Return the values that quotas, switches and pacings changed after a line had before the change."""
    quotas: dict[tuple[ClientQuotaEntity, str], float | None] = {}
    targets: Targets = {}
    first: int | None = None
    for line in _lines(connection, audit, seq):
        first = line["seq"]
        if line["event"] == CHANGED:
            quotas[ClientQuotaEntity.of(line["entity"]), line["key"]] = _read(line["old"])  # the earliest line is last
        elif line["event"] in TARGETS:
            targets[line["event"], line["target"]] = line["old"]
    if first is not None and first > seq + 1:
        refused(f"the history goes back to line {first} only; nothing was changed")
    return quotas, targets


def _lines(connection: ConnectionOptions, audit: Path | None, after: int) -> Iterator[Mapping[str, Any]]:
    """Yield lines with numbers above `after`, the last one first."""
    if audit is None:
        yield from _pages(admin_port(connection), after)
        return
    try:
        file = os.open(audit, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise click.UsageError(f"--audit: {audit} cannot be read: {error.strerror}") from None
    try:
        yield from map(json.loads, read_history(lines_back(file, os.fstat(file).st_size), limit=sys.maxsize, after=after))
    finally:
        os.close(file)


def _pages(port: AdminPort, after: int) -> Iterator[Mapping[str, Any]]:
    before: int | None = None
    while True:
        lines = port.get("/admin/history", limit=PAGE_LINES, after=after, before=before)["lines"]
        yield from lines
        if len(lines) < PAGE_LINES:
            return
        before = lines[-1]["seq"]


def _take(lines: Iterator[Mapping[str, Any]], limit: int) -> Iterator[Mapping[str, Any]]:
    for at, line in enumerate(lines):
        if at >= limit:
            return
        yield line


def _verify(connection: ConnectionOptions, audit: Path | None) -> None:
    if audit is None:
        page = admin_port(connection).get("/admin/history/verify")
    else:
        try:
            with audit.open("rb") as file:
                verdict = verify(lines_of(file))
        except OSError as error:
            raise click.UsageError(f"--audit: {audit} cannot be read: {error.strerror}") from None
        page = {"lines": verdict.lines, "first_seq": verdict.first_seq, "last": verdict.last._asdict(), "problems": verdict.problems}
    for problem in page["problems"]:
        click.echo(problem)
    if page["problems"]:
        refused("the history was changed")
    click.echo(f"{page['lines']:,} lines, complete; the last is number {page['last']['seq']} with SHA-256 {page['last']['sha256']}")


def _line_of(line: Mapping[str, Any]) -> str:
    who = " ".join(filter(None, (line.get("way"), line.get("principal"), line.get("peer"))))
    return f"{line['seq']} {line['time']} {who}: {_what(line)}" if who else f"{line['seq']} {line['time']} {_what(line)}"


def _what(line: Mapping[str, Any]) -> str:
    event = line["event"]
    if event == CHANGED:
        return f"{shown(ClientQuotaEntity.of(line['entity']))}: {line['key']} {_value(line['old'])} -> {_value(line['new'])}"
    if event in TARGETS:
        none = TARGETS[event].none
        return f"{_named(event, line['target'])}: {line['old'] or none} -> {line['new'] or none}"
    if event == "asked":
        return f"asked to {line['what']} " + (_entities(line["entries"]) if "entries" in line else str(line["target"]))
    if event == "failed":
        return f"line {line['request']} failed: {line['problem']}"
    if event == "denied":
        return f"denied: {line['what']}" + (f" (and {line['untold']} before)" if line["untold"] else "")
    return str(event)


def _named(event: str, target: str) -> str:
    return TARGETS[event].of + target


def _counted_targets(targets: Targets) -> str:
    numbers = {event: sum(other == event for other, _ in targets) for event in TARGETS}
    pacings = f" and {many(numbers['paced'], 'pacing', 'pacings')}" if numbers["paced"] else ""
    return many(numbers["switched"], "switch", "switches") + pacings


def _entities(entries: Sized) -> str:
    return many(len(entries), "entity", "entities")


def _read(value: float | str | None) -> float | None:
    return None if value is None else float(value)  # JSON has no infinity


def _value(value: object) -> str:
    return "-" if value is None else number(value) if isinstance(value, int | float) else str(value)
