"""Spark for jobs and programs that last seconds."""

from typing import Final

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""Half the CPU time of a short Spark program is the optimizing compiler's."""
FOR_SMALL_JOBS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",  # a plan of a handful of rows is made once, not anew with a job for each of its shuffles
    "spark.sql.ui.explainMode": "simple",  # plans are drawn for a page that is off
}
"""How a query is run, not what it says: with or without, the rows are the same."""
