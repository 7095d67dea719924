"""Spark settings for jobs and programs that run for seconds."""

from typing import Final

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""Half the CPU time of a short Spark program is the optimizing compiler's."""
FOR_SMALL_JOBS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",  # plan a job of a few rows once, instead of again after each shuffle
    "spark.sql.ui.explainMode": "simple",  # no query plans are rendered for the web page, which is off
}
"""How a query is run, not what it says: with or without, the rows are the same."""
