"""`sluice meter stream`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.commands.execution.exit_codes import INCOMPLETE, VIOLATIONS, clear_errors
from pipeline.commands.execution.options import Common, common_options
from pipeline.commands.execution.outputs import SPARK_OUTPUT
from pipeline.commands.execution.sinks import ICEBERG, Sink, sink_options
from pipeline.stream.defaults import MESSAGES_MAX

if TYPE_CHECKING:
    from pipeline.stream.output import StreamOutput


@click.command()
@click.option("--from", "source", required=True, metavar="DIR|URL", help="Metering directory, its URL, or kafka://HOST:PORT/TOPIC.")
@click.option("--checkpoint", type=SPARK_OUTPUT, required=True, metavar="DIR", help="Directory for the state of the stream, or its URL.")
@sink_options("Write the tables and the files of a topic to this directory, or URL.", SPARK_OUTPUT, has_other_files=True)
@click.option("--once", is_flag=True, help="Process the available file sets, then exit.")
@click.option(
    "--command-config",
    "client_properties",
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
def stream(
    source: str, checkpoint: Path | str, sink: Sink, *, once: bool, client_properties: Path | None, messages_max: int, common: Common
) -> None:
    """Validate file sets as they arrive, and append them to tables exactly once. Runs on Spark."""
    from pipeline.stream.settings import StreamSettings, check_settings  # imported here: --help loads no Arrow

    out = sink.out if isinstance(sink.out, Path | str) else None
    settings = StreamSettings(source, checkpoint, out, once, client_properties, messages_max, in_tables=not sink.is_of_files)
    if not settings.is_topic:
        sink.check_no_directory()
    session_settings = common.session if sink.is_of_files else sink.settings_of_spark(common.session)
    check_settings(settings)
    from pipeline.commands.execution.output import write_output
    from pipeline.report.stream_page import draw_stream
    from pipeline.spark.session import session
    from pipeline.spark.stream.stream import Stream
    from pipeline.validation.divergence import COLUMNS

    with session(session_settings) as spark:
        result = Stream(spark, settings, _progress, None if sink.is_of_files else _tables(spark, sink)).run()
    lines, rows = result.lines(explain=common.explain), [divergence.as_row() for divergence in result.findings]
    write_output(common.form, None, result.as_dict(), lines, rows, lambda: draw_stream(source, result), header=COLUMNS)
    if result.divergences:
        sys.exit(VIOLATIONS)
    if not result.is_whole:
        sys.exit(INCOMPLETE)


def _tables(spark: Any, sink: Sink) -> "StreamOutput":
    from pipeline.spark.stream.batches import opened
    from pipeline.spark.stream.table_output import TableOutput

    files = opened(spark, sink.out) if sink.kind == ICEBERG and sink.out is not None else None
    return TableOutput(spark, sink.format_on(spark), files)


def _progress(line: str) -> None:
    click.echo(f"sluice: {line}", err=True)
