"""The same validator with one Spark task per file set."""

from pathlib import Path
from typing import Any

from pipeline.spark.validate import validate_runs
from pipeline.validation.local import checked_runs, validate
from tests.pipeline.test_validation import batches, missed, sensors
from tests.support.metering_directory import write_directory


def test_spark_says_what_the_local_engine_says(spark: Any, tmp_path: Path) -> None:
    """On Spark, one task per file set, the verdict is the one of the local engine, divergences and their evidence included."""
    write_directory(tmp_path, batches(), sensors(), mutate=missed)
    on_spark = validate_runs(spark, tmp_path, checked_runs(tmp_path))
    assert on_spark.violations > 0
    assert on_spark.as_dict(50) == validate(tmp_path).as_dict(50)
