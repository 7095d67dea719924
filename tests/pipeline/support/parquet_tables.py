"""Tables of Spark's own catalog, for tests of what writes tables of Iceberg and Delta, for which the Spark of this project has no jar."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pipeline.errors import IncompleteError


class ParquetTables:
    """A `Format` for one writer.

    Attributes:
        commits: tables and batches that have been added.
        commits_max: the next commit ends the run.
    """

    def __init__(self, spark: SparkSession, name: str, folder: Path) -> None:
        self._spark, self.name, self.namespace = spark, name, name
        self.jars: dict[str, str] = {}
        self.commits: list[tuple[str, tuple[str, int]]] = []
        self.commits_max = 1_000
        spark.sql(f"CREATE DATABASE {name} LOCATION '{folder.as_uri()}'")

    def table(self, name: str) -> str:
        return f"{self.namespace}.{name}"

    def made(self, name: str, columns: str, partitions: str) -> str:
        return f"CREATE TABLE IF NOT EXISTS {self.table(name)} ({columns}) USING parquet {partitions}"

    def version(self, spark: SparkSession) -> int | None:
        raise NotImplementedError

    def versions(self, spark: SparkSession) -> list[tuple[int, int]]:
        raise NotImplementedError

    def append(self, name: str, rows: DataFrame) -> None:
        assert rows.sparkSession is self._spark, "each session has a catalog of its own"
        rows.write.insertInto(self.table(name))

    def append_once(self, spark: SparkSession, name: str, rows: DataFrame, batch: tuple[str, int]) -> None:  # noqa: ARG002, RUF100
        if len(self.commits) == self.commits_max:
            raise IncompleteError("stopped")
        if (name, batch) not in self.commits:
            self.append(name, rows)
            self.commits.append((name, batch))

    def replace_runs(self, rows: DataFrame, since: int | None) -> None:
        raise NotImplementedError
