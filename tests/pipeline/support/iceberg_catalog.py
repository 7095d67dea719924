"""A catalog of Iceberg tables in a folder, as the options of commands and as pyiceberg opens it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from pyiceberg.catalog import Catalog, load_catalog

from sluice_cli.meter import meter


@dataclass(frozen=True)
class FolderCatalog:
    """A catalog in SQLite, whose tables are in the same folder."""

    folder: Path

    @property
    def properties(self) -> dict[str, str]:
        return {"type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}/warehouse"}

    @property
    def options(self) -> list[str]:
        return [text for name, value in self.properties.items() for text in ("--property", f"{name}={value}")]

    def open(self) -> Catalog:
        return load_catalog("default", **self.properties)

    def rows(self, table: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.open().load_table(table).scan().to_arrow().to_pylist()
        return found

    def typed(self, *arguments: object) -> Result:
        """Run a command of `sluice meter` with this catalog."""
        return CliRunner().invoke(meter, [*map(str, arguments), *self.options])
