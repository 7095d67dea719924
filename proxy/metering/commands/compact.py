"""`sluice meter compact`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from proxy.metering.commands.failures import INCOMPLETE, check_directory, fail, line_of
from sluice.local_path import LOCAL_PATH


@click.command("compact")
@click.argument("directory", type=LOCAL_PATH)
@click.option(
    "--decisions-max",
    type=click.IntRange(1),
    default=2_000_000,
    show_default=True,
    help="Maximum number of decisions of a merged file set.",
)
def compact_command(directory: Path, decisions_max: int) -> None:
    """Merge the small file sets of each hour that has ended. Decisions, usage and the chain of manifests stay as they are."""
    from proxy.base.clock import wall_time_s
    from proxy.metering.compaction.compact import compact

    check_directory(directory)
    try:
        done = compact(directory, int(wall_time_s() * 1_000), decisions_max)
    except OSError as error:
        fail(line_of(error))
    file_sets = f"{done.before:,} file set{'' if done.before == 1 else 's'}"
    click.echo(f"{file_sets} became {done.after:,}, and {done.bytes_before:,} bytes became {done.bytes_after:,}")
    for problem in done.problems:
        click.echo(f"sluice: {problem}", err=True)
    if done.problems:
        sys.exit(INCOMPLETE)
