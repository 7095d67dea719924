"""The printed views of tables whose rows have a build, in DuckDB."""

from collections.abc import Mapping

import duckdb
import pyarrow as pa
from click.testing import CliRunner, Result

from pipeline.builds.publishing import schema_of
from pipeline.rollup.published.ddl import TABLES
from sluice_cli.meter import meter


def attach(engine: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table]) -> None:
    """Make tables known to DuckDB as `lake.sluice` and as `sluice`, and execute the printed views on them. Other tables have no rows."""
    engine.execute("ATTACH ':memory:' AS lake; CREATE SCHEMA lake.sluice; CREATE SCHEMA sluice")
    empty = {name: schema_of(table).empty_table() for name, table in TABLES.items()}
    for name, rows in (empty | dict(tables)).items():
        engine.register("given", rows)
        engine.execute(f"CREATE TABLE lake.sluice.{name} AS SELECT * FROM given; CREATE VIEW sluice.{name} AS FROM lake.sluice.{name}")
    engine.execute(printed_views("duckdb", "--sink", "iceberg", "--at", "lake.sluice").stdout)


def printed_views(engine: str, *options: object) -> Result:
    """Run `sluice meter ddl`."""
    return CliRunner().invoke(meter, ["ddl", "--for", engine, *map(str, options)])
