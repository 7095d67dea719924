"""The command `sluice top`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import islice
from typing import Final, NoReturn

import click

from pipeline.text import table_lines
from proxy.base.printable import printable
from sluice_cli.admin.options import AdminOptions, open_admin_port, with_admin
from sluice_cli.admin.port import AdminPort, AdminPortError
from sluice_cli.top.groups import ORDERS, LiveState, Order
from sluice_cli.top.texts import COLUMNS, cells_of, head_lines

EVENTS: Final = "/ui/events"
CHECK_FAILED: Final = 1
GROUPS_PRINTED: Final = 40
NO_TEXTUAL: Final = "sluice top: textual is not installed; run `pip install textual`, or use --once or --format json"


@click.command()
@with_admin
@click.option("--once", is_flag=True, help="Print the present state, and end.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Format of the output. With json and without --once, a line of JSON is printed every second.",
)
@click.option("--sort", type=click.Choice(list(ORDERS)), default="waiting", show_default=True, help="Order of the groups.")
@click.option("--filter", "part", default="", metavar="TEXT", help="Show only groups whose name, broker or quota contains the text.")
@click.option("--limit", type=click.IntRange(1), default=GROUPS_PRINTED, show_default=True, help="Groups that the table of --once has.")
def top(admin: AdminOptions, once: bool, form: str, sort: Order, part: str, limit: int) -> None:
    """Show who waits now, and why, as the live page does. Keys: s sort, / filter, Enter open a group, Escape back, q quit."""
    port = open_admin_port(admin)
    try:
        if form == "json":
            _print_json(port, sort, part, once=once)
        elif once:
            _print_table(port, sort, part, limit)
        else:
            _watch(port, sort, part)
    except AdminPortError as error:
        _fail(str(error))


def _print_json(port: AdminPort, order: Order, part: str, *, once: bool) -> None:
    state = LiveState()
    for name, data in islice(port.events(EVENTS), 1 if once else None):
        state.apply(name, data)
        page = {"head": state.head, "groups": state.selected(order, part), "groups_left_out": state.left_out}
        click.echo(json.dumps(page))


def _print_table(port: AdminPort, order: Order, part: str, limit: int) -> None:
    state = LiveState()
    for name, data in islice(port.events(EVENTS), 1):
        state.apply(name, data)
    for line in head_lines(state):
        click.echo(line)
    rows: Sequence[Sequence[object]] = [cells_of(group, state.now_ms) for group in state.selected(order, part)[:limit]]
    click.echo()
    for line in table_lines(COLUMNS, rows):
        click.echo(line)


def _watch(port: AdminPort, order: Order, part: str) -> None:
    try:
        from sluice_cli.top.app import TopApp  # imported here: textual is an extra
    except ModuleNotFoundError:
        _fail(NO_TEXTUAL)
    problem = TopApp(port, order, part).run()
    if problem:
        _fail(problem)


def _fail(problem: str) -> NoReturn:
    click.echo(f"sluice: {printable(problem, 1_000)}", err=True)
    sys.exit(CHECK_FAILED)
