"""Places of tables whose rows have a build: an Iceberg catalog, and a directory of Delta tables, with what tests do to both."""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from pipeline.builds.publishing import BuildStore
from pipeline.delta import store as delta_store
from pipeline.delta.store import DeltaStore
from pipeline.iceberg.store import IcebergStore
from tests.pipeline.support.iceberg_catalog import FolderCatalog


class IcebergPlace:
    """A catalog in SQLite. Files never change, so that its database is its state."""

    changes = ((SqlCatalog, "create_namespace"), (SqlCatalog, "create_table"), (SqlCatalog, "commit_table"))

    def __init__(self, folder: Path, elsewhere: Mapping[str, str] | None = None) -> None:
        self._catalog = FolderCatalog(folder, elsewhere or {})
        self._database = folder / "catalog.db"
        self.options = ["--sink", "iceberg", *self._catalog.options]

    def store(self) -> BuildStore:
        return IcebergStore(self._catalog.open(), ("sluice",))

    def tables(self, *names: str) -> dict[str, pa.Table]:
        """Return some tables, or all, by their names."""
        return self._catalog.tables(names)

    def drop_column(self, table: str, column: str) -> None:
        with self._catalog.open().load_table(f"sluice.{table}").update_schema() as change:
            change.delete_column(column)

    def keep(self) -> None:
        shutil.copy(self._database, self._database.with_suffix(".kept"))

    def restore(self) -> None:
        shutil.copy(self._database.with_suffix(".kept"), self._database)


class DeltaPlace:
    """A directory of Delta tables."""

    changes = ((DeltaTable, "create"), (delta_store, "write_deltalake"), (DeltaTable, "delete"))

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "delta"
        self.options = ["--sink", "delta", "--out", str(self._folder)]

    def store(self) -> BuildStore:
        return DeltaStore(str(self._folder), str(self._folder))

    def tables(self, *names: str) -> dict[str, pa.Table]:
        """Return some tables, or all, by their names."""
        return {
            name: DeltaTable(self._folder / name).to_pyarrow_table() for name in names or [path.name for path in self._folder.iterdir()]
        }

    def drop_column(self, table: str, column: str) -> None:
        """Make the table anew, as a version without the column would have made it."""
        old = DeltaTable(self._folder / table)
        rows = old.to_pyarrow_table().drop_columns([column])
        deltalake.write_deltalake(old, rows, mode="overwrite", schema_mode="overwrite", partition_by=["date", "hour"])

    def keep(self) -> None:
        shutil.copytree(self._folder, self._folder.with_name("kept"))

    def restore(self) -> None:
        shutil.rmtree(self._folder)
        shutil.copytree(self._folder.with_name("kept"), self._folder)


Place = IcebergPlace | DeltaPlace


class EndedEarlyError(BaseException):
    """The process ends here, as by SIGKILL: no code of the command catches it."""


@contextlib.contextmanager
def ends_before_change(place: Place, number: int) -> Iterator[list[str]]:
    """Let a process end before a change of the tables, the first being 0; yield the names of the changes before it."""
    done: list[str] = []

    def ending(real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def some(*arguments: Any, **options: Any) -> Any:
            if len(done) == number:
                raise EndedEarlyError
            done.append(name)
            return real(*arguments, **options)

        return some

    with pytest.MonkeyPatch.context() as patched:
        for owner, name in place.changes:
            patched.setattr(owner, name, ending(getattr(owner, name), name))
        with contextlib.suppress(EndedEarlyError):
            yield done
