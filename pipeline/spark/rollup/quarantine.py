"""Rows that cannot be counted, stored unchanged with the reason."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.spark.schemas import QUARANTINE


def quarantine_of(usage: DataFrame, decisions: DataFrame) -> DataFrame:
    """Return QUARANTINE: the rows of both silver tables that have a problem."""
    return _of(usage, "usage").unionByName(_of(decisions, "samples"))


def _of(silver: DataFrame, table: str) -> DataFrame:
    columns = [name for name in silver.columns if name not in ("date", "hour", "stem", "problem")]
    bad = silver.where("problem is not null")
    return bad.select(F.lit(table).alias("table"), "problem", "stem", F.to_json(F.struct(*columns)).alias("row"), "date", "hour").to(
        QUARANTINE
    )
