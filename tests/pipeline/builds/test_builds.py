"""`sluice meter rollup --sink iceberg|delta`: readers count the rows that a directory of files has, whenever a run ends, and none twice."""

import itertools
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipeline.builds import leftovers
from pipeline.builds.publishing import BuildTables, build_tables
from pipeline.duckdb.rollup import roll_up
from pipeline.rollup.settings import RollupResult, RollupSettings
from sluice_cli.meter import meter
from tests.pipeline.support.build_places import DeltaPlace, IcebergPlace, Place, ends_before_change
from tests.pipeline.support.counted_rows import counted, of_directory
from tests.pipeline.support.first_hour import PRICES, TENANTS, manifests, two_hours


@pytest.fixture(scope="module", params=[IcebergPlace, DeltaPlace])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Place]:
    """Two hours, of which the second has no manifest yet; the first one is in the tables, by hour."""
    folder = tmp_path_factory.mktemp("builds")
    (folder / "tenants.csv").write_text(TENANTS)
    (folder / "prices.toml").write_text(PRICES)
    directory, place = two_hours(folder / "in"), request.param(folder)
    manifests(directory)[1].rename(folder / "late.json")
    done = rolled_up(directory, *place.options, "--level", "hour")
    assert done.exit_code == 0, done.output
    place.keep()
    return directory, place


@pytest.fixture
def source(kept: tuple[Path, Place]) -> Path:
    shutil.rmtree(kept[0] / "manifests" / "late", ignore_errors=True)
    return kept[0]


@pytest.fixture
def place(kept: tuple[Path, Place]) -> Place:
    """The place with the tables as they were."""
    kept[1].restore()
    return kept[1]


def let_come(source: Path) -> None:
    """Put the manifest of the second hour back, as a late one."""
    (source / "manifests" / "late").mkdir()
    shutil.copy(source.parent / "late.json", source / "manifests" / "late")


def rolled_up(source: Path, *options: object) -> Result:
    files = ("--tenants", source.parent / "tenants.csv", "--prices", source.parent / "prices.toml")
    arguments = ["rollup", "--in", source, *files, *options]
    return CliRunner().invoke(meter, [str(argument) for argument in arguments])


TWO = ("usage_hour", "decisions_hour")


def test_readers_count_the_rows_of_a_directory(tmp_path: Path, source: Path, place: Place) -> None:
    """After a run with other levels, which closes the day, and after late data the views have the rows that a directory of files has."""
    for options in (("--level", "minute,hour,day", "--close-through", "2026-11-21"), ()):
        if not options:
            let_come(source)
            without = CliRunner().invoke(meter, ["rollup", "--in", str(source), *place.options])
            assert (without.exit_code, "which was charged and is closed; add --prices" in without.stderr) == (2, True), without.output
        there, here = rolled_up(source, *place.options, *options), rolled_up(source, "--out", tmp_path / "out", *options)
        assert (there.exit_code, here.exit_code) == (0, 0), there.output
        found = counted(place)
        assert found == of_directory(tmp_path / "out")
    assert all(found[name] for name in ("usage_minute", "usage_day", "usage_adjustment", "chargeback_adjustment"))
    assert "no new file sets" in rolled_up(source, *place.options).stdout


def test_a_run_that_ends_between_two_commits(tmp_path: Path, source: Path, place: Place) -> None:
    """Wherever a run ends, readers count all rows of before or all rows of after; the next run completes it, and nothing counts twice."""
    let_come(source)
    with build_tables(place.store()) as tables:
        result = roll_up(RollupSettings(str(source), tables.folder, ("hour",)))
        others = {path.name for path in tables.folder.iterdir() if path.is_dir()}.difference(TWO)
        made = shutil.copytree(tables.folder, tmp_path / "made", ignore=shutil.ignore_patterns(*others))
    states = [counted(place, TWO)]
    for number in itertools.count():
        with build_tables(place.store()) as tables:
            shutil.copytree(made, tables.folder, dirs_exist_ok=True)
            with ends_before_change(place, number) as done:
                tables.publish(result)
        if len(done) < number:
            break
        if (found := counted(place, TWO)) != states[-1]:
            states.append(found)
    assert number > len(TWO) + 1, "each table has a commit of its own, and so has `runs`"
    [before, after] = states
    assert len(before["usage_hour"]) < len(after["usage_hour"])


def builds_in(place: Place, table: str) -> set[str]:
    return set(place.tables(table)[table].column("build_id").drop_null().to_pylist())


def test_rows_that_do_not_count_are_removed(source: Path, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next build removes the rows of a run that ended early at once, and those of a replaced build when no query can count them."""
    [first] = builds_in(place, "usage_hour")
    with ends_before_change(place, 3):
        rolled_up(source, *place.options, "--level", "day,hour")
    assert len(builds_in(place, "usage_hour") | builds_in(place, "usage_day")) == 2
    rolled_up(source, *place.options, "--level", "day,hour")
    second = builds_in(place, "usage_hour") - {first}
    assert first in builds_in(place, "usage_hour"), "a query that began before may count it"
    assert second == builds_in(place, "usage_day")
    monkeypatch.setattr(leftovers, "KEPT_MS", 0)
    rolled_up(source, *place.options, "--level", "hour")
    [third] = builds_in(place, "usage_hour")
    assert third not in {first, *second}
    assert builds_in(place, "usage_day") == set()


def test_two_at_a_time_publish_one_build(tmp_path: Path, source: Path, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another roll-up publishes first, this one ends with exit code 3, and its rows do not count, even if no date is in `runs` yet."""
    publish, empty = BuildTables.publish, type(place)(tmp_path)

    def overtaken(self: BuildTables, result: RollupResult) -> None:
        monkeypatch.setattr(BuildTables, "publish", publish)
        assert rolled_up(source, *empty.options, "--level", "hour").exit_code == 0
        publish(self, result)

    monkeypatch.setattr(BuildTables, "publish", overtaken)
    done = rolled_up(source, *empty.options, "--level", "hour")
    assert (done.exit_code, "another roll-up has published meanwhile" in done.stderr) == (3, True), done.output
    assert len(builds_in(empty, "runs")) == 1
    assert "no new file sets" in rolled_up(source, *empty.options, "--level", "hour").stdout


def test_a_table_of_an_earlier_version_gets_new_columns(source: Path, place: Place) -> None:
    """The rows of before have no value in a column that is new."""
    place.drop_column("usage_hour", "waited_ms")
    rolled_up(source, *place.options, "--level", "hour,day")
    assert any(place.tables("usage_hour")["usage_hour"].column("waited_ms").drop_null().to_pylist())
