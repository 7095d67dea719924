"""What differs between Iceberg tables of a catalog and Delta tables of a directory, for Spark."""

from typing import Any, Final, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.builds.runs import NAME, transaction_after

ICEBERG_JARS: Final = {
    "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",
    "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
}
DELTA_JARS: Final = {"4.0": "io.delta:delta-spark_2.13:4.0.1"}
_ICEBERG_PROPERTIES: Final = {
    "commit.manifest-merge.enabled": "true",  # pyiceberg adds a manifest by each commit unless the table says otherwise
    # each commit writes a file of metadata with all snapshots: if all stayed, they would grow by the square of the commits
    "write.metadata.delete-after-commit.enabled": "true",
}
_BATCH: Final = "sluice.batch"
"""Key of a batch in the summary of a snapshot."""


class Format(Protocol):
    """The tables of a namespace or directory."""

    @property
    def name(self) -> str:
        """The namespace or directory, for messages."""

    @property
    def jars(self) -> dict[str, str]:
        """The Maven coordinate of the jar, by the version of Spark."""

    @property
    def namespace(self) -> str | None:
        """The namespace in SQL, which has to be made; None: there is none."""

    def table(self, name: str) -> str:
        """Return the name of a table in SQL."""

    def made(self, name: str, columns: str, partitions: str) -> str:
        """Return the statement that makes a table unless it exists."""

    def version(self, spark: SparkSession) -> int | None:
        """Return the version of `runs`; None: it has none yet."""

    def versions(self, spark: SparkSession) -> list[tuple[int, int]]:
        """Return the time, in milliseconds of Unix time, and the number of each version of `runs`."""

    def append(self, name: str, rows: DataFrame) -> None:
        """Add rows to a table by one commit."""

    def append_once(self, spark: SparkSession, name: str, rows: DataFrame, batch: tuple[str, int]) -> None:
        """Add rows to a table by one commit, unless it has a commit of this batch.

        Args:
            spark: the session.
            name: the table.
            rows: the rows.
            batch: a stream, and the number of its batch.
        """

    def replace_runs(self, rows: DataFrame, since: int | None) -> None:
        """Replace all rows of `runs` by one commit.

        Args:
            rows: the new rows.
            since: the version that they follow. With a later one there is an error, or nothing happens.
        """


class Iceberg:
    """Tables of a catalog that the settings of Spark name.

    Args:
        catalog: name of the catalog.
        namespace: parts of the namespace.
    """

    jars = ICEBERG_JARS

    def __init__(self, catalog: str, namespace: tuple[str, ...]) -> None:
        self.name = ".".join((catalog, *namespace))
        self.namespace = ".".join(map(quoted, (catalog, *namespace)))

    def table(self, name: str) -> str:
        """Return the name of a table."""
        return f"{self.namespace}.{quoted(name)}"

    def made(self, name: str, columns: str, partitions: str) -> str:
        """Return the statement that makes a table."""
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in _ICEBERG_PROPERTIES.items())
        return f"CREATE TABLE IF NOT EXISTS {self.table(name)} ({columns}) USING iceberg {partitions} TBLPROPERTIES ({properties})"

    def version(self, spark: SparkSession) -> int | None:
        """Return the current snapshot of `runs`."""
        rows = spark.sql(f"SELECT snapshot_id FROM {self.table(NAME)}.refs WHERE name = 'main'").collect()
        return rows[0][0] if rows else None

    def versions(self, spark: SparkSession) -> list[tuple[int, int]]:
        """Return all snapshots of `runs`."""
        rows = spark.sql(f"SELECT unix_millis(committed_at), snapshot_id FROM {self.table(NAME)}.snapshots").collect()
        return [(row[0], row[1]) for row in rows]

    def append(self, name: str, rows: DataFrame) -> None:
        """Add rows. Each task has the rows of its partitions, so that no shuffle is needed."""
        rows.writeTo(self.table(name)).option("distribution-mode", "none").append()

    def append_once(self, spark: SparkSession, name: str, rows: DataFrame, batch: tuple[str, int]) -> None:
        """Add rows. The snapshot has the batch in its summary."""
        of_batch = f"{batch[0]}/{batch[1]}"
        found = spark.sql(f"SELECT 1 FROM {self.table(name)}.snapshots WHERE summary['{_BATCH}'] = '{of_batch}'").collect()
        if not found:
            rows.writeTo(self.table(name)).option(f"snapshot-property.{_BATCH}", of_batch).append()

    def replace_runs(self, rows: DataFrame, since: int | None) -> None:
        """Replace the rows, or raise an error of Iceberg: another snapshot has added rows since."""
        writer = rows.writeTo(self.table(NAME)).option("isolation-level", "serializable")
        if since is not None:
            writer = writer.option("validate-from-snapshot-id", str(since))
        writer.overwrite(F.lit(True))


class Delta:
    """Tables below a directory.

    Args:
        place: the directory: an absolute path, or a URL.
        name: the directory for messages.
    """

    jars = DELTA_JARS
    namespace = None

    def __init__(self, place: str, name: str) -> None:
        self._place, self.name = place, name

    def _path(self, name: str) -> str:
        return f"{self._place}/{name}"

    def table(self, name: str) -> str:
        """Return the name of a table."""
        return f"delta.{quoted(self._path(name))}"

    def made(self, name: str, columns: str, partitions: str) -> str:
        """Return the statement that makes a table."""
        return f"CREATE TABLE IF NOT EXISTS {self.table(name)} ({columns}) USING delta {partitions}"

    def version(self, spark: SparkSession) -> int | None:
        """Return the current version of `runs`."""
        return int(self._history(spark, " LIMIT 1")[0]["version"])

    def versions(self, spark: SparkSession) -> list[tuple[int, int]]:
        """Return all versions of `runs`."""
        return [(int(row["timestamp"].timestamp() * 1_000), row["version"]) for row in self._history(spark)]

    def _history(self, spark: SparkSession, limit: str = "") -> Any:
        return spark.sql(f"DESCRIBE HISTORY {self.table(NAME)}{limit}").collect()

    def append(self, name: str, rows: DataFrame) -> None:
        """Add rows."""
        rows.write.format("delta").mode("append").save(self._path(name))

    def append_once(self, spark: SparkSession, name: str, rows: DataFrame, batch: tuple[str, int]) -> None:
        """Add rows by the transaction of the batch, which Delta takes once."""
        rows.write.format("delta").mode("append").options(txnAppId=batch[0], txnVersion=str(batch[1])).save(self._path(name))

    def replace_runs(self, rows: DataFrame, since: int | None) -> None:
        """Replace the rows. Delta does nothing if another roll-up has followed the same version."""
        assert since is not None
        application, number = transaction_after(since)
        writer = rows.write.format("delta").mode("overwrite").options(txnAppId=application, txnVersion=str(number))
        writer.save(self._path(NAME))


def quoted(name: str) -> str:
    """Return a name for Spark's SQL."""
    return f"`{name.replace('`', '``')}`"
