"""The tables of a roll-up, written by Spark: `runs` as for other engines, and the rows by one append for each table."""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from pipeline.builds.leftovers import days_of, kept_since_ms
from pipeline.builds.publishing import schema_of
from pipeline.builds.runs import BUILD_ID, NAME, SCHEMA, Row
from pipeline.errors import BadInputError, IncompleteError, PipelineError
from pipeline.rollup.published.ddl import TABLES
from pipeline.spark.builds.formats import Format, quoted
from pipeline.spark.failures import error_of, failure_line, spark_errors

_NO_JAR: Final = re.compile(r"Cannot find catalog plugin class|DATA_SOURCE_NOT_FOUND|ClassNotFoundException|NoClassDefFoundError")


class SparkStore:
    """A `RunsStore` of Spark, and what its tasks write.

    Args:
        spark: the session.
        tables: their format and place.
    """

    def __init__(self, spark: SparkSession, tables: Format) -> None:
        self._spark, self._tables = spark, tables
        self._since: int | None = None

    def read_runs(self) -> Sequence[Row]:
        """Return the rows of `runs`."""
        with self._errors():
            self._make(NAME, SCHEMA, ())
            self._since = self._tables.version(self._spark)
            return [row.asDict() for row in self._runs_at(self._since).collect()]

    def prepare(self) -> None:
        """Make missing tables and columns."""
        with self._errors():
            for name, table in TABLES.items():
                self._make(name, schema_of(table), table.partitions)

    def _make(self, name: str, schema: pa.Schema, partitions: Sequence[str]) -> None:
        make_table(self._spark, self._tables, name, from_arrow_schema(schema), partitions)

    def append(self, name: str, rows: DataFrame) -> None:
        """Add rows to a table by one commit."""
        self._tables.append(name, rows)

    def rows_of(self, name: str, build_id: str) -> DataFrame:
        """Return the rows that a build has added to a table."""
        return self._spark.table(self._tables.table(name)).where(F.col(BUILD_ID) == build_id).drop(BUILD_ID)

    def count(self, rows: pa.Table, replaced: Sequence[datetime.date]) -> None:
        """Replace the rows of `runs` of some dates; Spark writes all rows anew."""
        builds = {build for build in rows.column(BUILD_ID).to_pylist() if build is not None}
        new = self._spark.createDataFrame([tuple(row.values()) for row in rows.to_pylist()], from_arrow_schema(SCHEMA))
        kept = self._runs_at(self._since)
        if replaced:
            kept = kept.where(~F.col("date").isin(list(replaced)))
        try:
            self._tables.replace_runs(kept.unionByName(new).coalesce(1), self._since)
        except spark_errors() as error:
            if self._is_unchanged():
                raise error_of(str(error)) from error
            raise self._overtaken() from error
        with self._errors():
            if builds and not builds <= {row[0] for row in self._runs_at(self._tables.version(self._spark)).select(BUILD_ID).collect()}:
                raise self._overtaken()

    def _is_unchanged(self) -> bool:
        with self._errors():
            return self._tables.version(self._spark) == self._since

    def _overtaken(self) -> IncompleteError:
        return IncompleteError(
            f"{self._tables.name}: another roll-up has published meanwhile, and no row of this one counts; run this one again"
        )

    def remove_leftovers(self, first: datetime.date, last: datetime.date) -> None:
        """Remove rows whose build does not count."""
        days = days_of(first, last)
        with self._errors():
            counted = self._counted(days)
            left: dict[str, list[str]] = {}
            for name, build in self._builds_in_tables(days):
                if build is not None and build not in counted:
                    left.setdefault(name, []).append(f"'{build}'")
            for name, builds in left.items():
                with contextlib.suppress(*spark_errors()):  # if another program changes the table now, the next run removes them
                    self._spark.sql(f"DELETE FROM {self._tables.table(name)} WHERE {days} AND {BUILD_ID} IN ({', '.join(builds)})")

    def _builds_in_tables(self, days: str) -> list[tuple[str, str | None]]:
        """Return the tables that have rows of some days, with each build in them."""
        queries = [f"SELECT DISTINCT '{name}' AS name, {BUILD_ID} FROM {self._tables.table(name)} WHERE {days}" for name in TABLES]
        return [(row[0], row[1]) for row in self._spark.sql(" UNION ALL ".join(queries)).collect()]

    def _counted(self, days: str) -> set[str]:
        """Return the builds of some days that count now, or that counted not long ago."""
        since_ms = kept_since_ms()
        versions = sorted(self._tables.versions(self._spark))
        older = [version for at_ms, version in versions if at_ms < since_ms]
        found: set[str] = set()
        for version in [*older[-1:], *(version for _, version in versions[len(older) :])]:
            found |= {row[0] for row in self._runs_at(version).where(days).select(BUILD_ID).distinct().collect()}
        return found

    def _runs_at(self, version: int | None) -> DataFrame:
        if version is None:
            return self._spark.table(self._tables.table(NAME))
        return self._spark.sql(f"SELECT * FROM {self._tables.table(NAME)} VERSION AS OF {version}")

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return errors_of_tables(self._spark, self._tables)


def make_table(spark: SparkSession, tables: Format, name: str, columns: StructType, partitions: Sequence[str] = ()) -> None:
    """Make a table, or the columns that it lacks, unless it has them all."""
    types = {field.name: f"{quoted(field.name)} {field.dataType.simpleString()}" for field in columns}
    parts = f"PARTITIONED BY ({', '.join(partitions)})" if partitions else ""
    if tables.namespace is not None:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {tables.namespace}")
    spark.sql(tables.made(name, ", ".join(types.values()), parts))
    existing = spark.table(tables.table(name)).columns
    if missing := [text for column, text in types.items() if column not in existing]:
        spark.sql(f"ALTER TABLE {tables.table(name)} ADD COLUMNS ({', '.join(missing)})")


@contextlib.contextmanager
def errors_of_tables(spark: SparkSession, tables: Format) -> Iterator[None]:
    """Turn errors of Spark, in a block, to errors of input, and name a missing jar.

    Raises:
        BadInputError: the tables cannot be used.
    """
    try:
        yield
    except PipelineError:
        raise
    except spark_errors() as error:
        raise _input_error(tables, spark.version, str(error)) from error


def _input_error(tables: Format, version: str, text: str) -> BadInputError:
    if _NO_JAR.search(text):
        return BadInputError(f"{tables.name}: {missing_jar(tables.jars, version)}")
    return BadInputError(
        f"{tables.name}: cannot be used ({failure_line(text)}); check the settings of --conf, the place and the credentials"
    )


def missing_jar(jars: Mapping[str, str], version: str) -> str:
    """Return what a message says about a jar that Spark has not; `version` is that of Spark."""
    short = ".".join(version.split(".")[:2])
    if short in jars:
        return f"Spark {short} has no jar for this format; add --conf spark.jars.packages={jars[short]}"
    newest = max(jars)
    return (
        f"Spark {short} has no jar for this format, and Sluice knows of none; "
        f"use Spark {newest} (`pip install 'pyspark=={newest}.*'`) with --conf spark.jars.packages={jars[newest]}"
    )
