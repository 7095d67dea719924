"""The options for the address and the token of Sluice's admin port."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from sluice_cli.admin.port import AdminPort

FILE = click.Path(path_type=Path, dir_okay=False)


class AdminOptions(NamedTuple):
    """The values of the options."""

    admin: str | None
    admin_token: Path | None
    admin_ca: Path | None


def with_admin(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command; its first argument is an `AdminOptions`."""

    @click.option("--admin", metavar="URL", help="URL of Sluice's admin port, such as http://127.0.0.1:9644.")
    @click.option("--admin-token", type=FILE, metavar="FILE", help="File with the bearer token for the admin port.")
    @click.option(
        "--admin-ca", type=FILE, metavar="FILE", help="PEM file with certificate authorities to trust for https at the admin port."
    )
    @functools.wraps(command)
    def wrapped(**options: Any) -> None:
        admin = AdminOptions(*(options.pop(field) for field in AdminOptions._fields))
        command(admin, **options)

    return wrapped


def open_admin_port(options: AdminOptions) -> AdminPort:
    """Return a client for the admin port of the options.

    Raises:
        click.UsageError: an option is missing or invalid, or the token cannot be read.
    """
    from sluice_cli.admin.port import AdminPort, AdminPortError  # imported here: `sluice run` needs no HTTP client

    if options.admin is None:
        raise click.UsageError("--admin is missing; write the URL of Sluice's admin port, such as http://127.0.0.1:9644")
    token = None
    if options.admin_token is not None:
        try:
            token = options.admin_token.read_text("ascii").strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
            raise click.UsageError(f"--admin-token: {options.admin_token} cannot be read: {reason}") from None
    context = None if options.admin_ca is None else trusting(options.admin_ca)
    try:
        return AdminPort(options.admin, token, context)
    except AdminPortError as error:
        raise click.UsageError(str(error)) from None


def trusting(authorities: Path) -> ssl.SSLContext:
    """Return TLS settings that trust the authorities of a PEM file.

    Raises:
        click.UsageError: the file cannot be used.
    """
    try:
        return ssl.create_default_context(cafile=authorities)
    except (OSError, ssl.SSLError) as error:
        reason = "it contains no PEM certificates" if isinstance(error, ssl.SSLError) else error.strerror
        raise click.UsageError(f"{authorities} cannot be used: {reason}") from None
