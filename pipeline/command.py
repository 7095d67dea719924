"""`sluice meter ...`. Exit codes: 0 clean, 1 violations found, 2 bad input or usage, 3 incomplete data."""

import sys
from pathlib import Path

import click

from pipeline.commands.neighbours import neighbours
from pipeline.commands.outcome import INCOMPLETE, clear_errors
from pipeline.commands.recommend import recommend
from pipeline.commands.rollup import rollup
from pipeline.commands.stream import stream
from pipeline.commands.validate import DIRECTORY, validate
from pipeline.commands.whatif import whatif


@click.group(no_args_is_help=False)
def meter() -> None:
    """Read what `sluice run --metering DIR` wrote: usage, proof of enforcement, what-if, recommendations."""


@meter.command("verify-manifests")
@click.argument("directory", type=DIRECTORY)
@clear_errors
def verify_manifests(directory: Path) -> None:
    """Compare every file with what its manifest says: presence, length, SHA-256."""
    from pipeline.manifest import find_manifests, problems_of

    manifests = find_manifests(directory)
    problems = [problem for manifest in manifests for problem in problems_of(directory, manifest)]
    for problem in problems:
        click.echo(problem)
    files = sum(len(manifest.files) for manifest in manifests)
    click.echo(f"{len(manifests)} manifests, {files} files, {len(problems)} problems")
    if problems:
        sys.exit(INCOMPLETE)


@meter.command()
@click.argument("file", type=DIRECTORY)
@clear_errors
def inspect(file: Path) -> None:
    """Say what one metering file or manifest holds."""
    from pipeline.inspection import lines_of

    for line in lines_of(file):
        click.echo(line)


meter.add_command(validate)
meter.add_command(rollup)
meter.add_command(whatif)
meter.add_command(recommend)
meter.add_command(neighbours)
meter.add_command(stream)
