"""`sluice meter rollup`."""

import contextlib
import re
import sys
from datetime import date
from typing import TYPE_CHECKING, Final

import click

from pipeline.commands.execution.exit_codes import INCOMPLETE, clear_errors
from pipeline.commands.execution.inputs import INPUT_OF_ENGINE, opener
from pipeline.commands.execution.options import LOCAL, SPARK, Common, common_options
from pipeline.commands.execution.sinks import Sink, sink_options
from pipeline.errors import BadInputError
from pipeline.storage.paths import AnyPath, is_of_hadoop
from sluice.object_store import is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pipeline.commands.execution.sinks import OpenTables
    from pipeline.rollup.prices import Prices
    from pipeline.rollup.settings import RollupResult, RollupSettings
    from pipeline.rollup.tenants import TenantLine

    Update = Callable[[RollupSettings], RollupResult]

LEVELS: Final = ("minute", "hour", "day")
WHOLE: Final = 100.0
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ]([01]\d|2[0-3]))?")


@click.command()
@click.option("--in", "source", required=True, metavar="DIR", help="Metering directory to read: a path, or a URL such as s3://BUCKET/DIR.")
@sink_options("Write tables and, without --sink, report.html to this directory.")
@click.option(
    "--level", "levels", default="hour,day", show_default=True, metavar="LEVELS", help="Comma-separated list of minute, hour and day."
)
@click.option(
    "--tenants",
    type=INPUT_OF_ENGINE,
    metavar="FILE",
    help="CSV file with lines of user,client_id,tenant; the first line that matches applies.",
)
@click.option("--prices", type=INPUT_OF_ENGINE, metavar="FILE", help="TOML file with prices of usage, for chargeback.")
@click.option("--from", "begin", metavar="TIME", help="First hour, in UTC: 2026-11-21 or 2026-11-21T07.")
@click.option("--to", "end", metavar="TIME", help="Last hour, inclusive, in the same format.")
@click.option(
    "--close-through", metavar="DATE", help="Close all days up to this date. Late data of a closed day is written as adjustments."
)
@clear_errors
@common_options(
    SPARK,
    LOCAL,
    usual="local; spark with an option of Spark, or if only Hadoop knows the URL of --in",
    explain="Print how the coverage of each hour is computed.",
)
def rollup(
    source: str,
    sink: Sink,
    levels: str,
    tenants: AnyPath | str | None,
    prices: AnyPath | str | None,
    begin: str | None,
    end: str | None,
    close_through: str | None,
    common: Common,
) -> None:
    """Aggregate usage by client and throttle decisions by quota group into tables per minute, hour or day."""
    chosen = tuple(level.strip() for level in levels.split(","))
    for level in chosen:
        if level not in LEVELS:
            raise BadInputError(f'--level: "{level}" is not one of {", ".join(LEVELS)}; write them with commas')
    hours = (_hour("--from", begin, "00"), _hour("--to", end, "23"))
    if hours[0] is not None and hours[1] is not None and hours[1] < hours[0]:
        raise BadInputError(f"--to: {end} is before --from {begin}; swap them")
    closing = _day(close_through)
    engine = _engine((source, sink.out, tenants, prices), common)
    with _costs(engine, sink, common, tenants, prices) as (lines, costs), _opened(sink, engine, common) as (tables, update):
        from pipeline.rollup.exclusive import exclusive
        from pipeline.rollup.settings import RollupSettings

        with exclusive(tables.folder):
            result = update(RollupSettings(source, tables.folder, chosen, lines, *hours, closing, costs))
            _report(tables, result, common)
    for line in result.broken:
        click.echo(f"sluice: {line}", err=True)
    if result.broken or any(percent < WHOLE for percent in result.coverage.values()):
        sys.exit(INCOMPLETE)


@contextlib.contextmanager
def _costs(
    engine: str, sink: Sink, common: Common, tenants: AnyPath | str | None, prices: AnyPath | str | None
) -> "Iterator[tuple[tuple[TenantLine, ...], Prices | None]]":
    """Read tenants and prices. Spark starts first, for the block, if only Hadoop knows where they are."""
    from pipeline.rollup.prices import read_prices, unknown_tenants
    from pipeline.rollup.tenants import read_tenants

    given = (("--tenants", tenants), ("--prices", prices))
    settings = sink.settings_of_spark(common.session) if engine == SPARK else common.session
    with opener(engine, settings, given, python_tasks=True) as opened:
        lines = tuple(read_tenants(opened(tenants))) if tenants is not None else ()
        costs = read_prices(opened(prices)) if prices is not None else None
        for tenant in sorted(unknown_tenants(costs, lines)):
            click.echo(f"sluice: {prices}: tenant {tenant} is in no line of a tenants file, so its prices apply to no client", err=True)
        yield lines, costs


