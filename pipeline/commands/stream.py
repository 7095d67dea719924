"""`sluice meter stream`."""

import sys
from pathlib import Path

import click

from pipeline.commands.outcome import INCOMPLETE, VIOLATIONS, clear_errors
from pipeline.commands.spark_options import spark_options


@click.command()
@click.option("--from", "source", required=True, metavar="DIR|URL", help="A metering directory, or kafka://HOST:PORT/TOPIC.")
@click.option("--checkpoint", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Where Spark notes how far it has read.")
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Where the tables go.")
@click.option("--once", is_flag=True, help="End when all that is there has been read.")
@spark_options
@clear_errors
def stream(source: str, checkpoint: Path, out: Path, *, once: bool, master: str | None, verbose: bool) -> None:
    """Judge and land file sets as they come, each exactly once."""
    from pipeline.stream.settings import StreamSettings, check_settings

    settings = StreamSettings(source, checkpoint, out, once)
    check_settings(settings)
    from pipeline.spark.session import session
    from pipeline.spark.stream import Stream

    with session(master, verbose=verbose) as spark:
        told = Stream(spark, settings, lambda line: click.echo(f"sluice: {line}", err=True)).run()
    click.echo(f"landed      {told.stems:,} file sets in {told.batches:,} batches")
    for table, rows in sorted(told.rows.items()):
        click.echo(f"            {rows:>12,} rows of {table}")
    if told.whole is not None:
        click.echo(f"complete    every file set that is there, {told.whole:,} in all; none was left out as late")
    if told.unjudged or told.dropped:
        click.echo(
            f"missing     {told.dropped:,} decisions not written, {told.unjudged:,} not judged, too close behind some that are missing"
        )
    click.echo(f"verdict     {told.divergences:,} divergences" if told.divergences else "verdict     exact")
    if told.divergences:
        sys.exit(VIOLATIONS)
    if told.unjudged or told.dropped:
        sys.exit(INCOMPLETE)
