"""`sluice quotas pacing`: whether Kafka's window or a schedule enforces bytes and request time; for all, a declared group or an entity."""

from __future__ import annotations

import click

from proxy.enforcement.pacing import read_paced_target, read_pacing
from proxy.enforcement.switches import SwitchError
from sluice_cli.quotas.connection import ConnectionOptions, admin_port, with_cluster

NONE = "default"


@click.command()
@with_cluster
@click.argument("target", required=False)
@click.argument("pacing", required=False, metavar="[paced|window|default]")
def pacing(connection: ConnectionOptions, target: str | None, pacing: str | None) -> None:
    """Print the pacings, or set one. Targets: all, group:NAME, entity:user=NAME,client-id=NAME. Needs --admin."""
    port = admin_port(connection)
    if target is None:
        page = port.get("/admin/pacing")
    else:
        if pacing is None:
            raise click.UsageError("the pacing is missing; write paced, window, or default for that of the configuration")
        try:
            body = {"target": str(read_paced_target(target)), "pacing": None if pacing == NONE else read_pacing(pacing).value}
        except SwitchError as error:
            raise click.UsageError(str(error)) from None
        page = port.post("/admin/pacing", body)
    for name, is_at in page["pacing"].items():
        click.echo(f"{name}: {is_at}")
    if not page["pacing"]:
        click.echo("no pacing is set; the configuration applies")