@contextlib.contextmanager
def _opened(sink: Sink, engine: str, common: Common) -> "Iterator[tuple[OpenTables, Update]]":
    """Open the tables; yield them, and the function that updates and publishes them."""
    if engine == SPARK and not sink.is_of_folder:
        with _opened_on_spark(sink, common) as opened:
            yield opened
        return
    with sink.open() as tables:

        def update(settings: "RollupSettings") -> "RollupResult":
            result = _on_duckdb(settings) if engine == LOCAL else _on_spark(settings, common)
            tables.publish(result)
            return result

        yield tables, update


@contextlib.contextmanager
def _opened_on_spark(sink: Sink, common: Common) -> "Iterator[tuple[OpenTables, Update]]":
    """Open tables that are not in a folder of this machine. Spark starts first, since only Spark knows which hours they have."""
    from pipeline.spark.session import session

    with session(sink.settings_of_spark(common.session), python_tasks=True) as spark, sink.open_on_spark(spark) as (tables, target):

        def update(settings: "RollupSettings") -> "RollupResult":
            with _naming_duckdb(SPARK):
                from pipeline.spark.rollup.rollup import roll_up
            result = roll_up(spark, settings, _progress, target)
            tables.publish(result)
            target.copy_rows(tables.folder, result.tables)
            return result

        yield tables, update


def _on_spark(settings: "RollupSettings", common: Common) -> "RollupResult":
    """Update a directory of files. Spark starts only if there is something to build."""
    from pipeline.rollup.settings import RollupResult, close_books, plan_local, published_coverage

    known = None if is_url(settings.source) else plan_local(settings)  # Spark lists other file systems
    if known is not None and known[1].is_empty:
        close_books(settings)
        return RollupResult(coverage=published_coverage(known[0], settings))
    from pipeline.spark.session import session

    with session(common.session, python_tasks=True) as spark:
        with _naming_duckdb(SPARK):
            from pipeline.spark.rollup.rollup import roll_up
        return roll_up(spark, settings, _progress)


def _engine(places: "Sequence[AnyPath | str | None]", common: Common) -> str:
    """Return the engine: Spark where an option asks for it, and where only Hadoop knows a URL."""
    if common.asks_for_engine:
        return common.engine
    return SPARK if any(isinstance(place, str) and is_of_hadoop(place) for place in places) else LOCAL


def _on_duckdb(settings: "RollupSettings") -> "RollupResult":
    with _naming_duckdb(LOCAL):
        from pipeline.duckdb.rollup import roll_up
    return roll_up(settings, _progress)


def _progress(line: str) -> None:
    click.echo(f"sluice: {line} ...", err=True)


@contextlib.contextmanager
def _naming_duckdb(engine: str) -> "Iterator[None]":
    """Name the package that an import in the block misses."""
    try:
        yield
    except ImportError as error:
        remedy = 'run `pip install "duckdb>=2,<3"` where Sluice is installed'
        raise BadInputError(f"--engine {engine}: DuckDB is not installed ({error}); {remedy}") from error


def _report(tables: "OpenTables", result: "RollupResult", common: Common) -> None:
    from pipeline.commands.execution.output import write_output
    from pipeline.report.rollup_page import draw_rollup
    from pipeline.rollup.published.summary import clients, lines_of, summary_of

    out = tables.folder
    changed = bool(result.hours or result.late) or not (out / "report.html").exists()  # a killed run may not have drawn the report
    tables.bring(report=changed or common.form == "html")
    lines = lines_of(out, result, explain=common.explain)
    write_output(common.form, out if changed else None, summary_of(out, result), lines, clients(out), lambda: draw_rollup(out, result))


def _day(text: str | None) -> str | None:
    if text is None or (re.fullmatch(r"\d{4}-\d\d-\d\d", text) and _is_day(text)):
        return text
    raise BadInputError(f'--close-through: "{text}" is not a date; write 2026-11-20')


def _hour(option: str, text: str | None, otherwise: str) -> str | None:
    if text is None:
        return None
    match = _TIME.fullmatch(text)
    if match is None or not _is_day(match[1]):
        raise BadInputError(f'{option}: "{text}" is not a date or hour; write 2026-11-21 or 2026-11-21T07')
    return f"{match[1]} {match[2] or otherwise}"


def _is_day(text: str) -> bool:
    """Whether the text is a date of the calendar."""
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
