"""Statements for the tables of a roll-up in Iceberg: a view of each has the rows of the builds that count."""

from typing import Final

from pipeline.rollup.published.ddl import DBT, TABLES, PublishedTable, ddl, sums

RUNS: Final = "runs"
_SCOPES: Final = {("date", "hour"): "hour", ("date",): "day", ("date", "batch"): "late"}
"""The scope of a table's builds in `runs`, by the folders of its rows."""


def iceberg_views(dialect: str, place: str, schema: str) -> str:
    """Return the statements, which DuckDB, Spark and Trino have in common; for dbt the views are the sources.

    Args:
        dialect: one of `DIALECTS`.
        place: the namespace of the tables, as the engine names it: "lake.sluice".
        schema: name of the schema for the views.
    """
    if dialect == DBT:
        return ddl(DBT, place, schema, ())
    views = [f"CREATE OR REPLACE VIEW {schema}.{name} AS\n{_counted(place, name, table)}" for name, table in TABLES.items()]
    return "".join(f"{statement};\n" for statement in (f"CREATE SCHEMA IF NOT EXISTS {schema}", *views, *sums(schema)))


def _counted(place: str, name: str, table: PublishedTable) -> str:
    """Return a query for the rows that count.

    `runs` comes first, since engines open tables in this order. A table that was opened later has the rows of all builds in it.
    """
    scope = _SCOPES[table.partitions]
    columns = [*(name for name in table.partitions if name != "batch"), "build_id"]
    builds = f"SELECT DISTINCT {', '.join(columns)} FROM {place}.{RUNS} WHERE scope = '{scope}'"
    joined = " AND ".join(f"made.{column} = run.{column}" for column in columns)
    return f"SELECT made.* FROM ({builds}) AS run\nJOIN {place}.{name} AS made ON {joined}"
