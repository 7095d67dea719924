"""Where a roll-up puts its tables: Parquet files or Delta tables in a directory, which may be in an object store, or an Iceberg catalog."""

import contextlib
import functools
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from pipeline.commands.execution.catalog import CatalogChoice, catalog_options, chosen_catalog
from pipeline.commands.execution.exit_codes import clear_errors
from pipeline.commands.execution.outputs import SPARK_OUTPUT
from pipeline.errors import BadInputError
from pipeline.session_settings import SessionSettings
from pipeline.storage.paths import AnyPath, StorePath, is_of_hadoop, path_of, read_if_there, text_of
from sluice.object_store import shown_url

if TYPE_CHECKING:
    from pipeline.builds.publishing import BuildStore
    from pipeline.rollup.settings import RollupResult
    from pipeline.spark.builds.formats import Format
    from pipeline.spark.builds.target import Builds
    from pipeline.spark.rollup.targets import ReturnedFiles

PARQUET: Final = "parquet"
ICEBERG: Final = "iceberg"
DELTA: Final = "delta"
SINKS: Final = (PARQUET, ICEBERG, DELTA)
DELTA_REQUIREMENT: Final = "deltalake>=1.6,<2"
"""The extra `delta` of Sluice."""
NAMESPACE: Final = "sluice"
DELTA_SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "4",  # the default of 50 tasks is for logs of millions of files
}
"""Settings of Spark for Delta tables; the first two as Delta's own documents have them."""


class OpenTables(Protocol):
    """The tables during one roll-up. `folder` is the output directory of the roll-up on this machine."""

    @property
    def folder(self) -> Path:
        """The directory."""

    def publish(self, result: "RollupResult") -> None:
        """Publish what the roll-up wrote to the folder, and enter the build into its result."""

    def bring(self, *, report: bool) -> None:
        """Bring the rows of earlier runs that a summary shows to the folder, and with `report` those of a report."""


@dataclass(frozen=True, slots=True)
class FileTables:
    """Tables of a directory of this machine, which a roll-up publishes itself."""

    folder: Path

    def publish(self, result: "RollupResult") -> None:
        """Leave the tables as they are."""

    def bring(self, *, report: bool) -> None:
        """Leave the rows where they are."""


