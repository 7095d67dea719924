"""`sluice meter` on the Spark of this project reads and writes a store by Hadoop's S3A, with the jars that the documents name."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from pipeline.commands.execution.exit_codes import INCOMPLETE
from pipeline.manifest import find_manifests
from pipeline.stream.chunks import PARTS
from proxy.demo.mock_cluster import MockCluster
from sluice_cli.meter import meter
from tests.pipeline.support.counted_rows import of_directory
from tests.pipeline.support.first_hour import manifests, two_hours
from tests.pipeline.support.metering_topic import in_order, publish
from tests.support.metering.object_store import Bucket, new_bucket, s3_server
from tests.support.platform.jars import jars, s3a_settings

pytestmark = pytest.mark.timeout(1_800)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Bucket, tuple[str, ...]]]:
    """An empty bucket, and the options of Spark for its server. The environment has the credentials."""
    with s3_server() as endpoint:
        settings = {"spark.jars": jars("s3a"), **s3a_settings(endpoint)}
        options = (text for key, value in settings.items() for text in ("--conf", f"{key}={value}"))
        yield new_bucket(monkeypatch, endpoint), ("--master", "local[2]", *options)


def test_spark_reads_and_writes_a_store_by_s3a(tmp_path: Path, store: tuple[Bucket, tuple[str, ...]]) -> None:
    """A stream lands late file sets once, a validation has the verdict of the local engine, and a roll-up has its rows."""
    bucket, options = store
    source, root = two_hours(tmp_path / "in"), f"s3a://{bucket.name}"
    bucket.put(source)
    late = manifests(source)[1].relative_to(source)
    bucket.files.delete_file(f"{bucket.name}/metering/{late}")
    stream = ("stream", "--from", f"{root}/metering", "--checkpoint", f"{root}/checkpoint", "--out", f"{root}/stream", "--once", *options)
    assert "all 1 file sets that exist" in on_spark(*stream, exit_code=INCOMPLETE)
    bucket.write(f"metering/{late}", (source / late).read_bytes())
    assert "all 2 file sets that exist" in on_spark(*stream)
    assert "landed      0 file sets" in on_spark(*stream)
    decisions = sum(count.decisions for one in find_manifests(source) for count in one.counts.values())
    assert (total(bucket, "decisions_second", "decisions"), total(bucket, "verdicts", "decisions")) == (decisions, decisions)

    on_spark("validate", "--engine", "spark", "--in", bucket.url, "--out", tmp_path / "by-spark", *options)
    by_local("validate", "--in", source, "--out", tmp_path / "by-local")
    assert verdict(tmp_path / "by-spark") == verdict(tmp_path / "by-local")

    on_spark("rollup", "--engine", "spark", "--in", f"{root}/metering", "--out", f"{root}/tables", *options)
    by_local("rollup", "--in", source, "--out", tmp_path / "tables-by-local")
    bucket.get("tables", tmp_path / "tables")
    rows = of_directory(tmp_path / "tables")
    assert rows == of_directory(tmp_path / "tables-by-local")
    assert rows["decisions_hour"]


def test_file_sets_of_a_store_are_changed_by_s3a(tmp_path: Path, store: tuple[Bucket, tuple[str, ...]]) -> None:
    """`verify-manifests` and `inspect` print what they print for the files, also of a damaged one; `compact` and `forget` change them."""
    bucket, options = store
    source, root = two_hours(tmp_path / "in"), f"s3a://{bucket.name}/metering"
    bucket.put(source)
    decisions = sum(count.decisions for one in find_manifests(source) for count in one.counts.values())
    path = max((source / "usage").rglob("*.parquet")).relative_to(source)
    whole = (source / path).read_bytes()
    bucket.write(f"metering/{path}", whole[:-1])
    found = on_spark("verify-manifests", root, "--format", "json", *options, exit_code=INCOMPLETE)
    assert f"{root}/{path}: {len(whole) - 1} bytes, manifest " in found
    bucket.write(f"metering/{path}", whole)
    assert ", 0 problems" in on_spark("verify-manifests", root, *options)
    assert "usage" in on_spark("inspect", f"{root}/{path}", *options)

    assert "file sets became" in on_spark("compact", root, *options)
    assert "the user's name was removed from" in on_spark("forget", root, "--user", "orders", *options)
    assert not any(b"orders" in data for data in bucket.contents().values())
    bucket.get("metering", tmp_path / "changed")
    assert sum(count.decisions for one in find_manifests(tmp_path / "changed") for count in one.counts.values()) == decisions
    assert ", 0 problems" in on_spark("verify-manifests", root, *options)


def test_a_topic_lands_in_a_store_by_s3a(tmp_path: Path, store: tuple[Bucket, tuple[str, ...]]) -> None:
    """Files of a topic, the tables and the checkpoint are in a store; parts wait there for the call in which their manifest comes."""
    bucket, options = store
    source, root = two_hours(tmp_path / "in"), f"s3a://{bucket.name}"
    messages = list(in_order(source))
    cut = len(messages) * 3 // 4
    with MockCluster(1) as brokers:
        brokers.create_topic("metering", 2)
        topic = f"kafka://{brokers.bootstrap}/metering"
        stream = ("stream", "--from", topic, "--checkpoint", f"{root}/checkpoint", "--out", f"{root}/stream", "--once", *options)
        publish(topic, messages[:cut])
        assert "landed      1 file set in 1 batch" in on_spark(*stream, exit_code=INCOMPLETE)
        waiting = [name for name in bucket.contents() if name.startswith(f"stream/landed/{PARTS}/")]
        assert waiting
        publish(topic, messages[cut // 2 :])
        assert "landed      1 file set in 1 batch" in on_spark(*stream)
        assert "landed      0 file sets" in on_spark(*stream)
    decisions = sum(count.decisions for one in find_manifests(source) for count in one.counts.values())
    assert (total(bucket, "decisions_second", "decisions"), total(bucket, "verdicts", "decisions")) == (decisions, decisions)
    landed = {name.removeprefix("stream/landed/"): data for name, data in bucket.contents().items() if name.startswith("stream/landed/")}
    assert landed == {str(path.relative_to(source)): path.read_bytes() for path in source.rglob("*.*") if path.is_file()}
    by_local("validate", "--in", f"s3://{bucket.name}/stream/landed")


def on_spark(*arguments: object, exit_code: int = 0) -> str:
    """Run a command, and return what it prints."""
    command = [str(Path(sys.executable).with_name("sluice")), "meter", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == exit_code, done.stderr
    return done.stdout + done.stderr


def by_local(*arguments: object) -> None:
    done = CliRunner().invoke(meter, list(map(str, arguments)))
    assert done.exit_code == 0, done.output


def total(bucket: Bucket, table: str, column: str) -> int:
    """Return the sum of a column of a table of the stream."""
    found = [data for name, data in bucket.contents().items() if name.startswith(f"stream/{table}/") and name.endswith(".parquet")]
    return sum(sum(pq.read_table(io.BytesIO(data)).column(column).to_pylist()) for data in found)


def verdict(folder: Path) -> dict[str, object]:
    """Return the verdict that a command wrote."""
    found: dict[str, object] = json.loads((folder / "verdict.json").read_text())
    return found
