"""Spark 4.0.1 with Iceberg reads the tables of a roll-up by the printed views, and the metering files that are registered in place."""

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipeline.commands.register import OF
from pipeline.rollup.published.ddl import TABLES
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
    views = list(filter(None, catalog.printed_views("spark", "--at", "lake.sluice").split(";\n")))
    *answers, refused = run_on_spark(tmp_path, [*views, *queries, "CALL lake.system.expire_snapshots('sluice.samples')"])
    assert [answer for answer in answers[: len(views)] if answer] == []
    with duckdb.connect() as engine:
        catalog.attach(engine)
        for query, rows in zip(queries, answers[len(views) :], strict=True):
            assert in_order(rows) == in_order(engine.execute(query.replace("size(val)", "len(val)")).fetchall()), query
    assert "GC is disabled" in refused


def in_order(rows: Any) -> list[list[str]]:
    return sorted([str(cell) for cell in row] for row in rows)
