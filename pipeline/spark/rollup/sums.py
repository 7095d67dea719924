"""Sums of silver rows by file set, to be compared with the manifests. No session, path, action or UDF."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.rollup.content.sums import DECISION_SUMS, USAGE_SUMS


def usage_sums(silver: DataFrame) -> DataFrame:
    """Return the sums of USAGE_SILVER by file set, including quarantined rows, and the number of those."""
    return silver.groupBy("stem").agg(*(F.sum(name).alias(name) for name in USAGE_SUMS), F.count("problem").alias("problems"))


def decision_sums(silver: DataFrame) -> DataFrame:
    """Return the sums of DECISIONS_SILVER by file set and quota type, and the numbers of quarantined rows and decisions."""
    aside = F.sum(F.when(F.col("problem").isNotNull(), F.col("n"))).alias("aside")
    sums = [F.sum(name).alias(name) for name in DECISION_SUMS]
    return silver.groupBy("stem", "quota_type").agg(*sums, F.count("problem").alias("problems"), aside)
