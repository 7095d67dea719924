"""`sluice meter stream` on Spark 4.0.1 writes Iceberg and Delta tables exactly once, without files of its own."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.commands.execution.exit_codes import INCOMPLETE
from pipeline.manifest import find_manifests
from proxy.demo.mock_cluster import MockCluster
from tests.pipeline.support.build_places import DeltaPlace, IcebergPlace, Place
from tests.pipeline.support.first_hour import manifests, two_hours
from tests.pipeline.support.metering_topic import in_order, publish
from tests.support.clients.topics import new_topic
from tests.support.kafka.broker import KafkaCluster
from tests.support.platform.spark_40 import killed_on_spark, run_on_spark_40, sluice_command

pytestmark = pytest.mark.timeout(1_800)
TABLES = ("verdicts", "decisions_second", "usage_second", "batches")


@pytest.mark.parametrize("tables", ["iceberg", "delta"])
def test_a_stream_lands_in_tables_exactly_once(tmp_path: Path, tables: str) -> None:
    """A batch whose run was killed before its third table is repeated, and each table has its rows once."""
    source = two_hours(tmp_path / "in")
    place = IcebergPlace(tmp_path) if tables == "iceberg" else DeltaPlace(tmp_path)
    sink = ("--sink", "iceberg", "--catalog", "lake") if tables == "iceberg" else ("--sink", "delta", "--out", tmp_path / "delta")

    def command(checkpoint: str = "checkpoint") -> list[str]:
        return sluice_command(tables, tmp_path, "stream", "--from", source, "--checkpoint", tmp_path / checkpoint, "--once", *sink)

    manifests(source)[1].rename(tmp_path / "late.json")
    assert "all 1 file sets that exist" in run_on_spark_40(command(), exit_code=INCOMPLETE)
    assert landed(place) == in_manifests(source)
    (source / "manifests" / "late").mkdir()
    (tmp_path / "late.json").rename(source / "manifests" / "late" / "late.json")
    killed_on_spark(command(), 2)
    assert rows(place, "batches") == {0: 1}
    assert rows(place, "verdicts") == {0: 1, 1: 1}
    assert set(rows(place, "usage_second")) == {0}
    assert "all 2 file sets that exist" in run_on_spark_40(command())
    assert rows(place, "batches") == rows(place, "verdicts") == {0: 1, 1: 1}
    assert landed(place) == in_manifests(source)
    assert "landed      0 file sets" in run_on_spark_40(command())
    assert "written with another checkpoint" in run_on_spark_40(command("other"), exit_code=2)
    assert set(place.tables()) == set(TABLES)


@pytest.mark.parametrize("tables", ["iceberg", "delta"])
def test_a_topic_lands_in_tables_exactly_once(tmp_path: Path, tables: str) -> None:
    """A run may be killed before the first commit, and before the third one of a later batch: each table has the rows of a batch once."""
    source = two_hours(tmp_path / "in")
    messages, out = list(in_order(source)), tmp_path / "delta"
    place = IcebergPlace(tmp_path) if tables == "iceberg" else DeltaPlace(tmp_path)
    sink = ("--sink", "iceberg", "--catalog", "lake") if tables == "iceberg" else ("--sink", "delta")
    with MockCluster(1) as brokers:
        brokers.create_topic("metering", 2)
        topic = f"kafka://{brokers.bootstrap}/metering"

        def command(checkpoint: str = "checkpoint", at: Path = out) -> list[str]:
            places = ("--checkpoint", tmp_path / checkpoint, "--out", at, "--once")
            return sluice_command(tables, tmp_path, "stream", "--from", topic, *places, *sink)

        publish(topic, messages[: len(messages) // 2])
        killed_on_spark(command(), 0)
        assert "landed      1 file set in 1 batch" in run_on_spark_40(command(), exit_code=INCOMPLETE)
        publish(topic, messages[len(messages) // 2 :])
        killed_on_spark(command(), 2)
        assert (rows(place, "batches"), rows(place, "verdicts"), set(rows(place, "usage_second"))) == ({0: 1}, {0: 1, 1: 1}, {0})
        assert "landed      1 file set in 1 batch" in run_on_spark_40(command())
        assert "landed      0 file sets" in run_on_spark_40(command())
        assert "written with another checkpoint" in run_on_spark_40(command("other"), exit_code=2)
        if tables == "iceberg":
            assert "has been used for another --out" in run_on_spark_40(command(at=tmp_path / "elsewhere"), exit_code=2)
    assert rows(place, "batches") == rows(place, "verdicts") == {0: 1, 1: 1}
    assert landed(place) == in_manifests(source)
    sent = {path.relative_to(source): path.read_bytes() for path in source.rglob("*") if path.is_file()}
    assert {name: (out / "landed" / name).read_bytes() for name in sent} == sent


def test_spark_reads_a_topic_by_its_own_source(tmp_path: Path) -> None:
    """With the jar of Kafka a batch has a limit, and the files are those that were sent. The checkpoint needs the jar from then on."""
    source = two_hours(tmp_path / "in")
    messages = list(in_order(source))
    places = ("--checkpoint", tmp_path / "checkpoint", "--out", tmp_path / "out", "--once", "--messages-max", len(messages) // 2)
    with KafkaCluster(name="kafka-stream") as kafka:
        topic = f"kafka://{kafka.bootstrap}/{new_topic(kafka.bootstrap, 'metering', partitions=2)}"
        publish(topic, messages[:-1])
        first = run_on_spark_40(sluice_command("kafka", tmp_path, "stream", "--from", topic, *places), exit_code=INCOMPLETE)
        assert "landed      1 file set in 2 batches" in first
        publish(topic, messages[-1:])
        error = run_on_spark_40(sluice_command("", tmp_path, "stream", "--from", topic, *places), exit_code=2)
        assert "whose jar is missing; add --conf spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.1" in error
        assert "landed      1 file set in 1 batch" in run_on_spark_40(sluice_command("kafka", tmp_path, "stream", "--from", topic, *places))
    sent = {path.relative_to(source): path.read_bytes() for path in source.rglob("*") if path.is_file()}
    landed_at = tmp_path / "out" / "landed"
    assert {name: (landed_at / name).read_bytes() for name in sent} == sent


def test_a_stream_keeps_the_source_of_its_checkpoint(tmp_path: Path) -> None:
    """A stream that began in Python goes on so when the jar of Kafka comes."""
    source = two_hours(tmp_path / "in")
    messages = list(in_order(source))
    places = ("--checkpoint", tmp_path / "checkpoint", "--out", tmp_path / "out", "--once")
    with KafkaCluster(name="kafka-stream") as kafka:
        topic = f"kafka://{kafka.bootstrap}/{new_topic(kafka.bootstrap, 'metering', partitions=2)}"
        for jars, part, exit_code in (("", messages[:-1], INCOMPLETE), ("kafka", messages[-1:], 0)):
            publish(topic, part)
            done = run_on_spark_40(sluice_command(jars, tmp_path, "stream", "--from", topic, *places), exit_code=exit_code)
            assert "landed      1 file set in 1 batch" in done


def rows(place: Place, table: str) -> dict[int, int]:
    """Return the number of rows by batch; rows of `batches` without one have the divergences that a call reported."""
    found: dict[int, int] = {}
    for batch in place.tables(table)[table].column("batch_id").drop_null().to_pylist():
        found[batch] = found.get(batch, 0) + 1
    return found


def landed(place: Place) -> tuple[int, int]:
    """Return the number of decisions and of requests in the tables."""
    made = place.tables("decisions_second", "usage_second")
    return total(made["decisions_second"], "decisions"), total(made["usage_second"], "requests")


def total(table: Any, column: str) -> int:
    return sum(table.column(column).to_pylist())


def in_manifests(source: Path) -> tuple[int, int]:
    """Return the numbers that the manifests have."""
    found = find_manifests(source)
    return sum(count.decisions for one in found for count in one.counts.values()), sum(one.usage.requests for one in found)
