"""Reads metering tables on Spark by the paths in manifests, with the declared schema. Each row has its hour and file set."""

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from metering_format.tables import TABLES
from pipeline.rollup.inputs import Input
from pipeline.spark.written import url_of


def read_raw(spark: SparkSession, place: str, inputs: Iterable[Input], table: str) -> DataFrame:
    """Return all rows of a table of these file sets, with the additional columns `date`, `hour` and `stem`."""
    paths = [url_of(path) for item in inputs for path in item.paths(place, table)]
    schema = declared(table)
    if not paths:
        frame = spark.createDataFrame(TABLES[table].empty_table(), schema)
        return frame.select("*", *(F.lit("").alias(name) for name in ("date", "hour", "stem")))
    path = F.col("_metadata.file_path")
    return (
        spark.read.schema(schema)
        .parquet(*paths)
        .select(
            *schema.names,
            F.regexp_extract(path, r"date=(\d{4}-\d\d-\d\d)/", 1).alias("date"),
            F.regexp_extract(path, r"hour=(\d\d)/", 1).alias("hour"),
            F.regexp_extract(path, r"([^/]+)\.parquet$", 1).alias("stem"),
        )
    )


def declared(table: str) -> StructType:
    """Return the schema of a metering table in Spark's types. Every column is nullable, since files are not trusted."""
    schema: StructType = from_arrow_schema(TABLES[table])
    for field in schema.fields:
        field.nullable = True
    return schema
