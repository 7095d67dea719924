"""`sluice fleet status`: the members of a fleet, and whether the running Sluice exchanges usage with them."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from proxy.base.printable import printable
from sluice_cli.admin.options import AdminOptions, open_admin_port, with_admin

CHECK_FAILED: Final = 1
TEXT_CHARS_MAX: Final = 100
_HEAD: Final = ("member", "version", "enforcement", "last heard", "equal quotas")
_CONNECTIONS: Final = "shares connections"
"""A further column if a member shares connections."""

Page = Mapping[str, Any]
"""The page /fleet of the admin port."""


@click.group(no_args_is_help=False)
def fleet() -> None:
    """Show the state of a fleet: several Sluices that share every quota budget."""


@fleet.command()
@with_admin
@click.option("--json", "as_json", is_flag=True, help="Print the page /fleet of the admin port.")
def status(admin: AdminOptions, as_json: bool) -> None:
    """Print the members as the Sluice at --admin sees them. Exit code 1: it is cut off, or quotas, limits or versions differ."""
    page = _ask(admin)
    problems = list(problems_of(page))
    if as_json:
        click.echo(json.dumps(page))
    else:
        for line in [*table(page["members"]), *_bus_lines(page), *problems]:
            click.echo(line)
    if page["is_cut_off"] or problems:
        sys.exit(CHECK_FAILED)


def _ask(admin: AdminOptions) -> Page:
    from sluice_cli.admin.port import AdminPortError  # imported here: `sluice run` needs no HTTP client

    try:
        page: Page = open_admin_port(admin).get("/fleet")
    except AdminPortError as error:
        click.echo(f"sluice fleet: {printable(str(error), 1_000)}", err=True)
        sys.exit(CHECK_FAILED)
    return page


def table(members: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table of members; the first member is the one that was asked."""
    rows = [_HEAD, *(_row(member, is_own=not at) for at, member in enumerate(members))]
    if any(member["shares_connections"] for member in members):
        last = (_CONNECTIONS, *("yes" if member["shares_connections"] else "no" for member in members))
        rows = [(*row, cell) for row, cell in zip(rows, last, strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(member: Mapping[str, Any], *, is_own: bool) -> tuple[str, ...]:
    texts = (printable(member[key], TEXT_CHARS_MAX) or "-" for key in ("member", "version", "enforcement"))
    heard = "this member" if is_own else f"{_seconds(member['silent_ms'])} ago"
    return (*texts, heard, "yes" if member["has_equal_quotas"] else "no")


def _bus_lines(page: Page) -> Iterator[str]:
    """Yield bus and lag, and whether the member is cut off, and since when."""
    lag = "not measured yet" if page["lag_ms"] is None else f"{page['lag_ms']:.0f} ms"
    yield f"bus: {printable(page['bus'], TEXT_CHARS_MAX) or 'not known yet'}, lag: {lag}"
    problem = "" if page["problem"] is None else f": {printable(page['problem'], 1_000)}"
    yield f"cut off: {_since(page)}{problem}" if page["is_cut_off"] else "cut off: no"


def _since(page: Page) -> str:
    since_s, echo_age_ms = page["cut_off_since_s"], page["echo_age_ms"]
    if since_s is None:
        return "since the start of the hub"
    time = datetime.datetime.fromtimestamp(since_s, datetime.UTC).isoformat(sep=" ", timespec="seconds")
    return f"since {time}, for {_seconds(echo_age_ms)}"


def problems_of(page: Page) -> Iterator[str]:
    """Yield a line with the remedy for members with other quotas, and for messages that cannot be read."""
    others = [printable(one["member"], TEXT_CHARS_MAX) for one in page["members"] if one["is_heard"] and not one["has_equal_quotas"]]
    if others:
        yield f"other quotas: {', '.join(others)}: each member enforces its own; give all members the same quotas and switches"
    yield from _problems_of_connections(page["members"])
    versions = page["unreadable_versions"]
    if versions:
        numbers = ", ".join(map(str, versions))
        yield f"messages of version {numbers} cannot be read, and the usage in them does not count here: upgrade the older members"


def _problems_of_connections(members: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for members that do not share connections as the first member does, and one for those with other limits."""
    if not members:
        return
    own, *others = members
    others = [one for one in others if one["is_heard"] and not one["has_equal_limits"]]
    apart = [printable(one["member"], TEXT_CHARS_MAX) for one in others if one["shares_connections"] != own["shares_connections"]]
    if apart:
        what = "shared by this member, and not by" if own["shares_connections"] else "not shared by this member, but by"
        yield f"connections are {what} {', '.join(apart)}: write the same fleet.connections at all members, and restart them"
    limits = [printable(one["member"], TEXT_CHARS_MAX) for one in others if one["shares_connections"] == own["shares_connections"]]
    if limits:
        yield f"other limits on connections: {', '.join(limits)}: each member enforces its own; give all members the same limits"


def _seconds(ms: int) -> str:
    return f"{ms / 1_000:.1f} s"
