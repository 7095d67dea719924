"""Runs statements on Spark, with a catalog of Iceberg tables in SQLite, or with Delta tables; `spark_40` says by which Python.

`python spark_statements.py JARS FOLDER iceberg|delta < STATEMENTS` reads a list of statements as JSON, and prints as JSON the rows of each,
or the begin of its error.
"""

import json
import sys
from typing import Any

CATALOG = "lake"
ERROR_LETTERS_MAX = 1_000


def session(jars: str, folder: str, tables: str) -> Any:
    """Start Spark; `folder` has the catalog, or gets what Spark writes."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"file://{folder}/spark",
        **(with_iceberg(folder) if tables == "iceberg" else WITH_DELTA),
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def with_iceberg(folder: str) -> dict[str, str]:
    """Return the settings of a catalog in SQLite, as pyiceberg has it."""
    return {
        "spark.sql.defaultCatalog": CATALOG,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        f"spark.sql.catalog.{CATALOG}.jdbc.schema-version": "V1",
        f"spark.sql.catalog.{CATALOG}.uri": f"jdbc:sqlite:{folder}/catalog.db",
        f"spark.sql.catalog.{CATALOG}.warehouse": f"file://{folder}/warehouse",
    }


WITH_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}


def answer(spark: Any, statement: str) -> list[list[Any]] | str:
    """Return the rows of a statement, or its error."""
    try:
        return [list(row) for row in spark.sql(statement).collect()]
    except Exception as error:  # noqa: BLE001 - the caller knows which errors it expects
        return str(error)[:ERROR_LETTERS_MAX]


if __name__ == "__main__":
    started = session(*sys.argv[1:])
    answers = [answer(started, statement) for statement in json.load(sys.stdin)]
    started.stop()
    print(json.dumps(answers, default=str))
