"""`sluice meter stream`."""

import sys
from pathlib import Path

import click

from pipeline.commands.execution.exit_codes import INCOMPLETE, VIOLATIONS, clear_errors
from pipeline.commands.execution.options import Common, common_options
from pipeline.commands.execution.outputs import LOCAL_OUTPUT
from pipeline.stream.defaults import MESSAGES_MAX


@click.command()
@click.option("--from", "source", required=True, metavar="DIR|URL", help="Metering directory, or kafka://HOST:PORT/TOPIC.")
@click.option("--checkpoint", type=LOCAL_OUTPUT, required=True, metavar="DIR", help="Checkpoint directory of Spark Structured Streaming.")
@click.option("--out", type=LOCAL_OUTPUT, required=True, metavar="DIR", help="Write the tables to this directory.")
@click.option("--once", is_flag=True, help="Process the available file sets, then exit.")
@click.option(
    "--command-config",
    "properties",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Properties file of a Kafka client on every machine, for TLS and SASL settings of a topic.",
)
@click.option(
    "--messages-max",
    type=click.IntRange(1),
    default=MESSAGES_MAX,
    show_default=True,
    help="Highest number of messages of a batch of a topic.",
)
@clear_errors
@common_options("spark", because="streams need Spark", explain="Print the samples that prove each divergence.")
def stream(source: str, checkpoint: Path, out: Path, *, once: bool, properties: Path | None, messages_max: int, common: Common) -> None:
    """Validate file sets as they arrive, and append them to tables exactly once. Runs on Spark."""
    from pipeline.stream.settings import StreamSettings, check_settings  # imported here: --help loads no Arrow

    settings = StreamSettings(source, checkpoint, out, once, properties, messages_max)
    check_settings(settings)
    from pipeline.commands.execution.output import write_output
    from pipeline.report.stream_page import draw_stream
    from pipeline.spark.session import session
    from pipeline.spark.stream.stream import Stream
    from pipeline.validation.divergence import COLUMNS

    with session(common.session) as spark:
        result = Stream(spark, settings, lambda line: click.echo(f"sluice: {line}", err=True)).run()
    lines, rows = result.lines(explain=common.explain), [divergence.as_row() for divergence in result.findings]
    write_output(common.form, None, result.as_dict(), lines, rows, lambda: draw_stream(source, result), header=COLUMNS)
    if result.divergences:
        sys.exit(VIOLATIONS)
    if not result.is_whole:
        sys.exit(INCOMPLETE)
