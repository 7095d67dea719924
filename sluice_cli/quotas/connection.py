"""The options for the address and the login."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from sluice.admin import QuotaAdmin, QuotaAdminError
from sluice.client_properties import ClientPropertiesError, ClientSettings, read_client_properties
from sluice_cli.admin.options import FILE, AdminOptions, open_admin_port, trusting, with_admin
from sluice_cli.admin.port import AdminPort, AdminPortError
from sluice_cli.quotas.printing import refused

BAD_INPUT = 2


class ConnectionOptions(NamedTuple):
    """The values of the options for brokers and the admin port."""

    bootstrap_server: str | None
    tls_ca: Path | None
    command_config: Path | None
    admin: str | None
    admin_token: Path | None
    admin_ca: Path | None


def with_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a command that connects to brokers, or to Sluice as a broker; its first argument is a `ConnectionOptions`."""

    @click.option("--bootstrap-server", metavar="HOST:PORT[,...]", help="Bootstrap addresses of brokers or of Sluice.")
    @click.option("--command-config", type=FILE, metavar="FILE", help="Properties file of a Kafka client, for TLS and SASL settings.")
    @click.option("--tls-ca", type=FILE, help="Use TLS, and trust the certificate authorities in this PEM file.")
    @with_admin
    @functools.wraps(command)
    def wrapped(admin: AdminOptions, **options: Any) -> None:
        connection = ConnectionOptions(options.pop("bootstrap_server"), options.pop("tls_ca"), options.pop("command_config"), *admin)
        try:
            command(connection, **options)
        except (QuotaAdminError, AdminPortError) as error:
            refused(str(error))
        except ClientPropertiesError as error:
            refused(str(error), BAD_INPUT)

    return wrapped


@contextlib.contextmanager
def cluster(connection: ConnectionOptions) -> Iterator[QuotaAdmin]:
    """Yield a client for the brokers of the options.

    Raises:
        click.UsageError: the options are missing or invalid.
    """
    settings = ClientSettings(None, None, None, None, ())
    if connection.command_config is not None:
        settings = read_client_properties(connection.command_config)
        if settings.unused:
            click.echo(f"sluice quotas: {connection.command_config}: has no effect here: {', '.join(settings.unused)}", err=True)
    servers = connection.bootstrap_server or settings.bootstrap_servers
    if servers is None:
        raise click.UsageError("--bootstrap-server is missing; write HOST:PORT of a broker or of Sluice")
    context = settings.ssl_context if connection.tls_ca is None else trusting(connection.tls_ca)
    try:
        admin = QuotaAdmin(servers, ssl_context=context, login=settings.login, timeout_ms=settings.timeout_ms or 30_000)
    except ValueError as error:
        raise click.UsageError(f"--bootstrap-server: {error}") from error
    with admin:
        yield admin


def admin_port(connection: ConnectionOptions) -> AdminPort:
    """Return a client for the admin port of the options.

    Raises:
        click.UsageError: an option is missing or invalid, or the token cannot be read.
    """
    return open_admin_port(AdminOptions(connection.admin, connection.admin_token, connection.admin_ca))
