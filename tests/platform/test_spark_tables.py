"""Spark 4.0.1 reads the Iceberg and Delta tables of a roll-up by the printed views, and the metering files that are registered in place."""

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

from pipeline.commands.register import OF
from pipeline.rollup.published.ddl import TABLES
from sluice_cli.meter import meter
from tests.pipeline.support.build_places import DeltaPlace
from tests.pipeline.support.build_views import attach, printed_views
from tests.pipeline.support.first_hour import PRICES, TENANTS, two_hours
from tests.pipeline.support.iceberg_catalog import FolderCatalog
from tests.support.places import ROOT
from tests.support.platform.spark_40 import run_on_spark

pytestmark = pytest.mark.timeout(1_200)
TEXT = (ROOT / "docs/how-to/iceberg.md").read_text()


def test_spark_reads_what_pyiceberg_wrote(tmp_path: Path) -> None:
    """Each view has the rows that DuckDB counts, the queries of the document have its results, and maintenance deletes no metering file."""
    catalog, source = FolderCatalog(tmp_path), two_hours(tmp_path / "in")
    (tmp_path / "tenants.csv").write_text(TENANTS)
    (tmp_path / "prices.toml").write_text(PRICES)
    options = ("--tenants", tmp_path / "tenants.csv", "--prices", tmp_path / "prices.toml")
    for levels in ("hour", "minute,hour,day"):
        assert catalog.typed("rollup", "--in", source, "--sink", "iceberg", "--level", levels, *options).exit_code == 0
    for name, table in {**{name: name for name in OF}, "decisions": "samples", "groups": "dim_group"}.items():
        assert catalog.typed("register", source, "--table", f"sluice.{name}", "--of", table).exit_code == 0
    queries = [f"SELECT count(*) FROM sluice_views.{name}" for name in (*TABLES, "usage_total", "charges_total")]
    queries += [f"SELECT count(*) FROM sluice.{name}" for name in OF]
    queries += ["SELECT sum(amount) FROM sluice_views.charges_total", "SELECT sum(size(val)), sum(n), max(last_seq) FROM sluice.samples"]
    queries += [query.strip() for query in re.findall(r"```sql\n(.*?)```", TEXT, re.DOTALL)]
    views = list(filter(None, printed_views("spark", "--sink", "iceberg", "--at", "lake.sluice").stdout.split(";\n")))
    *answers, refused = run_on_spark(tmp_path, "iceberg", [*views, *queries, "CALL lake.system.expire_snapshots('sluice.samples')"])
    assert [answer for answer in answers[: len(views)] if answer] == []
    with duckdb.connect() as engine:
        attach(engine, catalog.tables())
        for query, rows in zip(queries, answers[len(views) :], strict=True):
            assert in_order(rows) == in_order(engine.execute(query.replace("size(val)", "len(val)")).fetchall()), query
    assert "GC is disabled" in refused


def test_spark_reads_what_deltalake_wrote(tmp_path: Path) -> None:
    """Each view has the rows that DuckDB counts."""
    source, place = two_hours(tmp_path / "in"), DeltaPlace(tmp_path)
    for levels in ("hour", "minute,hour,day"):
        done = CliRunner().invoke(meter, ["rollup", "--in", str(source), *place.options, "--level", levels])
        assert done.exit_code == 0, done.output
    views = list(filter(None, printed_views("spark", "--sink", "delta", "--at", tmp_path / "delta").stdout.split(";\n")))
    queries = [f"SELECT count(*) FROM sluice_views.{name}" for name in (*TABLES, "usage_total")]
    queries += [
        "SELECT unix_millis(start), client_id, requests, waited_ms, date FROM sluice_views.usage_day",
        "SELECT sum(decisions) FROM sluice_views.decisions_hour",
    ]
    answers = run_on_spark(tmp_path, "delta", [*views, *queries])
    assert [answer for answer in answers[: len(views)] if answer] == []
    with duckdb.connect() as engine:
        attach(engine, place.tables())
        for query, rows in zip(queries, answers[len(views) :], strict=True):
            assert in_order(rows) == in_order(engine.execute(query.replace("unix_millis", "epoch_ms")).fetchall()), query


def in_order(rows: Any) -> list[list[str]]:
    return sorted([str(cell) for cell in row] for row in rows)
