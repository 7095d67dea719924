"""The same validator with one Spark task per file set."""

from pathlib import Path
from typing import Any

import pytest

from bench.metering_trace import Shape, decide, write
from pipeline.errors import BadInputError, IncompleteError
from pipeline.spark.sql_form import cross_check
from pipeline.spark.validate import validate_remote, validate_runs
from pipeline.validation.local import checked_runs, validate
from tests.pipeline.test_validation import batches, missed, one_byte, sensors
from tests.support.metering_directory import write_directory


def test_spark_says_what_the_local_engine_says(spark: Any, tmp_path: Path) -> None:
    """On Spark, one task per file set, the verdict is the one of the local engine, divergences and their evidence included."""
    write_directory(tmp_path, batches(), sensors(), mutate=missed)
    on_spark = validate_runs(spark, tmp_path, checked_runs(tmp_path))
    assert on_spark.violations > 0
    assert on_spark.as_dict(50) == validate(tmp_path).as_dict(50)


@pytest.fixture(scope="module")
def mounted(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A directory, and its name on another file system: a mount of Hadoop's viewfs, which no Python library opens."""
    directory = tmp_path_factory.mktemp("mounted")
    spark._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.house.link./metering", directory.as_uri())
    return directory, "viewfs://house/metering"


def test_another_file_system_is_read_through_spark(spark: Any, mounted: tuple[Path, str]) -> None:
    """On a file system that only Hadoop knows the verdict is the one of the local engine, divergences and hashes included."""
    directory, place = mounted
    write_directory(directory / "run", batches(), sensors(), mutate=missed)
    there = validate_remote(spark, f"{place}/run")
    assert there.violations > 0
    assert there.as_dict(50) == validate(directory / "run").as_dict(50)


def test_what_is_not_there_is_named(spark: Any, mounted: tuple[Path, str]) -> None:
    """No directory, and a file that a manifest promises in vain, are one line each."""
    directory, place = mounted
    with pytest.raises(BadInputError, match="no manifests can be read"):
        validate_remote(spark, f"{place}/absent")
    write_directory(directory / "short", batches(stems=1), sensors())
    next((directory / "short" / "samples").rglob("*.parquet")).unlink()
    with pytest.raises(IncompleteError, match="promises"):
        validate_remote(spark, f"{place}/short")


@pytest.mark.parametrize("mutation", [lambda _rows: None, missed, one_byte], ids=["right", "missed", "one byte"])
def test_sql_says_the_same(spark: Any, tmp_path: Path, mutation: Any) -> None:
    """Worked out in SQL, over whole runs at once, right waits are right, and a wrong wait or value is found as well."""
    write_directory(tmp_path, batches(), sensors(), mutate=mutation)
    stems = [stem for stems in checked_runs(tmp_path).values() for stem in stems]
    told = cross_check(spark, tmp_path, stems)
    assert told.decisions == 2_400
    assert told.left_out < 5
    assert (told.differences > 0) == (validate(tmp_path).violations > 0)


def test_a_task_that_sees_only_what_is_recent_judges_everything(spark: Any, tmp_path: Path) -> None:
    """Over file sets much longer than a window, of which each task gets its predecessor only, no decision is left unjudged."""
    shape = Shape(20_000, groups=40, seconds=400, stem_seconds=100)
    write(tmp_path, shape, decide(shape))
    verdict = validate_runs(spark, tmp_path, checked_runs(tmp_path))
    assert (verdict.decisions, verdict.unjudged, verdict.violations, verdict.groups) == (20_000, 0, 0, 40)
