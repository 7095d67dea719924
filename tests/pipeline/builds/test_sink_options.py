"""The options of `sluice meter rollup --sink` and `sluice meter ddl --sink`: contradictions, missing packages, and the printed views."""

import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from pipeline.rollup.published.ddl import TABLES, VIEWS
from sluice_cli.meter import meter
from tests.pipeline.support.build_views import printed_views


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--sink", "iceberg", "--out", "somewhere"], "leave it out"),
        ([], "--out: is missing"),
        (["--sink", "delta"], "--out: is missing"),
        (["--out", "somewhere", "--namespace", "x"], "--namespace: is for tables of a catalog"),
        (["--sink", "delta", "--out", "somewhere", "--catalog", "x"], "--catalog: is for tables of a catalog"),
        (["--sink", "iceberg", "--engine", "spark", "--catalog", "lake", "--property", "uri=x"], "--conf spark.sql.catalog.lake.KEY=VALUE"),
        (["--sink", "iceberg", "--namespace", "a..b", "--property", "uri=sqlite://"], "is no name"),
    ],
)
def test_options_that_contradict_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], words: str) -> None:
    """Each is an error of one line with exit code 2, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(meter, ["rollup", "--in", "metering", *options])
    assert (done.exit_code, done.stderr.count("\n"), words in done.stderr) == (2, 1, True), done.output
    assert not list(tmp_path.iterdir())


def test_a_directory_of_files_is_no_place_for_delta_tables(tmp_path: Path) -> None:
    """Tables of the other sink stay as they are."""
    (tmp_path / "ledger.json").write_text("{}")
    done = CliRunner().invoke(meter, ["rollup", "--in", "metering", "--sink", "delta", "--out", str(tmp_path)])
    assert (done.exit_code, "has the tables of --sink parquet" in done.stderr) == (2, True), done.output
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.json"]


@pytest.mark.parametrize(("sink", "package"), [("iceberg", "pyiceberg"), ("delta", "deltalake")])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sink: str, package: str) -> None:
    """Without the package of a sink the command names its extra and the command that installs it."""
    monkeypatch.setitem(sys.modules, package, None)
    out = ["--out", str(tmp_path / "out")] if sink == "delta" else []
    done = CliRunner().invoke(meter, ["rollup", "--in", str(tmp_path), "--sink", sink, *out])
    assert done.exit_code == 2
    assert f'(the extra `{sink}`), which is not installed; run `pip install "{package}' in done.stderr


def test_the_views_of_each_engine_are_printed(tmp_path: Path) -> None:
    """DuckDB, Spark and Trino have the same views of a namespace; for dbt they are sources; DuckDB and Spark read Delta directories."""
    texts = {engine: printed_views(engine, "--sink", "iceberg", "--at", "lake.sluice").stdout for engine in ("duckdb", "spark", "trino")}
    assert len(set(texts.values())) == 1
    assert texts["trino"].count("CREATE OR REPLACE VIEW sluice_views.") == len(TABLES) + len(VIEWS)
    assert yaml.safe_load(printed_views("dbt", "--sink", "iceberg", "--at", "lake.sluice").stdout)["sources"][0]["name"] == "sluice_views"
    assert printed_views("trino", "--sink", "delta", "--at", "lake.sluice").stdout == texts["trino"]
    assert f"JOIN delta.`{tmp_path}/usage_day` AS made" in printed_views("spark", "--sink", "delta", "--at", tmp_path).stdout
    assert f"JOIN delta_scan('{tmp_path}/usage_day') AS made" in printed_views("duckdb", "--sink", "delta", "--at", tmp_path).stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--sink", "iceberg", "--at", "a b"], "is no namespace"),
        (["--sink", "iceberg", "--at", "x.y", "--schema", "y"], "name another schema"),
        (["--sink", "delta", "--at", "/no/such"], "--at /no/such: no such directory"),
        (["--sink", "delta", "--at", "/"], "trino reads Delta tables of a catalog"),
    ],
)
def test_views_that_cannot_be_printed_are_one_line(options: list[str], words: str) -> None:
    """Each is an error of one line with exit code 2."""
    done = printed_views("trino", *options)
    assert (done.exit_code, done.stderr.count("\n"), words in done.stderr) == (2, 1, True), done.output
