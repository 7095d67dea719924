"""A catalog of Iceberg tables in a folder, as the options of commands and as pyiceberg opens it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from click.testing import CliRunner, Result
from pyiceberg.catalog import Catalog, load_catalog

from sluice_cli.meter import meter


@dataclass(frozen=True)
class FolderCatalog:
    """A catalog in SQLite, whose tables are in the same folder."""

    folder: Path
    name = "lake"

    @property
    def properties(self) -> dict[str, str]:
        return {"type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}/warehouse"}

    @property
    def options(self) -> list[str]:
        properties = [text for name, value in self.properties.items() for text in ("--property", f"{name}={value}")]
        return ["--catalog", self.name, *properties]

    def open(self) -> Catalog:
        return load_catalog(self.name, **self.properties)

    def rows(self, table: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.open().load_table(table).scan().to_arrow().to_pylist()
        return found

    def attach(self, engine: duckdb.DuckDBPyConnection) -> None:
        """Make the tables of namespace `sluice` known to DuckDB, which executes the printed views on them."""
        engine.execute("ATTACH ':memory:' AS lake; CREATE SCHEMA lake.sluice; CREATE SCHEMA sluice")
        opened = self.open()
        for _, name in opened.list_tables("sluice"):
            table = opened.load_table(f"sluice.{name}")
            engine.register("given", table.scan().to_arrow() if table.current_snapshot() else table.schema().as_arrow().empty_table())
            engine.execute(f"CREATE TABLE lake.sluice.{name} AS SELECT * FROM given; CREATE VIEW sluice.{name} AS FROM lake.sluice.{name}")
        engine.execute(self.printed_views("duckdb", "--at", "lake.sluice"))

    @staticmethod
    def printed_views(engine: str, *options: str) -> str:
        """Return what `sluice meter ddl` prints."""
        return CliRunner().invoke(meter, ["ddl", "--for", engine, "--sink", "iceberg", *options]).stdout

    def typed(self, *arguments: object) -> Result:
        """Run a command of `sluice meter` with this catalog."""
        return CliRunner().invoke(meter, [*map(str, arguments), *self.options])
