"""Members of a fleet whose tasks compare a share of the groups each, at a URL that only Hadoop knows."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.errors import BadInputError, PipelineError
from pipeline.manifest import by_run, find_manifests
from pipeline.replay.findings import Kind
from pipeline.spark.failures import reported_in_one_line
from pipeline.spark.validation.validate import Wanted, local_runs, validate_remote, validate_runs
from pipeline.validation import workers
from pipeline.validation.local import validate
from pipeline.validation.verdict import Verdict
from tests.pipeline.workers.test_fleet_runs import change_own, count_connections
from tests.pipeline.workers.test_pieces import refused
from tests.support.fleet.metering_members import Fleet, FleetStep
from tests.support.metering.metering_workers import Step

Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three members of two workers each use three groups, forget them and rotate at different times. The first one comes back later."""
    directory, dice = tmp_path_factory.mktemp("fleet"), random.Random(3)
    kinds, fleet = ("expire", *["record"] * 30), Fleet(directory, 3, 2)
    for at in range(400):
        group = dice.randrange(2 if at < 300 else 3)
        fleet.play([FleetStep(at % 3, Step(dice.randrange(2), dice.choice(kinds), group, 3 + at % 50, dice.choice((0, 10, 60))))])
        if at % 45 == 44:
            fleet.take(FleetStep(at // 45, Step(at // 135, "rotate", 0, 0, 0)))
    fleet.advance(8_000)
    for group in (0, 1):
        fleet.take(FleetStep(0, Step(0, "record", group, 9, 0)))
    fleet.stop()
    count_connections(directory)
    return directory


@pytest.fixture
def folder(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, of whose groups a task compares one of several shares."""
    monkeypatch.setattr(workers, "EVENTS_AT_ONCE", 200)
    copy = shutil.copytree(written, tmp_path / "in")
    runs = by_run(find_manifests(copy)).values()
    assert sorted(map(len, runs)) == [2, 2, 2, 2, 3, 3]
    assert workers.shares_of_events(runs) == 5
    return copy


def by_local(directory: Path) -> Verdict:
    """Return what the local engine reports, which compares all groups at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "EVENTS_AT_ONCE", 4_000_000)
        return validate(directory)


def test_members_are_compared_in_shares(spark: Any, lake: str, folder: Path) -> None:
    """The verdict on a URL, with all figures of the fleet, is that of the local engine; that on the directory, too."""
    expected = by_local(folder)
    assert expected.fleets[0].groups == 3
    assert expected.fleets[0].compared > 300
    assert expected.violations == 0
    assert validate_remote(spark, f"{lake}/in", Wanted(50)).as_dict(50) == expected.as_dict(50)
    assert validate_runs(spark, local_runs(folder), Wanted(50)).as_dict(50) == expected.as_dict(50)


@pytest.mark.parametrize("change", [-1, 1])
def test_a_unit_that_is_lost_between_members_is_found_once(spark: Any, lake: str, folder: Path, change: int) -> None:
    """A unit more or less in the file of one member is one difference SHARED, whatever the number of shares."""
    change_own(folder, change)
    expected = by_local(folder)
    (found,) = (finding for _, finding in expected.first() if finding.kind is Kind.SHARED)
    assert found.what == "units of b and c as recorded by member a, worker 0"
    assert expected.kinds()[Kind.SHARED] == 1
    assert validate_remote(spark, f"{lake}/in", Wanted(50)).as_dict(50) == expected.as_dict(50)


# --- files that are missing or damaged


def cut(path: Path) -> None:
    """Remove the last bytes of a file."""
    path.write_bytes(path.read_bytes()[:-200])


def flip(path: Path) -> None:
    """Change a byte of the values."""
    columns = pq.ParquetFile(path).metadata.row_group(0)
    (values,) = (one for one in map(columns.column, range(columns.num_columns)) if one.path_in_schema.startswith("val."))
    data = bytearray(path.read_bytes())
    data[values.data_page_offset + values.total_compressed_size - 9] ^= 0x5A
    path.write_bytes(data)


def break_footer(path: Path) -> None:
    """Change the number of bytes of the footer."""
    data = bytearray(path.read_bytes())
    data[-7] ^= 0x5A
    path.write_bytes(data)


def said(judge: Callable[[], Verdict]) -> str:
    """Return the message of an error, or what is reported."""
    try:
        with reported_in_one_line():
            return repr(sorted(judge().as_dict(50).items()))
    except PipelineError as error:
        return repr(error)


@pytest.mark.parametrize(
    ("table", "damage", "message"),
    [
        pytest.param("samples", Path.unlink, "{path}: is missing; manifest {name} promises ", id="missing"),
        pytest.param("dim_group", cut, " bytes, manifest {name} has ", id="cut"),
        pytest.param("samples", flip, "{path}: the checksum of a page differs", id="damaged-values"),
        pytest.param("events", break_footer, "{path}: not a readable Parquet file (Parquet file size is", id="damaged-footer"),
        pytest.param("usage", break_footer, "'violations', 0", id="not-needed"),
    ],
)
def test_damage_is_reported_as_by_the_local_engine(spark: Any, lake: str, folder: Path, table: str, damage: Damage, message: str) -> None:
    """The message names the file and its file set once. A file that no rule needs is no damage."""
    path = max((folder / table).rglob("*.parquet"))
    damage(path)
    here = said(lambda: by_local(folder))
    assert message.format(path=path, name=path.stem) in here
    assert said(lambda: validate_remote(spark, f"{lake}/in", Wanted(50))).replace(lake, str(folder.parent)) == here


@pytest.mark.parametrize("table", ["samples", "events"])
def test_a_row_of_a_group_without_a_name_is_refused(spark: Any, lake: str, folder: Path, table: str) -> None:
    """The message is that of the local engine: the file set, and the group that another one names, or none."""
    message = refused(folder, table)
    assert said(lambda: by_local(folder)) == said(lambda: validate_remote(spark, f"{lake}/in")) == repr(BadInputError(message))
