"""`sluice health`: the health check of a container, by the admin port of the running Sluice."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path
from typing import Any, Final

import click

from proxy.base.host_port import HostPort, ip_of
from proxy.base.printable import printable
from proxy.config.problem import ConfigProblems
from proxy.config.toml_reader import read_toml
from proxy.config.values import read_listen

UNHEALTHY: Final = 1
TIMEOUT_S: Final = 3.0
_ADDRESS_REMEDY: Final = 'write address = "127.0.0.1:9644" below [admin]'


class _UnknownPortError(Exception):
    """The admin port is not known; the text is one line."""


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="SLUICE_CONFIG",
    help="Configuration file of the running Sluice. Default: SLUICE_CONFIG of the environment.",
)
@click.option(
    "--admin",
    metavar="HOST:PORT",
    envvar="SLUICE_ADMIN",
    help="Address of the admin port, where `run` has --admin. Default: SLUICE_ADMIN of the environment.",
)
def health(config: Path | None, admin: str | None) -> None:
    """Ask the running Sluice at its admin port whether it works, and print one line. Exit code 1: it does not, or the port is not known."""
    from sluice_cli.admin.port import AdminPort, AdminPortError  # imported here: `sluice run` needs no HTTP client

    try:
        url, context = _port_of(config, admin)
        AdminPort(url, None, context, timeout_s=TIMEOUT_S).get("/healthz")
    except (_UnknownPortError, AdminPortError) as error:
        click.echo(f"unhealthy: {printable(str(error), 1_000)}")
        sys.exit(UNHEALTHY)
    except ConfigProblems as problems:
        click.echo(f"unhealthy: {problems.lines()[0]}")
        sys.exit(UNHEALTHY)
    click.echo(f"healthy: {url}")


def _port_of(config: Path | None, admin: str | None) -> tuple[str, ssl.SSLContext | None]:
    """Return the URL of the admin port, and for https its TLS settings.

    Only the two keys that name the port are read. A typo elsewhere in the file does not make the running process unhealthy.

    Raises:
        ConfigProblems: the file cannot be read.
        _UnknownPortError: neither file nor option names a port.
    """
    table = _section(config, needed=admin is None)
    given, place = (admin, "--admin") if admin is not None else (table.get("address"), f"{config}: admin.address")
    if given is None:
        raise _UnknownPortError(f"{place} is missing; {_ADDRESS_REMEDY}")
    try:
        address = _reachable(read_listen(given))
    except ValueError as error:
        raise _UnknownPortError(f"{place}: {error}; {_ADDRESS_REMEDY}") from None
    if address.port == 0:
        raise _UnknownPortError(f"{place}: port 0 is any free port, so it is not known here; {_ADDRESS_REMEDY}")
    return (f"https://{address}", _unverified()) if "tls" in table else (f"http://{address}", None)


def _section(config: Path | None, *, needed: bool) -> dict[str, Any]:
    """Return `[admin]` of the file; empty without a file, where it is not needed.

    Raises:
        ConfigProblems: the file cannot be read.
        _UnknownPortError: no file is named, and one is needed.
    """
    if config is None and needed:
        raise _UnknownPortError("--config is missing; name the configuration file of the running Sluice")
    if config is None or not (needed or config.exists()):
        return {}
    section = read_toml(config).get("admin", {})
    return section if isinstance(section, dict) else {}


def _reachable(address: HostPort) -> HostPort:
    """Return where a listener at `address` is reached from this host."""
    if not address.is_wildcard:
        return address
    ip = ip_of(address.host)
    return address._replace(host="::1" if ip is not None and ip.version == 6 else "127.0.0.1")


def _unverified() -> ssl.SSLContext:
    """Return TLS settings that verify nothing, as probes of Kubernetes do.

    The check goes to this host's own port and sends no secret. An expired certificate, or one whose renewal is not loaded yet, is no
    reason to restart a process.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
