"""A catalog of Iceberg tables in a folder, as the options of commands and as pyiceberg opens it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from click.testing import CliRunner, Result
from pyiceberg.catalog import Catalog, load_catalog

from sluice_cli.meter import meter


@dataclass(frozen=True)
class FolderCatalog:
    """A catalog in SQLite, whose tables are in the same folder.

    Attributes:
        elsewhere: properties of tables that are not there.
    """

    folder: Path
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    name = "lake"

    @property
    def properties(self) -> dict[str, str]:
        here = {"type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}/warehouse"}
        return here | self.elsewhere

    @property
    def options(self) -> list[str]:
        properties = [text for name, value in self.properties.items() for text in ("--property", f"{name}={value}")]
        return ["--catalog", self.name, *properties]

    def open(self) -> Catalog:
        return load_catalog(self.name, **self.properties)

    def rows(self, table: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.open().load_table(table).scan().to_arrow().to_pylist()
        return found

    def tables(self, names: Iterable[str] = ()) -> dict[str, pa.Table]:
        """Return some tables of namespace `sluice`, or all, by their names."""
        opened = self.open()
        found = {}
        for name in names or [name for _, name in opened.list_tables("sluice")]:
            table = opened.load_table(f"sluice.{name}")
            found[name] = table.scan().to_arrow() if table.current_snapshot() else table.schema().as_arrow().empty_table()
        return found

    def typed(self, *arguments: object) -> Result:
        """Run a command of `sluice meter` with this catalog."""
        return CliRunner().invoke(meter, [*map(str, arguments), *self.options])
