"""Spark settings for jobs and programs that run for seconds, and the archive of Spark's classes that makes each start shorter."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyspark

from tests.support.class_archive import finish, keeping, using
from tests.support.places import BUILD, ROOT

ARCHIVE: Final = BUILD / f"spark-{pyspark.__version__}" / "classes.jsa"
FOR_SMALL_JOBS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",  # plan a job of a few rows once, instead of again after each shuffle
    "spark.sql.ui.explainMode": "simple",  # no query plans are rendered for the web page, which is off
}
"""Settings of how a query runs; the rows are the same without them."""
_SHORT: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # the optimizing compiler takes half of the CPU time of a short program
_ARCHIVE_S: Final = 300


def quick_jvm(*more: str) -> str:
    """Return the options of the JVM of a short Spark program."""
    return " ".join((*_SHORT, *using(ARCHIVE), *more))


def archive_classes() -> None:
    """Make the archive unless it exists: a small job loads the classes."""
    if ARCHIVE.exists():
        return
    program = [sys.executable, "-m", __name__, str(ARCHIVE.parent)]
    environment = os.environ | {"JDK_JAVA_OPTIONS": " ".join(_SHORT)}
    subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, timeout=_ARCHIVE_S, check=False)
    finish(ARCHIVE)


def _load_classes(folder: Path) -> None:
    """Run a job in a JVM that writes the archive when it ends, and wait for that."""
    from pipeline.session_settings import SessionSettings
    from pipeline.spark.session import session

    archiving = ("spark.driver.extraJavaOptions", " ".join(keeping(ARCHIVE)))
    with session(SessionSettings("local[2]", conf=(archiving, *FOR_SMALL_JOBS.items()), driver_memory="512m")) as spark:
        process = spark.sparkContext._gateway.proc
        rows = spark.createDataFrame([(at, at % 7) for at in range(100)], "a int, b int")
        rows.groupBy("b").count().join(rows, "b").write.mode("overwrite").parquet(str(folder / "rows"))
        spark.read.parquet(str(folder / "rows")).collect()
    process.stdin.close()
    process.wait(_ARCHIVE_S)


if __name__ == "__main__":
    _load_classes(Path(sys.argv[1]))
