"""Small frames of values that the driver has."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession


def known_frame(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: pa.Schema) -> DataFrame:
    """Return the driver's rows as part of the query plan. No Python worker runs for them, and Spark can optimise empty frames away."""
    return spark.createDataFrame(pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema))
