"""The options for the address and the login."""

from __future__ import annotations

import contextlib
import functools
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from sluice.admin import QuotaAdmin, QuotaAdminError
from sluice.client_properties import ClientPropertiesError, ClientSettings, read_client_properties
from sluice_cli.quotas.admin_port import AdminPort, AdminPortError
from sluice_cli.quotas.printing import refused

FILE = click.Path(path_type=Path, dir_okay=False)
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
    @click.option("--admin", metavar="URL", help="URL of Sluice's admin port, such as http://127.0.0.1:9644.")
    @click.option("--admin-token", type=FILE, metavar="FILE", help="File with the bearer token for the admin port.")
    @click.option(
        "--admin-ca", type=FILE, metavar="FILE", help="PEM file with certificate authorities to trust for https at the admin port."
    )
    @functools.wraps(command)
    def wrapped(**options: Any) -> None:
        connection = ConnectionOptions(*(options.pop(field) for field in ConnectionOptions._fields))
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
    context = settings.ssl_context if connection.tls_ca is None else _trusting(connection.tls_ca)
    try:
        admin = QuotaAdmin(servers, ssl_context=context, login=settings.login, timeout_ms=settings.timeout_ms or 30_000)
    except ValueError as error:
        raise click.UsageError(f"--bootstrap-server: {error}") from error
    with admin:
        yield admin


def admin_port(connection: ConnectionOptions) -> AdminPort:
    """Return a client for the admin port of the options.

    Raises:
        click.UsageError: the option is missing, or the token cannot be read.
    """
    if connection.admin is None:
        raise click.UsageError("--admin is missing; write the URL of Sluice's admin port, such as http://127.0.0.1:9644")
    token = None
    if connection.admin_token is not None:
        try:
            token = connection.admin_token.read_text("ascii").strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
            raise click.UsageError(f"--admin-token: {connection.admin_token} cannot be read: {reason}") from None
    return AdminPort(connection.admin, token, None if connection.admin_ca is None else _trusting(connection.admin_ca))


def _trusting(authorities: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authorities)
    except (OSError, ssl.SSLError) as error:
        reason = "it contains no PEM certificates" if isinstance(error, ssl.SSLError) else error.strerror
        raise click.UsageError(f"{authorities} cannot be used: {reason}") from None
