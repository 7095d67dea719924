"""`sluice meter ddl`."""

import re
from typing import Final

import click

from pipeline.commands.execution.exit_codes import clear_errors
from pipeline.commands.execution.inputs import INPUT
from pipeline.errors import BadInputError
from pipeline.storage.paths import AnyPath, below, text_of

DIALECTS: Final = ("duckdb", "spark", "trino", "dbt")


@click.command()
@click.option("--for", "dialect", type=click.Choice(DIALECTS), required=True, help="The engine that reads the tables.")
@click.option("--at", "place", type=INPUT, required=True, metavar="DIR", help="Directory of the tables: a path or a URL.")
@click.option("--schema", default="sluice", show_default=True, metavar="NAME", help="Schema for the tables, or source of dbt.")
@clear_errors
def ddl(dialect: str, place: AnyPath, schema: str) -> None:
    """Print SQL statements that make the tables of `rollup` known to another engine, with views that add adjustments to their days."""
    from pipeline.rollup.published.ddl import ddl as statements
    from pipeline.rollup.published.ddl import table_names

    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", schema):
        raise BadInputError(f'--schema: "{schema}" is no name; write letters, digits and underscores')
    if not place.is_dir():
        raise BadInputError(f"--at {place}: no such directory; name an output directory of `rollup`")
    found = table_names([below(place, path) for path in place.rglob("*.parquet")])
    if not found:
        raise BadInputError(f"--at {place}: has no tables; name an output directory of `rollup`")
    if dialect == "duckdb" and re.search(r"[*?\[]", str(place)):
        raise BadInputError(f"--at {place}: DuckDB takes this name for a pattern; rename the directory, or name a link to it")
    click.echo(statements(dialect, text_of(place).partition("?")[0], schema, found), nl=False)
