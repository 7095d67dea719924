"""Iceberg tables in a REST catalog, and DuckDB 1.5.5 with its own extensions for Iceberg and Delta as the engine that reads them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

from pipeline.builds.publishing import BuildStore
from pipeline.errors import IncompleteError
from pipeline.iceberg.store import IcebergStore
from pipeline.rollup.published.ddl import TABLES
from sluice_cli.meter import meter
from tests.pipeline.support.build_places import DeltaPlace
from tests.pipeline.support.build_views import attach, printed_views
from tests.pipeline.support.first_hour import PRICES, TENANTS, two_hours
from tests.support.places import ROOT
from tests.support.platform.duckdb_15 import run_on_duckdb
from tests.support.platform.jars import jars
from tests.support.platform.rest_catalog.server import RestCatalog, rest_catalog
from tests.support.platform.spark_40 import run_on_spark_40, sluice_command
from tests.support.platform.two_publishers import row_of

pytestmark = pytest.mark.timeout(1_200)
TEXT = (ROOT / "docs/how-to/iceberg.md").read_text()
COUNTED = [f"SELECT count(*) FROM sluice_views.{name}" for name in (*TABLES, "usage_total", "charges_total")]  # noqa: S608 - our own names
SUMS = [
    "SELECT sum(amount) FROM sluice_views.charges_total",
    "SELECT epoch_ms(start), client_id, requests, waited_ms, date FROM sluice_views.usage_day",
    "SELECT sum(decisions) FROM sluice_views.decisions_hour",
]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[RestCatalog]:
    with rest_catalog(tmp_path) as found:
        yield found


def test_duckdb_reads_a_rest_catalog_by_the_views(tmp_path: Path, catalog: RestCatalog) -> None:
    """What `rollup` and `register` write to a REST catalog, DuckDB reads there: views and queries have the rows that pyiceberg reads."""
    source = two_hours(tmp_path / "in")
    (tmp_path / "tenants.csv").write_text(TENANTS)
    (tmp_path / "prices.toml").write_text(PRICES)
    options = ("--tenants", tmp_path / "tenants.csv", "--prices", tmp_path / "prices.toml")
    for levels in ("hour", "minute,hour,day"):
        assert catalog.typed("rollup", "--in", source, "--sink", "iceberg", "--level", levels, *options).exit_code == 0
    for name, table in (("decisions", "samples"), ("groups", "dim_group")):
        assert catalog.typed("register", source, "--table", f"sluice.{name}", "--of", table).exit_code == 0
    queries = COUNTED + SUMS + ["SELECT sum(len(val)), sum(n), max(last_seq) FROM sluice.decisions"]
    queries += [query.strip() for query in re.findall(r"```sql\n(.*?)```", TEXT, re.DOTALL)]
    opened = re.search(r"^ATTACH .*AUTHORIZATION_TYPE.*$", TEXT, re.MULTILINE)
    assert opened is not None
    views = printed_views("duckdb", "--sink", "iceberg", "--at", "lake.sluice").stdout
    here = [opened[0].replace("http://HOST:8181", catalog.url), views]
    answers = run_on_duckdb("iceberg", here + [re.sub(r" (sluice\.\w)", r" lake.\1", query) for query in queries])
    with duckdb.connect() as engine:
        attach(engine, catalog.tables())
        for query, rows in zip(queries, answers[len(here) :], strict=True):
            assert in_order(rows) == in_order(engine.execute(query).fetchall()), query
    assert sum(row[0] for [row] in answers[len(here) : len(here) + len(COUNTED)]) > 0


def test_spark_and_the_local_engine_write_one_rest_catalog(tmp_path: Path, catalog: RestCatalog) -> None:
    """Spark publishes by the settings of the document, and the local engine finds nothing left to do; and the other way round."""
    source = two_hours(tmp_path / "in")
    settings = [text.replace("http://HOST:8181", catalog.url) for text in re.findall(r"--conf (spark\.sql\.catalog\S+)", TEXT)]
    conf = [text for setting in (f"spark.jars={jars('iceberg')}", *settings) for text in ("--conf", setting)]
    typed = ("rollup", "--in", source, "--sink", "iceberg", "--engine", "spark", "--catalog", "lake", "--namespace", "of_spark", *conf)
    assert "checkout" in run_on_spark_40(sluice_command("", tmp_path, *typed))
    again = catalog.typed("rollup", "--in", source, "--sink", "iceberg", "--namespace", "of_spark")
    assert (again.exit_code, again.output.splitlines()[0]) == (0, "no new file sets: the tables are up to date")
    assert catalog.typed("rollup", "--in", source, "--sink", "iceberg").exit_code == 0
    there = [text.replace("of_spark", "sluice") for text in map(str, typed)]
    assert "no new file sets" in run_on_spark_40(sluice_command("", tmp_path, *there))


def test_of_two_roll_ups_one_publishes(catalog: RestCatalog) -> None:
    """Of two that have read the same `runs` the second one fails, since the server compares snapshots."""
    first, late = (store(catalog) for _ in range(2))
    for each in (first, late):
        each.read_runs()
    first.count(row_of("first"), [])
    with pytest.raises(IncompleteError):
        late.count(row_of("late"), [])
    assert [row["build_id"] for row in store(catalog).read_runs()] == ["first"]


def test_duckdb_reads_delta_tables_by_the_views(tmp_path: Path) -> None:
    """DuckDB's own extension reads what deltalake wrote: each view has the rows that deltalake reads."""
    source, place = two_hours(tmp_path / "in"), DeltaPlace(tmp_path)
    for levels in ("hour", "minute,hour,day"):
        done = CliRunner().invoke(meter, ["rollup", "--in", str(source), *place.options, "--level", levels])
        assert done.exit_code == 0, done.output
    views = printed_views("duckdb", "--sink", "delta", "--at", tmp_path / "delta").stdout
    queries = [query for query in COUNTED + SUMS if "charges" not in query]
    answers = run_on_duckdb("delta", [views, *queries])[1:]
    with duckdb.connect() as engine:
        attach(engine, place.tables())
        for query, rows in zip(queries, answers, strict=True):
            assert in_order(rows) == in_order(engine.execute(query).fetchall()), query


def store(catalog: RestCatalog) -> BuildStore:
    return IcebergStore(catalog.open(), ("sluice",))


def in_order(rows: Any) -> list[list[str]]:
    return sorted([str(cell) for cell in row] for row in rows)