@dataclass(frozen=True, slots=True)
class Sink:
    """The chosen place of the tables.

    Attributes:
        kind: one of `SINKS`.
        out: the directory, a path or the text of a URL, which pyarrow or Spark opens. Tables of a catalog have none; then
            it has the other files of a command. None: there is none.
        catalog, namespace: of Iceberg tables.
    """

    kind: str
    out: Path | str | None
    catalog: CatalogChoice
    namespace: str

    @contextlib.contextmanager
    def open(self) -> Iterator[OpenTables]:
        """Open the tables for one roll-up of the local engine, or in a folder of this machine.

        Raises:
            BadInputError: the place cannot be used.
            IncompleteError: another roll-up has written meanwhile.
        """
        if self.kind == PARQUET and isinstance(self.out, Path):
            yield FileTables(self.out)
            return
        if self.kind == PARQUET:
            from pipeline.rollup.store_tables import tables_at

            out = self._opened()
            assert isinstance(out, StorePath)
            with tables_at(out) as tables:
                yield tables
            return
        store = self._delta() if self.kind == DELTA else self._iceberg()
        from pipeline.builds.publishing import build_tables

        with build_tables(store) as builds:
            yield builds

    def _opened(self) -> AnyPath:
        """Return the directory, opened by pyarrow if it is a URL."""
        assert self.out is not None
        if isinstance(self.out, Path):
            return self.out
        try:
            return path_of(self.out)
        except BadInputError as error:
            raise BadInputError(f"--out {error}") from error

    @property
    def _shown(self) -> str:
        return shown_url(self.out) if isinstance(self.out, str) else str(self.out)

    @property
    def is_of_files(self) -> bool:
        """Whether the tables are Parquet files in a directory."""
        return self.kind == PARQUET

    @property
    def is_of_folder(self) -> bool:
        """Whether the tables are files in a folder of this machine, which a roll-up publishes by renames."""
        return self.is_of_files and isinstance(self.out, Path)

    def check_no_directory(self) -> None:
        """Check that tables of a catalog have no directory.

        Raises:
            BadInputError: there is one.
        """
        if self.kind == ICEBERG and self.out is not None:
            raise BadInputError(f"--out: the tables of --sink {self.kind} are in a catalog; leave it out (--format html prints the report)")

    def settings_of_spark(self, session: SessionSettings) -> SessionSettings:
        """Return the settings of a session that writes these tables.

        Raises:
            BadInputError: an option is for the local engine only.
        """
        if self.catalog.properties:
            raise BadInputError(
                f"--property: Spark has its own settings of a catalog; write --conf spark.sql.catalog.{self.catalog.name}.KEY=VALUE"
            )
        if self.kind != DELTA:
            return session
        given = dict(session.conf)
        return session._replace(conf=tuple({**DELTA_SETTINGS, **given}.items()))

    @contextlib.contextmanager
    def open_on_spark(self, spark: Any) -> "Iterator[tuple[OpenTables, Builds | ReturnedFiles]]":
        """Open tables that are not in a folder of this machine; yield them, and the target of the rows.

        Raises:
            BadInputError: the place cannot be used, or Spark has no jar for it.
            IncompleteError: another roll-up has written meanwhile.
        """
        if self.kind == PARQUET:
            from pipeline.rollup.store_tables import tables_at
            from pipeline.spark.rollup.targets import ReturnedFiles

            with tables_at(self._opened_on(spark)) as files:
                yield files, ReturnedFiles(files.folder)
            return
        from pipeline.builds.publishing import opened_builds
        from pipeline.spark.builds.store import SparkStore
        from pipeline.spark.builds.target import Builds

        store = SparkStore(spark, self.format_on(spark))
        with opened_builds(store, lambda _folder, _build_id: None) as tables:  # the tasks have put the rows there
            yield tables, Builds(store, tables.build_id)

    def _opened_on(self, spark: Any) -> StorePath:
        """Return the directory, opened by Spark where it has a file system for the URL, and otherwise by pyarrow."""
        from pipeline.spark.hadoop_files import hadoop_path, has_file_system

        assert isinstance(self.out, str)
        if is_of_hadoop(self.out) or has_file_system(spark, self.out):
            return hadoop_path(spark, self.out)
        opened = self._opened()
        assert isinstance(opened, StorePath)
        return opened

    def format_on(self, spark: Any) -> "Format":
        """Return the tables for Spark.

        Raises:
            BadInputError: Spark has no such catalog, or the directory has other tables.
        """
        from pipeline.spark.builds.formats import Delta, Iceberg

        if self.kind == DELTA:
            assert self.out is not None
            from pipeline.spark.hadoop_files import hadoop_path, hadoop_url

            self._refuse_files(hadoop_path(spark, self.out) if isinstance(self.out, str) else self.out)
            return Delta(hadoop_url(self.out) if isinstance(self.out, str) else text_of(self.out), self._shown)
        name, setting = self.catalog.name, f"spark.sql.catalog.{self.catalog.name}"
        if spark.conf.get(setting, None) is None:
            remedy = f"--conf {setting}=org.apache.iceberg.spark.SparkCatalog and --conf {setting}.type=rest|hive|... with its settings"
            raise BadInputError(f"--catalog {name}: Spark has no catalog of this name; write {remedy}")
        from pipeline.builds.names import identifier_of

        return Iceberg(name, identifier_of("--namespace", self.namespace))

    def _iceberg(self) -> "BuildStore":
        opened = self.catalog.open(f"--sink {ICEBERG}")
        from pipeline.builds.names import identifier_of
        from pipeline.iceberg.store import IcebergStore

        return IcebergStore(opened, identifier_of("--namespace", self.namespace))

    def _delta(self) -> "BuildStore":
        if importlib.util.find_spec("deltalake") is None:
            remedy = f'run `pip install "{DELTA_REQUIREMENT}"` where Sluice is installed'
            raise BadInputError(f"--sink {DELTA}: needs deltalake (the extra `delta`), which is not installed; {remedy}")
        from pipeline.delta.store import DeltaStore

        out = self._opened()
        self._refuse_files(out)
        return DeltaStore(text_of(out), str(out))

    def _refuse_files(self, out: AnyPath) -> None:
        from pipeline.rollup.ledger import NAME

        if read_if_there(out / NAME) is not None:
            raise BadInputError(f"--out {out}: has the tables of --sink {PARQUET}; name another directory")


def sink_options(
    about: str, place: click.Path = SPARK_OUTPUT, *, has_other_files: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options that name a sink to a command, which receives it as `sink`. A contradiction is an error of one line.

    Args:
        about: help of `--out`.
        place: type of `--out`.
        has_other_files: whether the command can have files beside tables of a catalog. It calls `check_no_directory` when it has none.
    """
    return functools.partial(_with_sink, about, place, has_other_files)


def _with_sink(about: str, place: click.Path, has_other_files: bool, function: Callable[..., None]) -> Callable[..., None]:

    @clear_errors
    @functools.wraps(function)
    def command(
        *arguments: Any,
        out: Path | str | None,
        kind: str,
        catalog: str | None,
        properties: Sequence[str],
        namespace: str | None,
        **options: Any,
    ) -> None:
        sink = Sink(kind, out, chosen_catalog(catalog, properties), namespace or NAMESPACE)
        if not has_other_files:
            sink.check_no_directory()
        if kind != ICEBERG:
            if out is None:
                raise BadInputError(
                    f"--out: is missing; name a directory for the tables, or write --sink {ICEBERG} for tables of a catalog"
                )
            for option, given in (("--catalog", catalog), ("--property", properties), ("--namespace", namespace)):
                if given:
                    raise BadInputError(f"{option}: is for tables of a catalog; add --sink {ICEBERG}, or leave it out")
        function(*arguments, sink=sink, **options)

    decorated: Callable[..., None] = catalog_options(command)
    for option in (
        click.option("--namespace", metavar="NAME", help=f"Namespace of the tables in the catalog.  [default: {NAMESPACE}]"),
        click.option(
            "--sink",
            "kind",
            type=click.Choice(SINKS),
            default=PARQUET,
            show_default=True,
            help="Parquet files or Delta tables in --out, or a catalog.",
        ),
        click.option("--out", type=place, metavar="DIR", help=about),
    ):
        decorated = option(decorated)
    return decorated
