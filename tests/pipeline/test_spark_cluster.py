"""The pipeline on a cluster that is not this process: one master, two workers, started by `spark-submit`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.validation.local import validate
from tests.pipeline.support.spark_cluster import HOST, ROOT, SPARK_HOME, environment, packages_zip, spark_cluster
from tests.pipeline.support.spark_jvm import QUICK_JVM
from tests.pipeline.test_validation import batches, missed, sensors
from tests.support.metering_directory import write_directory
from tests.support.tools import in_ci, missing_to_run

SUBMIT_S = 150


@pytest.mark.timeout(300)
def test_a_cluster_says_what_the_local_engine_says(tmp_path: Path) -> None:
    """Handed to a cluster with --py-files, files on viewfs:, the verdict is the local engine's, and so is the exit code."""
    missing = missing_to_run()
    if missing and not in_ci():
        pytest.skip(f"Spark cannot run here: missing {', '.join(missing)}")
    directory = write_directory(tmp_path / "run", batches(stems=2), sensors(), mutate=missed)
    with spark_cluster(tmp_path) as master:
        done = subprocess.run(
            _submit(master, tmp_path, directory),
            env=environment() | {"PYSPARK_PYTHON": sys.executable},
            cwd=tmp_path,
            capture_output=True,
            timeout=SUBMIT_S,
        )
    assert done.returncode == 1, done.stderr.decode()[-2000:]
    told = json.loads((tmp_path / "verdict" / "verdict.json").read_text())
    assert told == json.loads(json.dumps(validate(directory).as_dict(50)))
    assert told["decisions"] == 1_600


def _submit(master: str, folder: Path, directory: Path) -> list[str]:
    settings = {
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.hadoop.fs.viewfs.mounttable.house.link./metering": directory.parent.as_uri(),
    }
    flags = [text for key, value in settings.items() for text in ("--conf", f"{key}={value}")]
    program = folder / "submitted.py"
    program.write_text((ROOT / "pipeline" / "submitted.py").read_text())
    meter = ["validate", "--engine", "spark", "--in", f"viewfs://house/metering/{directory.name}", "--out", str(folder / "verdict")]
    submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master, *flags, "--py-files", str(packages_zip(folder))]
    return [*submit, str(program), *meter]
