"""`sluice meter rollup --engine local`: bad input, places and repetition, without Java."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pipeline.duckdb import rollup, small_tables
from pipeline.duckdb.charges import UsedInDay, charges_of
from pipeline.duckdb.escapes import edits
from pipeline.duckdb.names import decoded
from pipeline.rollup.prices import read_prices
from pipeline.rollup.published.tables import read_table
from sluice_cli.meter import meter
from tests.pipeline.support.first_hour import CAST, two_hours
from tests.support.metering.metering_paced import admitted, write_paced
from tests.support.metering.metering_scene import START_MS, write_scene


def rolled_up(source: Path, out: Path, *options: str) -> Result:
    return CliRunner().invoke(meter, ["rollup", "--in", str(source), "--out", str(out), "--engine", "local", *options])


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_second_run_builds_nothing(tmp_path: Path) -> None:
    """The same input again changes no file, and a new run into another folder writes the same bytes."""
    source = two_hours(tmp_path / "a [b]*'c")
    first = rolled_up(source, tmp_path / "out", "--level", "minute,hour,day")
    assert first.exit_code == 0, first.output
    before = contents(tmp_path / "out")
    again = rolled_up(source, tmp_path / "out", "--level", "minute,hour,day")
    assert "no new file sets" in again.stdout
    assert contents(tmp_path / "out") == before
    rolled_up(source, tmp_path / "other", "--level", "minute,hour,day")
    its = contents(tmp_path / "other")
    assert {name for name in before if name.endswith(".parquet")} <= its.keys()
    assert all(its[name] == content for name, content in before.items() if name.endswith(".parquet"))


def test_waits_of_a_paced_group_end_when_a_request_passes(tmp_path: Path) -> None:
    """A wait of a paced group is counted as a throttle of its hour, and its window is from when the request came to when it passed."""
    requests = admitted([(0, 150_000), (200, 50_000), (2_500, 50_000)], 100_000.0)
    assert [request.waited_ms for request in requests] == [0, 300, 0]
    rolled_up(write_paced(tmp_path / "in", [requests], {0: 100_000.0}), tmp_path / "out")
    [window] = read_table(tmp_path / "out", "throttle_stretches")
    assert (window["begin_ms"], window["end_ms"], window["throttle_ms"]) == (START_MS + 200, START_MS + 500, 300)
    [hour] = read_table(tmp_path / "out", "decisions_hour")
    assert [hour[name] for name in ("decisions", "units", "throttled", "throttle_ms", "waited", "waited_ms")] == [
        3,
        250_000,
        1,
        300,
        1,
        300,
    ]


@pytest.mark.parametrize(
    ("module", "limit", "value"),
    [(small_tables, "SMALL_BYTES_MAX", 0), (small_tables, "KEPT_BYTES_MAX", 9_000), (rollup, "ROWS_TOGETHER_MAX", 0)],
)
def test_limits_do_not_change_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, limit: str, value: int
) -> None:
    """Rows that DuckDB reads from files, and hours that are added up one by one, give the bytes that kept rows and several hours give."""
    source = two_hours(tmp_path / "in", file_set_s=8)
    rolled_up(source, tmp_path / "out", "--level", "minute,hour,day")
    monkeypatch.setattr(module, limit, value)
    rolled_up(source, tmp_path / "limited", "--level", "minute,hour,day")
    kept, limited = (
        {name: its for name, its in contents(tmp_path / out).items() if name.endswith(".parquet")} for out in ("out", "limited")
    )
    assert len(kept) > 10
    assert limited == kept


@pytest.mark.parametrize("small_bytes_max", [small_tables.SMALL_BYTES_MAX, 0])
def test_bytes_that_rotted_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_bytes_max: int) -> None:
    """A file in which one bit differs is one line with exit code 3, and nothing is published, whether the file is small or not."""
    monkeypatch.setattr(small_tables, "SMALL_BYTES_MAX", small_bytes_max)
    source = write_scene(tmp_path / "in", 30, clients=CAST)
    path = next((source / "samples").rglob("*.parquet"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    done = rolled_up(source, tmp_path / "out")
    errors = [line for line in done.stderr.splitlines() if not line.endswith("...")]
    assert done.exit_code == 3, done.output
    assert len(errors) == 1, done.stderr
    assert "verify-manifests" in errors[0]
    assert not (tmp_path / "out").exists()


def test_a_sum_that_differs_ends_the_run(tmp_path: Path) -> None:
    """One unit more than in the manifest is an error with both sums, and nothing is published."""

    def more(tables: dict[str, list[dict[str, Any]]]) -> None:
        tables["samples"][0]["sum"] += 1

    done = rolled_up(write_scene(tmp_path / "in", 5, clients=CAST, mutate=more), tmp_path / "out")
    assert (done.exit_code, "the manifest has" in done.stderr) == (3, True), done.output
    assert not (tmp_path / "out").exists()


def test_a_missing_duckdb_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without DuckDB the command names the package and the command that installs it."""
    source = write_scene(tmp_path / "in", 3, clients=CAST)
    for name in [name for name in sys.modules if name.startswith("pipeline.duckdb")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    done = rolled_up(source, tmp_path / "out")
    assert done.exit_code == 2
    assert 'pip install "duckdb' in done.stderr.splitlines()[-1]


def test_a_group_without_a_limit_and_its_client_are_counted(tmp_path: Path) -> None:
    """Usage of all clients is in the tables by hour, whatever their quota."""
    rolled_up(write_scene(tmp_path / "in", 20, clients=CAST), tmp_path / "out")
    assert {row["client_id"] for row in read_table(tmp_path / "out", "usage_hour")} == {client.client_id for client in CAST}


@pytest.mark.parametrize(
    ("name", "found"), [("alice", "alice"), ("m%C3%BCller", "müller"), ("a%2Bb", "a+b"), ("a%2", None), ("%zz", None), ("", "")]
)
def test_a_sanitized_name_is_decoded(name: str, found: str | None) -> None:
    """A user is compared with the tenants file as it was before Kafka sanitized it."""
    assert decoded(name) == found


@pytest.mark.parametrize(("one", "other", "count"), [("", "abc", 3), ("étl-1", "étl-2", 1), ("kitten", "sitting", 3), ("same", "same", 0)])
def test_edits_are_counted_in_characters(one: str, other: str, count: int) -> None:
    """The distance of two names is that of their characters, not of their bytes."""
    assert (edits(one, other), edits(other, one)) == (count, count)


def test_a_tenants_own_price_wins_from_its_day_on(tmp_path: Path) -> None:
    """The latest price up to the day applies, a tenant's own before the general one, and half of a millionth is rounded up."""
    (tmp_path / "prices.toml").write_text(
        'currency = "EUR"\n[[price]]\nmillion_requests = "0.5"\n[[price]]\nfrom = 2026-11-21\nmillion_requests = "2"\n'
        '[[price]]\ntenant = "shop"\nmillion_requests = "1.5"\n'
    )
    prices = read_prices(tmp_path / "prices.toml")
    days = (("2026-11-20", "data"), ("2026-11-21", "data"), ("2026-11-21", "shop"))
    charges = charges_of([UsedInDay(date, tenant, "User:a", "c", (7, 0, 1, 0)) for date, tenant in days], prices, None)
    assert [str(charge.amount) for charge in charges] == ["0.000001", "0.000002", "0.000002"]
    assert [str(charge.quantity) for charge in charges] == ["0.000001000"] * 3
