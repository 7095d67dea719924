"""`sluice quotas apply` and `diff`: many quotas at once, from a quota file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from proxy.quota_store.file.store import read_quota_file
from sluice.admin import ClientQuotaEntity
from sluice_cli.admin.options import FILE
from sluice_cli.quotas.access import QuotaAccess, open_access
from sluice_cli.quotas.bulk import Difference, Quotas, alterations, batches, counted, differences, lines_of, result_of
from sluice_cli.quotas.connection import ConnectionOptions, with_cluster
from sluice_cli.quotas.impact import UnknownEffectError, impact_lines
from sluice_cli.quotas.printing import refused, shown

ERRORS_SHOWN: Final = 20


@click.command()
@with_cluster
@click.argument("file", type=FILE, metavar="quotas.toml")
def diff(connection: ConnectionOptions, file: Path) -> None:
    """Compare a quota file with the quotas of the cluster; exit with code 1 if they differ.

    Lines begin with + (only in the file), - (only in the cluster) or ~ (different values).
    """
    wanted = _wanted(file)
    with open_access(connection) as access:
        found = differences(access.describe(), wanted)
    for line in lines_of(found):
        click.echo(line)
    click.echo(f"{counted(found)} differ" if found else "nothing differs")
    if found:
        sys.exit(1)


@click.command()
@with_cluster
@click.argument("file", type=FILE, metavar="quotas.toml")
@click.option("--prune", is_flag=True, help="Delete quotas that are not in the file. By default no quota is deleted.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation. With --metering: ask only if the effect is unknown.")
@click.option(
    "--metering",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Metering directory: print the effect on its last day before the confirmation.",
)
def apply(connection: ConnectionOptions, file: Path, prune: bool, yes: bool, metering: Path | None) -> None:
    """Apply a quota file to the cluster: validate all changes, print them, ask for confirmation, and make them."""
    wanted = _wanted(file)
    with open_access(connection) as access:
        there = access.describe()
        every = differences(there, wanted)
        changes = [difference for difference in every if prune or not difference.is_removal]
        for line in lines_of(changes):
            click.echo(line)
        if left := len(every) - len(changes):
            click.echo(f"{left:,} {'value that is' if left == 1 else 'values that are'} not in {file} stay; --prune deletes them")
        if not changes:
            click.echo("nothing to change")
            return
        validate(access, changes)
        if metering is not None:
            yes = _show_effect(metering, result_of(there, changes)) and yes
        ask(f"Change {counted(changes)}?", yes=yes)
        change(access, changes)
    click.echo(f"{counted(changes)} changed")


def _show_effect(metering: Path, after: Quotas) -> bool:
    """Print the effect on the last day; False: it is unknown, so `--yes` of a script that relies on it does not confirm the change."""
    try:
        lines = impact_lines(metering, after)
    except UnknownEffectError as error:
        click.echo(f"the effect on the last day is unknown: {error}")
        if not is_terminal():
            raise click.UsageError("--yes does not confirm a change with an unknown effect; omit --metering to make it") from error
        return False
    for line in lines:
        click.echo(line)
    return True


def validate(access: QuotaAccess, changes: list[Difference]) -> None:
    """Have changes validated; exit when one is refused."""
    _send(access, changes, validate_only=True)


def change(access: QuotaAccess, changes: list[Difference]) -> None:
    """Make changes; exit with an error when one is refused."""
    _send(access, changes, validate_only=False)


def is_terminal() -> bool:
    """Whether a user can be asked."""
    return sys.stdin.isatty()


def ask(question: str, *, yes: bool) -> None:
    """Continue if the user confirms, or gave `--yes`."""
    if yes:
        return
    if not is_terminal():
        raise click.UsageError("confirmation needs a terminal; write --yes")
    if not click.confirm(question):
        refused("nothing was changed")


def _send(access: QuotaAccess, changes: list[Difference], *, validate_only: bool) -> None:
    wanted = alterations(changes)
    errors = [error for part in batches(wanted) for error in access.alter(part, validate_only=validate_only).items()]
    if not errors:
        return
    for entity, error in errors[:ERRORS_SHOWN]:
        click.echo(f"sluice quotas: {shown(entity)}: {error}", err=True)
    outcome = "nothing was changed" if validate_only else "the others were changed"
    refused(f"{len(errors):,} of {len(wanted):,} entities were refused; {outcome}")


def _wanted(file: Path) -> Quotas:
    content = read_quota_file(file)
    if content.switches:
        click.echo(f"sluice quotas: {file}: its switches are ignored here; use sluice quotas switch", err=True)
    if content.pacing:
        click.echo(f"sluice quotas: {file}: its pacings are ignored here; use sluice quotas pacing", err=True)
    return {ClientQuotaEntity(entity): values for entity, values in content.quotas.items()}
