"""The pipeline on a Spark cluster outside this process: one master, two workers, started by `spark-submit`."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pipeline.rollup.settings import RollupSettings
from pipeline.validation.local import validate
from sluice_cli import submitted
from sluice_cli.meter import meter
from tests.pipeline.support.counted_rows import of_directory
from tests.pipeline.support.first_hour import two_hours
from tests.pipeline.support.spark_cluster import BARE_PYTHON, HOST, SPARK_HOME, environment, spark_cluster
from tests.pipeline.support.spark_jvm import FOR_SMALL_JOBS, quick_jvm
from tests.pipeline.validation.test_validation import batches, missed, sensors
from tests.support.metering.metering_directory import write_directory
from tests.support.processes.namespaces import NoNamespacesError, check_own_mounts
from tests.support.tools import in_ci

SUBMIT_S = 150


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Attributes:
        archive: what `sluice meter archive` wrote.
        out: a folder of this machine that is private to each worker and empty there; None: this machine has no mount namespaces, and
            workers see all of it.
    """

    master: str
    archive: Path
    out: Path | None


@pytest.fixture(scope="module")
def cluster(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start one cluster for all tests, which run in the process of the shared session: a cluster takes longer to start than they do."""
    folder = tmp_path_factory.mktemp("cluster")
    out: Path | None = folder / "out"
    (folder / "out").mkdir()
    try:
        check_own_mounts(folder / "out")
    except NoNamespacesError:
        if in_ci():
            raise
        out = None
    archive = folder / "sluice.tar"  # not compressed, which would take as long as the tests
    made = CliRunner().invoke(meter, ["archive", str(archive)])
    assert made.exit_code == 0, made.output
    with spark_cluster(folder, apart=out) as master:
        yield Cluster(master, archive, out)


@pytest.mark.timeout(300)
def test_a_cluster_says_what_the_local_engine_says(cluster: Cluster, tmp_path: Path) -> None:
    """With the archive, and files on viewfs:, verdict and exit code equal those of the local engine; workers have no other packages."""
    directory = write_directory(tmp_path / "run", batches(file_sets=2), sensors(), mutate=missed)
    done = subprocess.run(
        _submit(cluster, tmp_path, directory, more=FOR_SMALL_JOBS),
        env=environment() | {"PYSPARK_PYTHON": str(BARE_PYTHON)},
        cwd=tmp_path,
        capture_output=True,
        timeout=SUBMIT_S,
    )
    assert done.returncode == 1, done.stderr.decode()[-2000:]
    reported = json.loads((tmp_path / "verdict" / "verdict.json").read_text())
    assert reported == json.loads(json.dumps(validate(directory).as_dict(50)))
    assert reported["decisions"] == 1_600


@pytest.mark.timeout(600)
def test_a_cluster_writes_tables_to_a_url(cluster: Cluster, tmp_path: Path) -> None:
    """Workers read files by Hadoop and return those of the tables, which the driver writes: the rows are those of the local engine."""
    source = two_hours(tmp_path / "run")
    assert CliRunner().invoke(meter, ["rollup", "--in", str(source), "--out", str(tmp_path / "expected")]).exit_code == 0
    typed = ["rollup", "--in", f"viewfs://house/metering/{source.name}", "--out", "viewfs://house/metering/tables"]
    done = _rolled_up(cluster, tmp_path, source, typed)
    assert done.returncode == 0, done.stdout[-2000:]
    rows = of_directory(tmp_path / "tables")
    assert rows == of_directory(tmp_path / "expected")
    assert rows["usage_hour"]


@pytest.mark.namespace
@pytest.mark.timeout(600)
def test_workers_without_a_shared_disk_publish_nothing(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    """A roll-up whose workers write to their own disks ends with exit code 2 and one line, and leaves tables and ledger unchanged."""
    if cluster.out is None:
        pytest.skip("this machine has no mount namespaces")
    source, out = two_hours(tmp_path / "in"), cluster.out
    last, kept = max((source / "manifests").rglob("*.json")), tmp_path / "later.json"
    last.rename(kept)
    from pipeline.spark.rollup.rollup import roll_up

    roll_up(spark, RollupSettings(str(source), out))
    kept.rename(last)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    meter = ["rollup", "--in", str(source), "--out", str(out)]
    done = _rolled_up(cluster, tmp_path, source, meter)
    lines = (done.stdout + done.stderr).splitlines()  # `spark-submit` writes both outputs of the program that it starts to stdout
    said = [line for line in lines if line.startswith("sluice: ") and not line.endswith(" ...")]
    assert (done.returncode, len(said)) == (2, 1), done.stderr[-2000:]
    assert re.search(
        rf"--out {out}: the workers wrote [1-9]\d* rows of usage_hour, and 0 are on this machine, so none is published; name a folder",
        said[0],
    )
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def _rolled_up(cluster: Cluster, folder: Path, source: Path, meter: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Submit a roll-up whose workers have the packages of the archive only."""
    return subprocess.run(
        _submit(cluster, folder, source, meter, FOR_SMALL_JOBS),
        env=environment() | {"PYSPARK_PYTHON": str(BARE_PYTHON)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=4 * SUBMIT_S,
        check=False,
    )


def _submit(cluster: Cluster, folder: Path, directory: Path, meter: Sequence[str] = (), more: Mapping[str, str] | None = None) -> list[str]:
    settings = {
        "spark.archives": f"{cluster.archive}#sluice",
        "spark.executorEnv.PYTHONPATH": "./sluice",
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": quick_jvm(),
        "spark.executor.extraJavaOptions": quick_jvm(),
        "spark.hadoop.fs.viewfs.mounttable.house.link./metering": directory.parent.as_uri(),
        **(more or {}),
    }
    flags = [text for key, value in settings.items() for text in ("--conf", f"{key}={value}")]
    place = f"viewfs://house/metering/{directory.name}"
    meter = meter or ["validate", "--engine", "spark", "--in", place, "--out", str(folder / "verdict")]
    submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.master, *flags]
    return [*submit, submitted.__file__, *meter]
