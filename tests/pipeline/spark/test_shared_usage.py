"""A roll-up of several workers' files counts the usage of each worker once."""

from pathlib import Path
from typing import Any

from pipeline.manifest import find_manifests
from pipeline.rollup.settings import RollupSettings
from tests.support.fleet.metering_members import Fleet, FleetStep
from tests.support.metering.metering_workers import Step, play


def busy(directory: Path) -> Path:
    """Let two workers use one group alternately."""
    play(directory, [Step(at % 2, "record", 0, 700 + 13 * at, 40) for at in range(100)])
    return directory


def test_a_roll_up_counts_what_each_worker_recorded(spark: Any, tmp_path: Path) -> None:
    """The decisions and units of a group equal those of the manifests, without usage that workers recorded of each other."""
    from pipeline.spark.rollup.rollup import roll_up

    source, out = busy(tmp_path / "in"), tmp_path / "out"
    roll_up(spark, RollupSettings(str(source), out, ("day",)))
    rows = {row["proxy_id"]: row for row in spark.read.parquet(str(out / "decisions_day")).collect()}
    for manifest in find_manifests(source):
        row, count = rows[manifest.proxy_id], manifest.counts["Produce"]
        assert (row["decisions"], row["units"]) == (count.decisions, count.units)


def test_sums_of_files_leave_out_other_workers(tmp_path: Path) -> None:
    """The sums by file that a stream publishes leave out usage of other workers."""
    from pipeline.spark.validation.partial_sums import file_sums

    source = busy(tmp_path)
    for manifest in find_manifests(source):
        path = next(source / entry.path for entry in manifest.files if entry.table == "samples")
        sums = file_sums(str(path), 0, 1_000)
        count = manifest.counts["Produce"]
        assert sum(sums.column("decisions").to_pylist()) == count.decisions
        assert sum(sums.column("units").to_pylist()) == count.units


def test_spark_compares_workers_too(spark: Any, tmp_path: Path) -> None:
    """The validator on Spark reports the same about workers as the local one."""
    from pipeline.file_sets import checked_runs
    from pipeline.spark.validation.validate import validate_runs
    from pipeline.validation.local import validate

    source = busy(tmp_path)
    verdict = validate_runs(spark, source, checked_runs(source))
    assert verdict.shared == validate(source).shared
    assert verdict.holds


def test_spark_compares_members_too(spark: Any, tmp_path: Path) -> None:
    """The validator on Spark reports the same about the members of a fleet as the local one."""
    from pipeline.file_sets import checked_runs
    from pipeline.spark.validation.validate import validate_runs
    from pipeline.validation.local import validate

    fleet = Fleet(tmp_path)
    fleet.play([FleetStep(at % 2, Step(0, "record", 0, 700 + at, 40)) for at in range(50)])
    fleet.stop()
    verdict = validate_runs(spark, tmp_path, checked_runs(tmp_path))
    assert verdict.fleets == validate(tmp_path).fleets
    assert verdict.fleets[0].compared == 50
    assert verdict.holds
