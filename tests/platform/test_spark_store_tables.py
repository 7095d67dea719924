"""Sluice on Spark 4.0.1 writes Iceberg and Delta tables in an object store by Hadoop's S3A, with the credentials of Spark."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.commands.execution.exit_codes import INCOMPLETE
from sluice_cli.meter import meter
from tests.pipeline.support.build_places import DeltaPlace, IcebergPlace, Place
from tests.pipeline.support.counted_rows import counted, of_directory
from tests.pipeline.support.first_hour import manifests, two_hours
from tests.platform.test_spark_stream import in_manifests, landed, rows
from tests.support.metering.object_store import ENVIRONMENT, Bucket, new_bucket, s3_server
from tests.support.platform.jars import s3a_settings
from tests.support.platform.spark_40 import killed_on_spark, run_on_spark_40, sluice_command

pytestmark = pytest.mark.timeout(1_800)


@dataclass(frozen=True)
class Scene:
    """Two hours in a bucket, for tables of one format in the same bucket."""

    tables: str
    folder: Path
    source: Path
    bucket: Bucket
    endpoint: str

    @property
    def root(self) -> str:
        return f"s3a://{self.bucket.name}"

    def command(self, *arguments: str) -> list[str]:
        """Return a command that writes the tables."""
        is_iceberg = self.tables == "iceberg"
        secrets = {"access.key": ENVIRONMENT["AWS_ACCESS_KEY_ID"], "secret.key": ENVIRONMENT["AWS_SECRET_ACCESS_KEY"]}
        store = s3a_settings(self.endpoint) | {f"spark.hadoop.fs.s3a.{key}": value for key, value in secrets.items()}
        store |= {"spark.sql.catalog.lake.warehouse": f"{self.root}/warehouse"} if is_iceberg else {}
        sink = ("--sink", "iceberg", "--catalog", "lake") if is_iceberg else ("--sink", "delta", "--out", f"{self.root}/delta")
        return sluice_command(self.tables, self.folder, *arguments, *sink, store=store)

    def place(self) -> Place:
        """Return the tables as they are now."""
        if self.tables == "iceberg":
            return IcebergPlace(
                self.folder, {"warehouse": f"{self.root}/warehouse", "s3.endpoint": self.endpoint, "s3.region": "eu-west-1"}
            )
        self.bucket.get("delta", self.folder / "copied" / "delta")
        return DeltaPlace(self.folder / "copied")


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A bucket with two file sets, and no tables."""
    with s3_server() as endpoint:
        bucket, source = new_bucket(monkeypatch, endpoint), two_hours(tmp_path / "in")
        bucket.put(source)
        yield Scene(request.param, tmp_path, source, bucket, endpoint)


@pytest.mark.parametrize("scene", ["iceberg", "delta"], indirect=True)
def test_a_roll_up_in_a_store(scene: Scene) -> None:
    """The rows are those of the local engine, also after a kill between two commits, and the next run builds nothing."""
    command = scene.command("rollup", "--engine", "spark", "--in", f"{scene.root}/metering")
    killed_on_spark(command, 2)
    assert "built       2 hours" in run_on_spark_40(command)
    done = CliRunner().invoke(meter, ["rollup", "--in", str(scene.source), "--out", str(scene.folder / "tables")])
    assert done.exit_code == 0, done.output
    assert counted(scene.place()) == of_directory(scene.folder / "tables")
    assert "no new file sets" in run_on_spark_40(command)


@pytest.mark.parametrize("scene", ["iceberg", "delta"], indirect=True)
def test_a_stream_in_a_store(scene: Scene) -> None:
    """Each file set lands once, also the one whose run was killed before its third table."""
    where = ("--from", f"{scene.root}/metering", "--checkpoint", f"{scene.root}/checkpoint", "--once")
    command = scene.command("stream", *where)
    late = manifests(scene.source)[1].relative_to(scene.source)
    scene.bucket.files.delete_file(f"{scene.bucket.name}/metering/{late}")
    assert "all 1 file sets that exist" in run_on_spark_40(command, exit_code=INCOMPLETE)
    scene.bucket.write(f"metering/{late}", (scene.source / late).read_bytes())
    killed_on_spark(command, 2)
    assert "all 2 file sets that exist" in run_on_spark_40(command)
    assert "landed      0 file sets" in run_on_spark_40(command)
    made = scene.place()
    assert rows(made, "batches") == rows(made, "verdicts") == {0: 1, 1: 1}
    assert landed(made) == in_manifests(scene.source)
