"""Statements for tables of a roll-up whose rows have a build: a view of each has the rows of the builds that count."""

from collections.abc import Callable
from typing import Final

from pipeline.rollup.published.ddl import DBT, DUCKDB, SPARK, TABLES, PublishedTable, ddl, sums

RUNS: Final = "runs"
_SCOPES: Final = {("date", "hour"): "hour", ("date",): "day", ("date", "batch"): "late"}
"""The scope of a table's builds in `runs`, by the folders of its rows."""
_DELTA_AT: Final = {DUCKDB: "delta_scan('{}/{}')", SPARK: "delta.`{}/{}`"}
OF_DIRECTORIES: Final = tuple(_DELTA_AT)
"""The engines that read a Delta table by its directory, without a name in a catalog."""


def views_of_namespace(dialect: str, namespace: str, schema: str) -> str:
    """Return the statements, which DuckDB, Spark and Trino have in common; for dbt the views are the sources.

    Args:
        dialect: one of `DIALECTS`.
        namespace: the namespace of the tables, as the engine names it: "lake.sluice".
        schema: name of the schema for the views.
    """
    return ddl(DBT, "", schema, ()) if dialect == DBT else _views(schema, lambda name: f"{namespace}.{name}")


def views_of_directory(dialect: str, place: str, schema: str) -> str:
    """Return the statements for Delta tables below a directory.

    Args:
        dialect: one of `OF_DIRECTORIES`.
        place: the directory: a path or a URL.
        schema: name of the schema for the views.
    """
    return _views(schema, lambda name: _DELTA_AT[dialect].format(place.rstrip("/"), name))


def _views(schema: str, table_of: Callable[[str], str]) -> str:
    views = [f"CREATE OR REPLACE VIEW {schema}.{name} AS\n{_counted(table_of, name, table)}" for name, table in TABLES.items()]
    return "".join(f"{statement};\n" for statement in (f"CREATE SCHEMA IF NOT EXISTS {schema}", *views, *sums(schema)))


def _counted(table_of: Callable[[str], str], name: str, table: PublishedTable) -> str:
    """Return a query for the rows that count.

    `runs` comes first, since engines open tables in this order. A table that was opened later has the rows of all builds in it.
    """
    columns = [*(name for name in table.partitions if name != "batch"), "build_id"]
    builds = f"SELECT DISTINCT {', '.join(columns)} FROM {table_of(RUNS)} WHERE scope = '{_SCOPES[table.partitions]}'"
    joined = " AND ".join(f"made.{column} = run.{column}" for column in columns)
    return f"SELECT made.* FROM ({builds}) AS run\nJOIN {table_of(name)} AS made ON {joined}"
