"""`sluice meter ...`. Exit codes: 0 clean, 1 violations found, 2 bad input or usage, 3 incomplete data."""

from collections.abc import Callable
from pathlib import Path

import click

from pipeline.commands.archive import archive
from pipeline.commands.ddl import ddl
from pipeline.commands.inspect import inspect
from pipeline.commands.neighbours import neighbours
from pipeline.commands.recommend import recommend
from pipeline.commands.register import register
from pipeline.commands.repair import Repaired, repair_command
from pipeline.commands.rollup import rollup
from pipeline.commands.stream import stream
from pipeline.commands.validate import validate
from pipeline.commands.verify_manifests import verify_manifests
from pipeline.commands.whatif import whatif


@click.group(no_args_is_help=False)
def meter() -> None:
    """Analyse the files that `sluice run --metering DIR` writes: usage, validation, simulation, recommendations."""


for command in (validate, rollup, ddl, whatif, recommend, neighbours, stream, inspect, verify_manifests, archive, register):
    meter.add_command(command)


def with_writers(repair: Callable[[Path], Repaired], *others: click.Command) -> click.Group:
    """Add the commands that change files, which `proxy` implements, and return all commands."""
    for writer in (repair_command(repair), *others):
        meter.add_command(writer)
    return meter
