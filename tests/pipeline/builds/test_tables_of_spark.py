"""What Spark needs to write Iceberg and Delta tables is named when it is missing. `make platform` has the tests that write."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from pipeline.commands.execution.catalog import CatalogChoice
from pipeline.commands.execution.sinks import DELTA, ICEBERG, Sink
from pipeline.errors import BadInputError
from pipeline.spark.builds.formats import DELTA_JARS, ICEBERG_JARS
from pipeline.spark.builds.store import missing_jar
from pipeline.spark.placement import in_tasks, packed, unpacked, work_in_tasks
from pipeline.spark.rollup.shares import FILES_AT_ONCE_MAX, spread_by_table
from sluice_cli.meter import meter
from tests.pipeline.support.first_hour import two_hours
from tests.support.metering.object_store import ENVIRONMENT


def test_a_session_without_the_jar_of_delta(spark: Any, tmp_path: Path) -> None:
    """Tables are not opened, and one line names the Spark and the jar that can."""
    sink = Sink(DELTA, tmp_path, CatalogChoice("default", ()), "sluice")
    with (
        pytest.raises(BadInputError, match=r"has no jar for this format.*spark\.jars\.packages=io\.delta:delta-spark_"),
        sink.open_on_spark(spark),
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_a_session_without_the_catalog(spark: Any) -> None:
    """One line names the settings of a catalog."""
    sink = Sink(ICEBERG, None, CatalogChoice("lake", ()), "sluice")
    with pytest.raises(BadInputError, match=r"--conf spark\.sql\.catalog\.lake=org"), sink.open_on_spark(spark):
        pass


@pytest.mark.parametrize("jars", [ICEBERG_JARS, DELTA_JARS])
def test_a_missing_jar_has_its_coordinate(jars: dict[str, str]) -> None:
    """A Spark with a release of the format gets its coordinate, another one the newest Spark that has one."""
    assert missing_jar(jars, "4.0.2") == f"Spark 4.0 has no jar for this format; add --conf spark.jars.packages={jars['4.0']}"
    assert missing_jar(jars, "4.3.0").endswith(f"--conf spark.jars.packages={jars[max(jars)]}")


@pytest.mark.parametrize("is_new", [True, False])
def test_each_number_has_its_task(spark: Any, monkeypatch: pytest.MonkeyPatch, is_new: bool) -> None:
    """Rows go to the task of their number, with and without the method of Spark 4.1 and later."""
    frame = spark.range(0, 40, 1, 2).selectExpr("cast(id % 10 AS int) AS share")
    if not is_new:
        for kind in type(frame).__mro__:
            monkeypatch.delattr(kind, "repartitionById", raising=False)
    rows = in_tasks(frame, 10, "share").selectExpr("share", "spark_partition_id() AS task").collect()
    assert len(rows) == 40
    assert all(row["share"] == row["task"] for row in rows)


@pytest.mark.parametrize("together_max", [0, 64], ids=["as rows", "in the function"])
def test_each_work_is_done_in_its_task(spark: Any, monkeypatch: pytest.MonkeyPatch, together_max: int) -> None:
    """Each task gets one work, whether works are rows or a part of the function; without works nothing is done."""
    monkeypatch.setattr("pipeline.spark.placement.TOGETHER_MAX", together_max)

    def with_length(works: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        for work in works:
            yield pa.RecordBatch.from_pydict({"name": pa.array([unpacked(work, str)]), "bytes": pa.array([len(work)], pa.int64())})

    works = [packed(f"work {number}") for number in range(5)]
    done = work_in_tasks(spark, works, with_length, "name string, bytes long").selectExpr("*", "spark_partition_id() AS task").collect()
    assert sorted(map(tuple, done)) == [(f"work {number}", len(works[number]), number) for number in range(5)]
    assert work_in_tasks(spark, [], with_length, "name string, bytes long").collect() == []


def test_each_table_has_the_first_tasks() -> None:
    """The files of a table are in different tasks, up to the highest number of tasks."""
    hours = [("usage_hour", f"hour={number}") for number in range(FILES_AT_ONCE_MAX + 1)]
    found = spread_by_table([("usage_day", "date=1"), *hours])
    assert found["usage_day", "date=1"] == found[hours[0]] == found[hours[-1]] == 0
    assert {found[hour] for hour in hours} == set(range(FILES_AT_ONCE_MAX))


def test_a_url_is_opened_by_spark_alone(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A roll-up on Spark asks Hadoop for the URL of its tables. Pyarrow, which finds no server here, is not asked."""
    monkeypatch.setattr("pipeline.spark.session.session", lambda *_, **__: contextlib.nullcontext(spark))
    for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}.items():
        monkeypatch.setenv(name, value)
    arguments = ["rollup", "--engine", "spark", "--in", str(two_hours(tmp_path / "in")), "--sink", "delta", "--out", "s3a://bucket/gold"]
    done = CliRunner().invoke(meter, arguments)
    assert (done.exit_code, "s3a://bucket/gold: Spark has no jar for s3a:; add --conf" in done.output) == (2, True), done.output
