"""Spark settings for jobs and programs that run for seconds."""

from typing import Final

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""The optimizing compiler takes half of the CPU time of a short Spark program."""
FOR_SMALL_JOBS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",  # plan a job of a few rows once, instead of again after each shuffle
    "spark.sql.ui.explainMode": "simple",  # no query plans are rendered for the web page, which is off
}
"""Settings of how a query runs; the rows are the same without them."""
