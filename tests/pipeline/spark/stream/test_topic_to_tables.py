"""`stream` of a topic into tables of a catalog, whose files land in a directory beside."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pipeline.errors import BadInputError, IncompleteError
from pipeline.spark.stream.batches import opened
from pipeline.spark.stream.stream import Stream
from pipeline.spark.stream.table_output import TableOutput
from pipeline.stream.result import StreamResult
from pipeline.stream.settings import StreamSettings
from sluice_cli.meter import meter
from tests.pipeline.support.metering_topic import in_order, publish
from tests.pipeline.support.parquet_tables import ParquetTables
from tests.pipeline.validation.test_validation import batches, sensors
from tests.support.metering.metering_directory import write_directory

pytestmark = pytest.mark.mock
NAME = "topic_to_tables"


@pytest.fixture
def tables(spark: Any, tmp_path: Path) -> Iterator[ParquetTables]:
    """A namespace without tables."""
    yield ParquetTables(spark, NAME, tmp_path / "tables")
    spark.sql(f"DROP DATABASE {NAME} CASCADE")


def test_a_topic_lands_in_tables_of_a_catalog_once(spark: Any, mock_topic: str, lake: str, tables: ParquetTables, tmp_path: Path) -> None:
    """A run may end before the first commit: the next one repeats its batch. Checkpoint, namespace and directory belong together."""
    source = write_directory(tmp_path / "run", batches(file_sets=2), sensors())
    publish(mock_topic, in_order(source))

    def streamed(out: str = "out", checkpoint: str = "checkpoint") -> StreamResult:
        settings = StreamSettings(mock_topic, tmp_path / checkpoint, f"{lake}/{out}", once=True, in_tables=True)
        return Stream(spark, settings, output=TableOutput(spark, tables, opened(spark, f"{lake}/{out}"))).run()

    tables.commits_max = 0
    with pytest.raises(IncompleteError, match="stopped"):
        streamed()
    tables.commits_max = 1_000
    done = streamed()
    assert (done.file_sets, done.whole, done.divergences) == (2, 2, 0)
    assert spark.table(f"{NAME}.decisions_second").groupBy().sum("decisions").collect()[0][0] == 1_600
    assert streamed().file_sets == 0
    with pytest.raises(BadInputError, match="has been used for another --out"):
        streamed(out="other")
    with pytest.raises(BadInputError, match="written with another checkpoint"):
        streamed(checkpoint="other")
    sent = {path.relative_to(source): path.read_bytes() for path in source.rglob("*.*") if path.is_file()}
    assert {name: (tmp_path / "out/landed" / name).read_bytes() for name in sent} == sent


@pytest.mark.parametrize(
    ("source", "out", "words"),
    [
        ("kafka://127.0.0.1:1/topic", None, "files of a topic need a directory, and tables of a catalog have none; name one with --out"),
        ("kafka://127.0.0.1:1/topic", "out", "no broker answers there"),
        ("metering", "out", "the tables of --sink iceberg are in a catalog; leave it out"),
    ],
)
def test_only_files_of_a_topic_have_a_directory(tmp_path: Path, source: str, out: str | None, words: str) -> None:
    """Tables of a catalog need a directory with a topic, and are refused one without."""
    options = [] if out is None else ["--out", str(tmp_path / out)]
    arguments = ["stream", "--from", source, "--checkpoint", str(tmp_path / "c"), "--sink", "iceberg", "--catalog", "lake", *options]
    done = CliRunner().invoke(meter, arguments)
    assert (done.exit_code, done.stderr.count("\n"), words in done.stderr) == (2, 1, True), done.output
    assert not list(tmp_path.iterdir())
