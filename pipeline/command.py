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

FORM = click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)


@click.group(no_args_is_help=False)
def meter() -> None:
    """Read what `sluice run --metering DIR` wrote: usage, proof of enforcement, what-if, recommendations."""


@meter.command("verify-manifests")
@click.argument("directory", type=DIRECTORY)
@FORM
@clear_errors
def verify_manifests(directory: Path, form: str) -> None:
    """Compare every file with what its manifest says (presence, length, SHA-256), and every manifest with the one before it."""
    from pipeline.chain import broken_links
    from pipeline.commands.telling import put_out
    from pipeline.manifest import by_run, find_manifests, problems_in
    from pipeline.removed import removed_runs

    manifests = find_manifests(directory)
    problems = problems_in(directory, manifests)
    problems += [line for _, line in broken_links(by_run(manifests).values(), removed_runs(directory))]
    files = sum(len(manifest.files) for manifest in manifests)
    lines = [*problems, f"{len(manifests)} manifests, {files} files, {len(problems)} problems"]
    put_out(form, None, {"manifests": len(manifests), "files": files, "problems": problems}, lines, (), None)
    if problems:
        sys.exit(INCOMPLETE)


@meter.command()
@click.argument("file", type=DIRECTORY)
@FORM
@clear_errors
def inspect(file: Path, form: str) -> None:
    """Say what one metering file or manifest holds."""
    from pipeline.commands.telling import put_out
    from pipeline.inspection import as_dict, inspected, lines_of

    found = inspected(file)
    put_out(form, None, as_dict(found), lines_of(found), (), None)


meter.add_command(validate)
meter.add_command(rollup)
meter.add_command(whatif)
meter.add_command(recommend)
meter.add_command(neighbours)
meter.add_command(stream)
