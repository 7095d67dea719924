"""Sluice on Spark 4.0.1 writes Iceberg and Delta tables by Spark's own writers, with the rows of the local engine, whenever a run ends."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluice_cli.meter import meter
from tests.pipeline.support.build_places import DeltaPlace, IcebergPlace, Place
from tests.pipeline.support.counted_rows import counted, of_directory
from tests.pipeline.support.first_hour import PRICES, TENANTS, manifests, two_hours
from tests.support.places import ROOT
from tests.support.platform import two_publishers
from tests.support.platform.spark_40 import environment, killed_on_spark, run_on_spark_40, script_on_spark, sluice_command

pytestmark = pytest.mark.timeout(1_800)
CLOSED = ("--level", "minute,hour,day", "--close-through", "2026-11-21")
FORMATS = pytest.mark.parametrize("tables", ["iceberg", "delta"])


@FORMATS
def test_spark_writes_the_rows_of_the_local_engine(tmp_path: Path, tables: str) -> None:
    """A closed day and its late data have the rows of a directory of files; a run that is killed between two commits counts for nothing."""
    source, out = two_hours(tmp_path / "in"), tmp_path / "out"
    place = IcebergPlace(tmp_path) if tables == "iceberg" else DeltaPlace(tmp_path)
    (tmp_path / "tenants.csv").write_text(TENANTS)
    (tmp_path / "prices.toml").write_text(PRICES)
    files = ("--tenants", tmp_path / "tenants.csv", "--prices", tmp_path / "prices.toml")
    sink = ("--sink", "iceberg", "--catalog", "lake") if tables == "iceberg" else ("--sink", "delta", "--out", tmp_path / "delta")
    command = sluice_command(tables, tmp_path, "rollup", "--in", source, *sink, *files)
    manifests(source)[1].rename(tmp_path / "late.json")
    first = run_on_spark_40([*command, *CLOSED])
    assert "built       1 hour, 1 day" in first
    assert "User:orders" in first
    by_local(source, "--out", out, *files, *CLOSED)
    before = counted(place)
    assert before == of_directory(out)
    (source / "manifests" / "late").mkdir()
    shutil.copy(tmp_path / "late.json", source / "manifests" / "late")
    killed_on_spark(command, 2)  # of the tables of adjustments, two have their rows
    assert counted(place) == before
    [killed] = builds_in(place)
    assert "1 late file set as adjustments" in run_on_spark_40(command)
    by_local(source, "--out", out, *files)
    after = counted(place)
    assert after == of_directory(out)
    assert after["usage_adjustment"]
    assert killed not in builds_in(place)
    assert "no new file sets" in run_on_spark_40(command)
    assert "no new file sets" in by_local(source, *place.options, *files)


def by_local(source: Path, *options: object) -> str:
    done = CliRunner().invoke(meter, ["rollup", "--in", str(source), *map(str, options)])
    assert done.exit_code == 0, done.output
    return done.stdout


def builds_in(place: Place) -> set[str]:
    return set(place.tables("usage_adjustment")["usage_adjustment"].column("build_id").to_pylist())


@FORMATS
@pytest.mark.parametrize("first", ["spark", "local"])
def test_of_two_roll_ups_one_publishes(tmp_path: Path, tables: str, first: str) -> None:
    """If another roll-up has published since Spark read `runs`, that of Spark does not count, whichever engine the other one has."""
    assert script_on_spark(tables, two_publishers.__file__, tmp_path, tables, first) == "only one has published"


def test_a_missing_jar_has_its_coordinate(tmp_path: Path) -> None:
    """Without the jar the command ends with exit code 2 and one line that names it."""
    command = sluice_command("", tmp_path, "rollup", "--in", two_hours(tmp_path / "in"), "--sink", "delta", "--out", tmp_path / "delta")
    error = run_on_spark_40(command, exit_code=2)
    assert "Spark 4.0 has no jar for this format; add --conf spark.jars.packages=io.delta:delta-spark_2.13:4.0.1" in error


def test_the_tests_of_the_pipeline_pass(tmp_path: Path) -> None:
    """Sluice's own commands run with PySpark 4.0.1 as with the PySpark of this project."""
    tests = ("tests/pipeline/spark", "tests/pipeline/builds/test_tables_of_spark.py", "tests/pipeline/recommend/test_whatif_buckets.py")
    skipped = ("--ignore", "tests/pipeline/spark/test_spark_cluster.py")  # isolated workers see no packages of this environment
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "--basetemp",
        str(tmp_path / "t"),
        *skipped,
        *tests,
    ]
    done = subprocess.run(command, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=1_500, check=False)
    assert done.returncode == 0, done.stdout[-3_000:]
