"""`sluice meter ...`. Exit codes: 0 clean, 1 violations found, 2 bad input or usage, 3 incomplete data."""

import click

from pipeline.commands.archive import archive
from pipeline.commands.ddl import ddl
from pipeline.commands.inspect import inspect
from pipeline.commands.neighbours import neighbours
from pipeline.commands.recommend import recommend
from pipeline.commands.register import register
from pipeline.commands.repair import repair_command
from pipeline.commands.rollup import rollup
from pipeline.commands.stream import stream
from pipeline.commands.validate import validate
from pipeline.commands.verify_manifests import verify_manifests
from pipeline.commands.whatif import whatif
from sluice_cli.by_hadoop import by_hadoop


@click.group(no_args_is_help=False)
def meter() -> None:
    """Analyse the files that `sluice run --metering DIR` writes: usage, validation, simulation, recommendations."""


for command in (validate, rollup, ddl, whatif, recommend, neighbours, stream, inspect, verify_manifests, archive, register):
    meter.add_command(command)


def with_writers() -> click.Group:
    """Add the commands that change files, and return all commands. `proxy` implements these; where Spark's workers run it is missing."""
    from proxy.metering.commands.compact import compact_command
    from proxy.metering.commands.forget import forget_command
    from proxy.metering.commands.upload import upload_command
    from proxy.metering.repair import repair

    for command in (repair_command(repair), by_hadoop(compact_command), by_hadoop(forget_command), upload_command):
        meter.add_command(command)
    return meter
