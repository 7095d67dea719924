"""`sluice meter rollup --sink iceberg`: readers count the rows that a directory of tables has, whenever a run ends, and no row twice."""

import contextlib
import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner, Result
from pyiceberg.catalog.sql import SqlCatalog

from pipeline.duckdb.rollup import roll_up
from pipeline.iceberg import leftovers
from pipeline.iceberg.gold import GoldTables, gold_tables
from pipeline.rollup.published.ddl import TABLES, VIEWS
from pipeline.rollup.settings import RollupResult, RollupSettings
from sluice_cli.meter import meter
from tests.pipeline.support.first_hour import PRICES, TENANTS, manifests, two_hours
from tests.pipeline.support.iceberg_catalog import FolderCatalog

Rows = dict[str, list[str]]
"""The rows of each table, as text and in order."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hours, of which the second has no manifest yet; the first one is in the catalog, by hour."""
    folder = tmp_path_factory.mktemp("gold")
    (folder / "tenants.csv").write_text(TENANTS)
    (folder / "prices.toml").write_text(PRICES)
    directory = two_hours(folder / "in")
    manifests(directory)[1].rename(folder / "late.json")
    assert in_catalog(directory, FolderCatalog(folder), "--level", "hour").exit_code == 0
    shutil.copy(folder / "catalog.db", folder / "catalog.before")
    return folder


@pytest.fixture
def source(folder: Path) -> Path:
    shutil.rmtree(folder / "in" / "manifests" / "late", ignore_errors=True)
    return folder / "in"


@pytest.fixture
def catalog(folder: Path) -> FolderCatalog:
    """The catalog as it was; the files that it refers to never change."""
    shutil.copy(folder / "catalog.before", folder / "catalog.db")
    return FolderCatalog(folder)


def let_come(source: Path) -> None:
    """Put the manifest of the second hour back, as a late one."""
    (source / "manifests" / "late").mkdir()
    shutil.copy(source.parent / "late.json", source / "manifests" / "late")


def rolled_up(source: Path, *options: object) -> Result:
    files = ("--tenants", source.parent / "tenants.csv", "--prices", source.parent / "prices.toml")
    arguments = ["rollup", "--in", source, *files, *options]
    return CliRunner().invoke(meter, [str(argument) for argument in arguments])


def in_catalog(source: Path, catalog: FolderCatalog, *options: object) -> Result:
    return rolled_up(source, "--sink", "iceberg", *catalog.options, *options)


OF_HOURS = ("usage_hour", "decisions_hour", "throttle_histogram", "throttle_stretches", "rate_series")


def counted(catalog: FolderCatalog, names: Iterable[str] = TABLES) -> Rows:
    """Return what readers count: DuckDB executes the printed views on the tables."""
    with duckdb.connect() as engine:
        catalog.attach(engine)
        found = {}
        for name in names:
            rows = engine.sql(f"SELECT * EXCLUDE (build_id) FROM sluice_views.{name}").to_arrow_table()
            found[name] = in_order(rows.to_pylist())
        return found


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps({name: text_of(value) for name, value in sorted(row.items())}) for row in rows)


def text_of(value: Any) -> str:
    """Return a cell as text. In files times have no time zone, and are in UTC."""
    return str(value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value)


def of_directory(out: Path) -> Rows:
    """Return the rows of the files of each table, with the columns that are folders."""
    found: Rows = {}
    for name in TABLES:
        rows = []
        for path in (out / name).rglob("*.parquet"):
            folders = dict(part.split("=") for part in path.relative_to(out / name).parts[:-1])
            rows += [row | folders for row in pq.read_table(path, partitioning=None, coerce_int96_timestamp_unit="us").to_pylist()]
        found[name] = in_order(rows)
    return found


def test_readers_count_the_rows_of_a_directory(tmp_path: Path, source: Path, catalog: FolderCatalog) -> None:
    """After runs with other levels, with a closed day and with late data the views have the rows that a local directory has."""
    for step, options in enumerate((("--level", "minute,hour,day"), ("--level", "hour", "--close-through", "2026-11-21"), ())):
        if step == 2:
            let_come(source)
            without = CliRunner().invoke(meter, ["rollup", "--in", str(source), "--sink", "iceberg", *catalog.options])
            assert (without.exit_code, "which was charged and is closed; add --prices" in without.stderr) == (2, True), without.output
        there, here = in_catalog(source, catalog, *options), rolled_up(source, "--out", tmp_path / "out", *options)
        assert (there.exit_code, here.exit_code) == (0, 0), there.output
        found = counted(catalog)
        assert found == of_directory(tmp_path / "out")
        assert len(found["usage_day"]) == (0 if step else 3)
    assert found["usage_adjustment"]
    assert found["chargeback_adjustment"]
    assert "no new file sets" in in_catalog(source, catalog).stdout


class EndedEarlyError(BaseException):
    """The process ends here, as by SIGKILL: no code of the command catches it."""


@contextlib.contextmanager
def ends_before_change(number: int) -> Iterator[list[str]]:
    """Let a process end before a change of the catalog, the first being 0; yield the names of the changes before it."""
    done: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        for name in ("create_namespace", "create_table", "commit_table"):
            real: Callable[..., Any] = getattr(SqlCatalog, name)

            def some(self: SqlCatalog, *arguments: Any, real: Callable[..., Any] = real, name: str = name, **options: Any) -> Any:
                if len(done) == number:
                    raise EndedEarlyError
                done.append(name)
                return real(self, *arguments, **options)

            patched.setattr(SqlCatalog, name, some)
        with contextlib.suppress(EndedEarlyError):
            yield done


