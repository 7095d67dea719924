"""Spark's default file system is a remote one, or workers have written files that are not on this machine."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import BadInputError
from pipeline.rollup.published.tables import read_table
from pipeline.rollup.settings import RollupSettings
from pipeline.spark.rollup.rollup import roll_up
from pipeline.spark.stream.stream import Stream
from pipeline.spark.written import check_rows
from pipeline.stream.settings import StreamSettings
from tests.pipeline.spark.test_rollup import raw_rows
from tests.pipeline.support.first_hour import manifests, two_hours
from tests.pipeline.validation.test_validation import batches, sensors
from tests.support.metering.metering_directory import write_directory

DEFAULT = "fs.defaultFS"


@pytest.fixture
def default_elsewhere(spark: Any, tmp_path: Path) -> Iterator[Path]:
    """Set a default file system other than the local one, as on a cluster; yields the folder that it stores to."""
    settings = spark._jsc.hadoopConfiguration()
    usual, place = settings.get(DEFAULT), tmp_path / "elsewhere"
    place.mkdir()
    settings.set("fs.viewfs.mounttable.default-house.linkFallback", place.as_uri())
    settings.set("fs.viewfs.mounttable.default-house.link./metering", tmp_path.as_uri())
    settings.set(DEFAULT, "viewfs://default-house/")
    yield place
    settings.set(DEFAULT, usual)


def test_tables_come_to_this_machine_whatever_the_default_is(spark: Any, default_elsewhere: Path, tmp_path: Path) -> None:
    """A rebuilt day has its previous rows and the new ones in local files, from local and remote input, and nothing is written to the
    default file system.
    """
    source = two_hours(tmp_path / "in")
    late, kept = manifests(source)[1], tmp_path / "later.json"
    late.rename(kept)
    settings = RollupSettings(str(source), tmp_path / "out")
    roll_up(spark, settings)
    before = read_table(settings.out, "usage_hour")
    kept.rename(late)
    reported = roll_up(spark, replace(settings, source="viewfs://default-house/metering/in"))
    hours = read_table(settings.out, "usage_hour")
    assert [row for row in hours if row["hour"] == "12"] == before
    assert reported.tables["usage_hour"] == len(hours) - len(before) > 0
    requests = sum(row["requests"] for row in read_table(settings.out, "usage_day"))
    assert requests == sum(row["requests"] for row in hours) == sum(row["requests"] for row in raw_rows(source, "usage"))
    assert list(default_elsewhere.iterdir()) == []


def test_a_stream_lands_on_this_machine_whatever_the_default_is(spark: Any, default_elsewhere: Path, tmp_path: Path) -> None:
    """A stream writes its tables and its checkpoint to the local paths of its options."""
    source = write_directory(tmp_path / "run", batches(file_sets=1), sensors())
    reported = Stream(spark, StreamSettings(str(source), tmp_path / "checkpoint", tmp_path / "out", once=True)).run()
    assert (reported.file_sets, reported.rows["verdicts"]) == (1, 1)
    assert (tmp_path / "checkpoint" / "metadata").is_file()
    assert list(default_elsewhere.iterdir()) == []


@pytest.mark.parametrize("here", [0, 3, 5])
def test_rows_that_are_not_here_are_refused(tmp_path: Path, here: int) -> None:
    """Fewer or more local rows than the 4 that workers wrote are refused in one line with the option and the remedy."""
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"n": range(here)}), file)
    with pytest.raises(
        BadInputError, match=rf"^--out {tmp_path}: the workers wrote 4 rows of usage_hour, and {here} are on this machine, so none"
    ):
        check_rows(tmp_path, Path(".staging", "usage_hour"), 4, [file])
    check_rows(tmp_path, Path(".staging", "usage_hour"), here, [file])
