"""`sluice quotas switch`: whether quotas are enforced, observed or off; for all, a listener or an entity."""

from __future__ import annotations

import click

from proxy.enforcement.switches import SwitchError, read_mode, read_target
from sluice_cli.quotas.connection import ConnectionOptions, admin_port, with_cluster

NONE = "default"


@click.command()
@with_cluster
@click.argument("target", required=False)
@click.argument("mode", required=False, metavar="[enforce|observe|off|default]")
def switch(connection: ConnectionOptions, target: str | None, mode: str | None) -> None:
    """Print the switches, or set one. Targets: all, listener:NAME, entity:user=NAME,client-id=NAME, entity:ip=ADDRESS. Needs --admin."""
    port = admin_port(connection)
    if target is None:
        page = port.get("/admin/switches")
    else:
        if mode is None:
            raise click.UsageError("the mode is missing; write enforce, observe, off, or default to remove the switch")
        try:
            body = {"target": str(read_target(target)), "mode": None if mode == NONE else read_mode(mode).value}
        except SwitchError as error:
            raise click.UsageError(str(error)) from None
        page = port.post("/admin/switches", body)
    for name, is_at in page["switches"].items():
        click.echo(f"{name}: {is_at}")
    if not page["switches"]:
        click.echo("no switch is set; the configuration applies")