def test_a_run_that_ends_between_two_commits(tmp_path: Path, source: Path, catalog: FolderCatalog) -> None:
    """Wherever a run ends, readers count all rows of before or all rows of after; the next run completes it, and nothing counts twice."""
    let_come(source)
    with gold_tables(catalog.open(), ("sluice",)) as tables:
        result = roll_up(RollupSettings(str(source), tables.folder, ("hour",)))
        made = shutil.copytree(tables.folder, tmp_path / "made")
    states = [counted(catalog, OF_HOURS)]
    for number in itertools.count():
        with gold_tables(catalog.open(), ("sluice",)) as tables:
            shutil.copytree(made, tables.folder, dirs_exist_ok=True)
            with ends_before_change(number) as done:
                tables.publish(result)
        if len(done) < number:
            break
        if (found := counted(catalog, OF_HOURS)) != states[-1]:
            states.append(found)
    assert number > len(OF_HOURS), "each table has a commit of its own"
    [before, after] = states
    assert len(before["usage_hour"]) < len(after["usage_hour"])


def builds_in(catalog: FolderCatalog, table: str) -> set[str]:
    return {row["build_id"] for row in catalog.rows(table)}


def test_rows_that_do_not_count_are_removed(source: Path, catalog: FolderCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next build removes the rows of a run that ended early at once, and those of a replaced build when no query can count them."""
    [first] = builds_in(catalog, "sluice.usage_hour")
    with ends_before_change(3):
        in_catalog(source, catalog, "--level", "day,hour")
    assert len(builds_in(catalog, "sluice.usage_hour") | builds_in(catalog, "sluice.usage_day")) == 2
    in_catalog(source, catalog, "--level", "day,hour")
    second = builds_in(catalog, "sluice.usage_hour") - {first}
    assert first in builds_in(catalog, "sluice.usage_hour"), "a query that began before may count it"
    assert second == builds_in(catalog, "sluice.usage_day")
    monkeypatch.setattr(leftovers, "KEPT_MS", 0)
    in_catalog(source, catalog, "--level", "hour")
    [third] = builds_in(catalog, "sluice.usage_hour")
    assert third not in {first, *second}
    assert builds_in(catalog, "sluice.usage_day") == set()


@pytest.mark.parametrize("namespace", ["sluice", "empty"])
def test_two_at_a_time_publish_one_build(source: Path, catalog: FolderCatalog, monkeypatch: pytest.MonkeyPatch, namespace: str) -> None:
    """If another roll-up publishes first, this one ends with exit code 3, and its rows do not count; also for the first build of all."""
    publish, options = GoldTables.publish, ("--namespace", namespace, "--level", "hour")

    def overtaken(self: GoldTables, result: RollupResult) -> None:
        monkeypatch.setattr(GoldTables, "publish", publish)
        assert in_catalog(source, catalog, *options).exit_code == 0
        publish(self, result)

    before = builds_in(catalog, "sluice.runs")
    let_come(source)
    monkeypatch.setattr(GoldTables, "publish", overtaken)
    done = in_catalog(source, catalog, *options)
    assert (done.exit_code, "another roll-up has published meanwhile" in done.stderr) == (3, True), done.output
    assert len(builds_in(catalog, f"{namespace}.runs") - before) == 1
    assert "no new file sets" in in_catalog(source, catalog, *options).stdout


def test_a_table_of_an_earlier_version_gets_new_columns(source: Path, catalog: FolderCatalog) -> None:
    """The rows of before have no value in a column that is new."""
    table = catalog.open().load_table("sluice.usage_hour")
    with table.update_schema() as change:
        change.delete_column("waited_ms")
    in_catalog(source, catalog, "--level", "hour,day")
    assert any(row["waited_ms"] for row in catalog.rows("sluice.usage_hour"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--sink", "iceberg", "--out", "somewhere"], "leave it out"),
        ([], "--out: is missing"),
        (["--out", "somewhere", "--namespace", "x"], "--namespace: is for tables of a catalog"),
        (["--sink", "iceberg", "--engine", "spark"], "use --engine local"),
        (["--sink", "iceberg", "--namespace", "a..b", "--property", "uri=sqlite://"], "is no name"),
    ],
)
def test_options_that_contradict_are_one_line(source: Path, options: list[str], words: str) -> None:
    """Each is an error of one line with exit code 2, and no table is made."""
    done = rolled_up(source, *options)
    assert (done.exit_code, done.stderr.count("\n"), words in done.stderr) == (2, 1, True), done.output


def test_the_views_of_each_engine_are_printed() -> None:
    """DuckDB, Spark and Trino have the same views; for dbt they are sources; a namespace and its views have two names."""
    texts = {engine: views(engine, "--at", "lake.sluice").stdout for engine in ("duckdb", "spark", "trino")}
    assert len(set(texts.values())) == 1
    assert texts["trino"].count("CREATE OR REPLACE VIEW sluice_views.") == len(TABLES) + len(VIEWS)
    assert yaml.safe_load(views("dbt", "--at", "lake.sluice").stdout)["sources"][0]["name"] == "sluice_views"
    for wrong, words in ((["--at", "a b"], "is no namespace"), (["--at", "x.y", "--schema", "y"], "name another schema")):
        done = views("trino", *wrong)
        assert (done.exit_code, words in done.stderr) == (2, True)


def views(engine: str, *options: str) -> Result:
    return CliRunner().invoke(meter, ["ddl", "--for", engine, "--sink", "iceberg", *options])
