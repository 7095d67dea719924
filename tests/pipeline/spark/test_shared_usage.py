"""A roll-up of several workers' files counts the usage of each worker once."""

import random
from pathlib import Path
from typing import Any

import pytest

from pipeline.manifest import find_manifests
from pipeline.rollup.settings import RollupSettings
from pipeline.validation import workers
from tests.pipeline.workers.test_shared_runs import change, change_amount
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


@pytest.mark.parametrize("events", [workers.EVENTS_AT_ONCE, 50])
def test_spark_compares_workers_too(spark: Any, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: int) -> None:
    """The validator on Spark says the same about workers as the local one, also if tasks compare shares of the groups, and at a URL."""
    from pipeline.spark.validation.validate import Wanted, local_runs, validate_remote, validate_runs
    from pipeline.validation.local import validate

    source = busy(tmp_path / "busy")
    assert validate_runs(spark, local_runs(source)).holds
    dice = random.Random(1)
    diverging = tmp_path / "diverging"
    play(diverging, [Step(at % 3, "record", dice.randrange(3), 500 + at, dice.choice((0, 10, 90))) for at in range(300)], 3)
    change(diverging, change_amount)
    here = [validate(source).as_dict(20), validate(diverging).as_dict(20)]
    assert here[1]["kinds"]["SHARED"]
    monkeypatch.setattr(workers, "EVENTS_AT_ONCE", events)
    assert [validate_runs(spark, local_runs(place), Wanted(20)).as_dict(20) for place in (source, diverging)] == here
    assert [validate_remote(spark, f"{lake}/{place.name}", Wanted(20)).as_dict(20) for place in (source, diverging)] == here


def test_spark_compares_members_too(spark: Any, lake: str, tmp_path: Path) -> None:
    """The validator on Spark reports the same about the members of a fleet as the local one, from a directory and from a URL."""
    from pipeline.spark.validation.validate import local_runs, validate_remote, validate_runs
    from pipeline.validation.local import validate

    fleet = Fleet(tmp_path)
    fleet.play([FleetStep(at % 2, Step(0, "record", 0, 700 + at, 40)) for at in range(50)])
    fleet.stop()
    for verdict in (validate_runs(spark, local_runs(tmp_path)), validate_remote(spark, lake)):
        assert verdict.fleets == validate(tmp_path).fleets
        assert verdict.fleets[0].compared == 50
        assert verdict.holds
