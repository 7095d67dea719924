"""The commands. What they print is a line for each entity; errors are one line, exit code 1 where the cluster said no."""

from __future__ import annotations

import functools
import ssl
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import click

from proxy.quotas_command.ladder import Rung, ip_rungs, rungs
from proxy.quotas_command.values import Named, check_key, keys_of, read_settings
from sluice.admin import (
    CLIENT_ID,
    IP,
    USER,
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    QuotaAdmin,
    QuotaAdminError,
)

_TITLES = {USER: "user", CLIENT_ID: "client-id", IP: "ip"}


@click.group(no_args_is_help=False)
def quotas() -> None:
    """Read and change the quotas of a cluster, at brokers or through Sluice (APIs 48 and 49)."""


def _for_entity(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say where, and for whom."""

    @click.option("--bootstrap-server", required=True, metavar="HOST:PORT[,...]", help="A broker, or Sluice.")
    @click.option("--tls-ca", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Speak TLS, and trust these authorities.")
    @click.option("--user", metavar="NAME")
    @click.option("--user-default", is_flag=True, help="Whoever has no quota of their own.")
    @click.option("--client-id", metavar="NAME")
    @click.option("--client-id-default", is_flag=True)
    @click.option("--ip", metavar="ADDRESS")
    @click.option("--ip-default", is_flag=True)
    @functools.wraps(command)
    def wrapped(bootstrap_server: str, tls_ca: Path | None, **options: Any) -> None:
        named = Named(*(options.pop(field) for field in Named._fields))
        try:
            context = None if tls_ca is None else ssl.create_default_context(cafile=tls_ca)
            with QuotaAdmin(bootstrap_server, ssl_context=context) as admin:
                command(admin, named, **options)
        except ValueError as error:
            raise click.UsageError(f"--bootstrap-server: {error}") from error
        except QuotaAdminError as error:
            _refused(str(error))

    return wrapped


@quotas.command("set")
@_for_entity
@click.option("--validate-only", is_flag=True, help="Have it judged, change nothing.")
@click.argument("settings", nargs=-1, metavar="KEY=VALUE...")
def set_quotas(admin: QuotaAdmin, named: Named, settings: tuple[str, ...], validate_only: bool) -> None:
    """Set quotas of an entity: producer_byte_rate=1MiB consumer_byte_rate=2MB request_percentage=50 ..."""
    entity = named.entity()
    _alter(admin, entity, read_settings(settings, entity), validate_only=validate_only)


@quotas.command()
@_for_entity
@click.option("--validate-only", is_flag=True, help="Have it judged, change nothing.")
@click.argument("keys", nargs=-1, metavar="[KEY...]")
def delete(admin: QuotaAdmin, named: Named, keys: tuple[str, ...], validate_only: bool) -> None:
    """Take quotas away from an entity: those named, or all that it has."""
    entity = named.entity()
    for key in keys:
        check_key(key, entity)
    wanted = keys or tuple(_of(admin, entity))
    if not wanted:
        _refused(f"{_shown(entity)} has no quota")
    _alter(admin, entity, dict.fromkeys(wanted), validate_only=validate_only)


@quotas.command()
@_for_entity
def describe(admin: QuotaAdmin, named: Named) -> None:
    """Print the quotas of an entity; without one, of all."""
    parts = named.parts()
    found = admin.describe_client_quotas(_exactly(parts) if parts else None)
    for entity in sorted(found, key=_order):
        click.echo(f"{_shown(entity)}: {_values(found[entity])}")
    if not found:
        click.echo("no quota")


@quotas.command()
@_for_entity
def explain(admin: QuotaAdmin, named: Named) -> None:
    """Print which quota applies to a client, and what it was looked for at before."""
    entity = named.entity()
    found = admin.describe_client_quotas()
    for key in keys_of(entity):
        ladder = ip_rungs(found, key, named.ip or "") if IP in entity.entries else rungs(found, key, named.user, named.client_id)
        click.echo(f"{key}: {_outcome(ladder)}")
        for rung in ladder:
            mark = "=>" if rung.wins else "  "
            click.echo(f"  {mark} {_shown(rung.entity)}: {'-' if rung.value is None else _number(rung.value)}")


def _outcome(ladder: list[Rung]) -> str:
    return next((_number(rung.value) for rung in ladder if rung.wins and rung.value is not None), "unlimited")


def _alter(admin: QuotaAdmin, entity: ClientQuotaEntity, ops: Mapping[str, float | None], *, validate_only: bool) -> None:
    values: dict[str, float | None] = {**_of(admin, entity), **ops}  # worked out: a broker may answer from before for a moment
    results = admin.alter_client_quotas([ClientQuotaAlteration(entity, ops)], validate_only=validate_only)
    for error in results.values():
        if error is not None:
            _refused(f"{_shown(entity)}: {error}")
    if validate_only:
        click.echo(f"{_shown(entity)}: right, nothing was changed")
    else:
        left = {key: value for key, value in values.items() if value is not None}
        click.echo(f"{_shown(entity)}: {_values(left) or 'no quota'}")


def _of(admin: QuotaAdmin, entity: ClientQuotaEntity) -> dict[str, float]:
    return admin.describe_client_quotas(_exactly(entity.entries)).get(entity, {})


def _exactly(parts: Mapping[str, str | None]) -> ClientQuotaFilter:
    component = ClientQuotaFilterComponent
    return ClientQuotaFilter.contains_only(
        component.of_default_entity(kind) if name is None else component.of_entity(kind, name) for kind, name in parts.items()
    )


def _order(entity: ClientQuotaEntity) -> list[tuple[str, bool, str]]:
    return [(kind, name is None, name or "") for kind, name in reversed(entity.parts)]


def _shown(entity: ClientQuotaEntity) -> str:
    parts = sorted(entity.parts, reverse=True)
    return ", ".join(
        f"default {_TITLES.get(kind, kind)}" if name is None else f"{_TITLES.get(kind, kind)} {name!r}" for kind, name in parts
    )


def _values(values: Mapping[str, float]) -> str:
    return " ".join(f"{key}={_number(values[key])}" for key in sorted(values))


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _refused(text: str) -> NoReturn:
    click.echo(f"sluice quotas: {text}", err=True)
    sys.exit(1)
