"""Tables of a roll-up on Spark in a directory that only Hadoop knows."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pipeline.commands.execution.catalog import chosen_catalog
from pipeline.commands.execution.sinks import NAMESPACE, PARQUET, Sink
from pipeline.errors import BadInputError, IncompleteError
from pipeline.rollup.ledger import NAME
from pipeline.rollup.settings import RollupResult
from pipeline.spark.hadoop_files import hadoop_path
from pipeline.spark.rollup.rollup import roll_up
from sluice_cli.meter import meter
from tests.pipeline.support.counted_rows import of_directory
from tests.pipeline.support.first_hour import FirstHour, manifests

RollUp = Callable[..., RollupResult]


@pytest.fixture
def rolled_up_to(spark: Any, first_hour: FirstHour) -> RollUp:
    """Return a function that rolls up what is there now, to a URL, and calls another function before it writes there."""

    def update(url: str, then: Callable[[], None] = lambda: None) -> RollupResult:
        with Sink(PARQUET, url, chosen_catalog(None, ()), NAMESPACE).open_on_spark(spark) as (tables, target):
            result = roll_up(spark, replace(first_hour.settings, out=tables.folder), target=target)
            tables.publish(result)
            then()
            return result

    return update


def test_tables_at_a_url_are_those_of_a_directory(
    spark: Any, lake: str, first_hour: FirstHour, rolled_up_to: RollUp, tmp_path: Path
) -> None:
    """The rows are equal for the first hour and after a late one; a run without new files changes no file."""
    rolled_up_to(f"{lake}/tables")
    assert of_directory(tmp_path / "tables") == of_directory(first_hour.out)
    first_hour.let_come()
    assert rolled_up_to(f"{lake}/tables").hours == 1
    roll_up(spark, first_hour.settings)
    assert of_directory(tmp_path / "tables") == of_directory(first_hour.out)
    assert len(of_directory(tmp_path / "tables")["usage_hour"]) == len(manifests(first_hour.source)) * 3
    times = [path.stat().st_mtime_ns for path in sorted((tmp_path / "tables").rglob("*"))]
    assert rolled_up_to(f"{lake}/tables").hours == 0
    assert [path.stat().st_mtime_ns for path in sorted((tmp_path / "tables").rglob("*"))] == times


def test_of_two_at_a_time_one_publishes(spark: Any, lake: str, first_hour: FirstHour, rolled_up_to: RollUp, tmp_path: Path) -> None:
    """A run that finds another ledger than at its begin writes nothing and says so; the next one goes on."""
    url = f"{lake}/tables"
    rolled_up_to(url)
    first_hour.let_come()
    before = of_directory(tmp_path / "tables")
    ledger = hadoop_path(spark, url) / NAME
    with pytest.raises(IncompleteError, match=f"{url}: another roll-up has written"):
        rolled_up_to(url, lambda: ledger.write_bytes(ledger.read_bytes() + b"\n"))
    assert of_directory(tmp_path / "tables") == before
    assert rolled_up_to(url).hours == 1


def test_urls_that_cannot_be_written_are_named(lake: str, rolled_up_to: RollUp, tmp_path: Path) -> None:
    """A directory with other files, and a scheme without a jar, end the run with one line that names the URL."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file.txt").write_text("?")
    for url, words in ((f"{lake}/other", "is not empty and contains no ledger.json"), ("nosuch://host/tables", "Spark has no file system")):
        with pytest.raises(BadInputError, match=f"{url}: {words}"):
            rolled_up_to(url)


def test_the_local_engine_refuses_a_url_of_hadoop(tmp_path: Path) -> None:
    """The error names the URLs that it can write."""
    done = CliRunner().invoke(meter, ["rollup", "--engine", "local", "--in", str(tmp_path), "--out", "hdfs://host/tables"])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "--out hdfs://host/tables: not a URL of an object store" in done.stderr
