"""The commands. They print one line for each entity; an error is one line, with exit code 1 when the cluster refuses."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import click

from proxy.quota_admin.precedence import Level, ip_levels, levels
from sluice.admin import IP, ClientQuotaAlteration, ClientQuotaEntity
from sluice_cli.quotas.access import QuotaAccess, open_access
from sluice_cli.quotas.apply import apply, diff
from sluice_cli.quotas.connection import ConnectionOptions, admin_port, with_cluster
from sluice_cli.quotas.history import history, rollback
from sluice_cli.quotas.live import live_lines
from sluice_cli.quotas.pacing import pacing
from sluice_cli.quotas.printing import number, order, refused, shown, values
from sluice_cli.quotas.switch import switch
from sluice_cli.quotas.values import Named, check_key, keys_of, read_settings


@click.group(no_args_is_help=False)
def quotas() -> None:
    """Read and change client quotas of a cluster, at brokers or through Sluice (APIs 48 and 49)."""


def _for_entity(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the cluster and the entity."""

    @click.option("--user", metavar="NAME", help="Name of a user.")
    @click.option("--user-default", is_flag=True, help="The default user entity: applies to users without a more specific quota.")
    @click.option("--client-id", metavar="NAME", help="Client id.")
    @click.option("--client-id-default", is_flag=True, help="The default client-id entity.")
    @click.option("--ip", metavar="ADDRESS", help="IP address.")
    @click.option("--ip-default", is_flag=True, help="The default IP entity.")
    @functools.wraps(command)
    def wrapped(connection: ConnectionOptions, **options: Any) -> None:
        command(connection, Named(*(options.pop(field) for field in Named._fields)), **options)

    return with_cluster(wrapped)


@quotas.command("set")
@_for_entity
@click.option("--validate-only", is_flag=True, help="Validate the change without making it.")
@click.argument("settings", nargs=-1, metavar="KEY=VALUE...")
def set_quotas(connection: ConnectionOptions, named: Named, settings: tuple[str, ...], validate_only: bool) -> None:
    """Set quotas of an entity, for example producer_byte_rate=1MiB consumer_byte_rate=2MB request_percentage=50."""
    entity = named.entity()
    ops = read_settings(settings, entity)
    with open_access(connection) as access:
        _alter(access, entity, ops, validate_only=validate_only)


@quotas.command()
@_for_entity
@click.option("--validate-only", is_flag=True, help="Validate the change without making it.")
@click.argument("keys", nargs=-1, metavar="[KEY...]")
def delete(connection: ConnectionOptions, named: Named, keys: tuple[str, ...], validate_only: bool) -> None:
    """Delete the named quotas of an entity, or all of them."""
    entity = named.entity()
    for key in keys:
        check_key(key, entity)
    with open_access(connection) as access:
        wanted = keys or tuple(_of(access, entity))
        if not wanted:
            refused(f"{shown(entity)} has no quota")
        _alter(access, entity, dict.fromkeys(wanted), validate_only=validate_only)


@quotas.command()
@_for_entity
def describe(connection: ConnectionOptions, named: Named) -> None:
    """Print the quotas of an entity; without an entity, all quotas."""
    parts = named.parts()
    with open_access(connection) as access:
        found = access.describe(parts or None)
    for entity in sorted(found, key=order):
        click.echo(f"{shown(entity)}: {values(found[entity])}")
    if not found:
        click.echo("no quota")


@quotas.command()
@click.option("--listener", metavar="NAME", help="With --admin: the client's listener, for switches and declared groups.")
@click.option("--address", metavar="IP", help="With --admin: the client's IP address, for declared groups.")
@_for_entity
def explain(connection: ConnectionOptions, named: Named, listener: str | None, address: str | None) -> None:
    """Print the quota that applies to a client, and the levels of precedence. --admin adds current usage and who shares the quota."""
    entity = named.entity()
    with open_access(connection) as access:
        found = access.describe()
    live = {} if connection.admin is None else live_lines(admin_port(connection), named.user, named.client_id, named.ip, listener, address)
    for key in keys_of(entity):
        precedence = ip_levels(found, key, named.ip or "") if IP in entity.entries else levels(found, key, named.user, named.client_id)
        click.echo(f"{key}: {_outcome(precedence)}")
        for level in precedence:
            mark = "=>" if level.wins else "  "
            click.echo(f"  {mark} {shown(level.entity)}: {'-' if level.value is None else number(level.value)}")
        for line in live.get(key, []):
            click.echo(f"     {line}")


for command in (apply, diff, history, rollback, switch, pacing):
    quotas.add_command(command)


def _outcome(precedence: list[Level]) -> str:
    return next((number(level.value) for level in precedence if level.wins and level.value is not None), "unlimited")


def _alter(access: QuotaAccess, entity: ClientQuotaEntity, ops: Mapping[str, float | None], *, validate_only: bool) -> None:
    after: dict[str, float | None] = {**_of(access, entity), **ops}  # computed: a broker may return the old values for a moment
    for error in access.alter([ClientQuotaAlteration(entity, ops)], validate_only=validate_only).values():
        refused(f"{shown(entity)}: {error}")
    if validate_only:
        click.echo(f"{shown(entity)}: valid, nothing was changed")
    else:
        left = {key: value for key, value in after.items() if value is not None}
        click.echo(f"{shown(entity)}: {values(left) or 'no quota'}")


def _of(access: QuotaAccess, entity: ClientQuotaEntity) -> Mapping[str, float]:
    return access.describe(entity.entries).get(entity, {})
