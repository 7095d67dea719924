"""`sluice meter ddl`."""

import re
from pathlib import Path
from typing import Final

import click

from pipeline.commands.execution.exit_codes import clear_errors
from pipeline.commands.execution.sinks import DELTA, PARQUET, SINKS
from pipeline.errors import BadInputError
from pipeline.storage.paths import AnyPath, below, path_of, text_of
from sluice.object_store import is_url

DIALECTS: Final = ("duckdb", "spark", "trino", "dbt")
SCHEMA: Final = "sluice"
VIEWS: Final = "sluice_views"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@click.command()
@click.option("--for", "dialect", type=click.Choice(DIALECTS), required=True, help="The engine that reads the tables.")
@click.option("--at", "place", required=True, metavar="DIR|NAMESPACE", help="The tables: a path, a URL, or a namespace of a catalog.")
@click.option("--schema", metavar="NAME", help=f"Schema for the tables, or source of dbt.  [default: {SCHEMA}, or {VIEWS} with --sink]")
@click.option("--sink", type=click.Choice(SINKS), default=PARQUET, show_default=True, help="What `rollup` wrote the tables to.")
@clear_errors
def ddl(dialect: str, place: str, schema: str | None, sink: str) -> None:
    """Print SQL statements that make the tables of `rollup` known to another engine, with views that add adjustments to their days."""
    if schema is not None and not _NAME.fullmatch(schema):
        raise BadInputError(f'--schema: "{schema}" is no name; write letters, digits and underscores')
    if sink == PARQUET:
        text = _of_directory(dialect, _path("--at", place), schema or SCHEMA)
    elif sink == DELTA and (is_url(place) or Path(place).is_dir()):
        text = _of_delta(dialect, _path("--at", place), schema or VIEWS)
    elif sink == DELTA and "/" in place:
        raise BadInputError(f"--at {place}: no such directory; name one of Delta tables, or a namespace of a catalog such as lake.sluice")
    else:
        text = _of_namespace(dialect, place, schema or VIEWS)
    click.echo(text, nl=False)


def _of_namespace(dialect: str, place: str, schema: str) -> str:
    from pipeline.rollup.published.build_views import views_of_namespace

    if not all(map(_NAME.fullmatch, place.split("."))):
        raise BadInputError(f'--at: "{place}" is no namespace; write it as the engine does, such as lake.sluice')
    if place.split(".")[-1] == schema:
        raise BadInputError(f"--schema: {schema} is the namespace of the tables; name another schema for the views")
    return views_of_namespace(dialect, place, schema)


def _of_delta(dialect: str, place: AnyPath, schema: str) -> str:
    from pipeline.rollup.published.build_views import OF_DIRECTORIES, views_of_directory

    if dialect not in OF_DIRECTORIES:
        raise BadInputError(f"--at {place}: {dialect} reads Delta tables of a catalog; register them there, and name their namespace")
    return views_of_directory(dialect, text_of(place).partition("?")[0], schema)


def _path(option: str, text: str) -> AnyPath:
    try:
        return path_of(text)
    except BadInputError as error:
        raise BadInputError(f"{option} {error}") from error


def _of_directory(dialect: str, place: AnyPath, schema: str) -> str:
    from pipeline.rollup.published.ddl import ddl as statements
    from pipeline.rollup.published.ddl import table_names

    if not place.is_dir():
        raise BadInputError(f"--at {place}: no such directory; name an output directory of `rollup`")
    found = table_names([below(place, path) for path in place.rglob("*.parquet")])
    if not found:
        raise BadInputError(f"--at {place}: has no tables; name an output directory of `rollup`")
    if dialect == "duckdb" and re.search(r"[*?\[]", str(place)):
        raise BadInputError(f"--at {place}: DuckDB takes this name for a pattern; rename the directory, or name a link to it")
    return statements(dialect, text_of(place).partition("?")[0], schema, found)
