"""`sluice meter ddl`: other engines read the published tables by the printed statements, and the views add adjustments."""

import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner, Result

from pipeline.commands import ddl as command
from pipeline.rollup.content.columns import TIMESTAMP
from pipeline.rollup.published.ddl import DIALECTS, TABLES, VIEWS, ddl
from pipeline.rollup.published.tables import read_table
from pipeline.rollup.run import DAILY, HOURLY
from sluice_cli.meter import meter
from tests.pipeline.support.first_hour import PRICES, TENANTS, manifests, two_hours
from tests.support.metering.object_store import Bucket
from tests.support.places import ROOT

IN_FILES = pa.timestamp("ns")
ADJUSTMENTS = {"usage_adjustment", "chargeback_adjustment", "focus_adjustment"}


def typed(*arguments: object) -> Result:
    return CliRunner().invoke(meter, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All tables, with adjustments of a closed day."""
    folder = tmp_path_factory.mktemp("ddl")
    (folder / "tenants.csv").write_text(TENANTS)
    (folder / "prices.toml").write_text(PRICES)
    source = two_hours(folder / "in")
    late = manifests(source)[1]
    late.rename(folder / "late.json")
    options = ("--tenants", folder / "tenants.csv", "--prices", folder / "prices.toml", "--level", "minute,hour,day", "--engine", "local")
    typed("rollup", "--in", source, "--out", folder / "out", "--close-through", "2026-11-21", *options)
    (folder / "late.json").rename(late)
    typed("rollup", "--in", source, "--out", folder / "out", *options)
    return folder / "out"


def test_every_table_is_there_with_its_columns(tables: Path) -> None:
    """The statements have every table that a roll-up publishes, with the columns and types of its files."""
    assert TABLES.keys() == {*DAILY, *HOURLY} | ADJUSTMENTS
    assert DIALECTS == command.DIALECTS
    for path in tables.rglob("*.parquet"):
        name = path.relative_to(tables).parts[0]
        schema = pq.read_schema(path)
        types = [(field.name, TIMESTAMP if field.type == IN_FILES else field.type) for field in schema]
        assert types == TABLES[name].fields, name
        assert tuple(part.partition("=")[0] for part in path.relative_to(tables).parts[1:-1]) == TABLES[name].partitions


def printed(dialect: str, tables: Path) -> str:
    done = typed("ddl", "--for", dialect, "--at", tables)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_duckdb_reads_the_tables(tables: Path) -> None:
    """DuckDB executes the statements, has the rows of each table, and a view for usage and one for charges have the sums of both."""
    with duckdb.connect() as engine:
        engine.execute(printed("duckdb", tables))
        for name in TABLES:
            [[count]] = engine.table(f"sluice.{name}").count("*").fetchall()
            assert count == len(read_table(tables, name)), name
        for view, table in (("usage_total", "usage"), ("charges_total", "chargeback")):
            day, late = read_table(tables, f"{table}_day"), read_table(tables, f"{table}_adjustment")
            assert late
            column = "requests" if table == "usage" else "amount"
            [[total]] = engine.table(f"sluice.{view}").sum(column).fetchall()
            assert total == sum(row[column] for row in (*day, *late))
        [query] = re.findall(r"```sql\n(SELECT.*?)\n```", (ROOT / "docs/reference/roll-ups.md").read_text(), re.DOTALL)
        assert {row[0] for row in engine.execute(query).fetchall()} == {"shop", "data", "(unassigned)"}
        assert {row[0] for row in engine.execute("SELECT DISTINCT date::VARCHAR FROM sluice.usage_hour").fetchall()} == {"2026-11-21"}


def test_spark_reads_the_tables(tables: Path, spark: Any) -> None:
    """Spark executes the statements, and has the rows of each table and the sums of the views."""
    text = typed("ddl", "--for", "spark", "--at", tables, "--schema", "of_spark").stdout
    place = Path(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:"))
    had_place = place.exists()
    try:
        for statement in filter(None, text.split(";\n")):
            spark.sql(statement)
        for name in TABLES:
            assert spark.table(f"of_spark.{name}").count() == len(read_table(tables, name)), name
        [query] = re.findall(r"```sql\n(SELECT.*?)\n```", (ROOT / "docs/reference/roll-ups.md").read_text(), re.DOTALL)
        assert {row["tenant"] for row in spark.sql(query.replace("sluice.", "of_spark.")).collect()} == {"shop", "data", "(unassigned)"}
        [row] = spark.table("of_spark.charges_total").agg({"amount": "sum"}).collect()
        both = [*read_table(tables, "chargeback_day"), *read_table(tables, "chargeback_adjustment")]
        assert row[0] == sum(charge["amount"] for charge in both)
        [first] = spark.table("of_spark.usage_day").select("start", "date").distinct().collect()
        assert (str(first["start"])[:10], str(first["date"])) == ("2026-11-21", "2026-11-21")
    finally:
        spark.sql("DROP SCHEMA IF EXISTS of_spark CASCADE")
        if not had_place and place.exists():
            place.rmdir()


def test_dbt_has_the_sources(tables: Path) -> None:
    """The sources are YAML with every table and its columns."""
    [source] = yaml.safe_load(printed("dbt", tables))["sources"]
    found: dict[str, Any] = {table["name"]: table for table in source["tables"]}
    assert found.keys() == TABLES.keys() | {view.name for view in VIEWS}
    names = [column["name"] for column in found["usage_day"]["columns"]]
    assert names == [*(name for name, _ in TABLES["usage_day"].fields), "date"]


def test_trino_has_folders_last(tables: Path) -> None:
    """Each table has its partitions as its last columns, in order, as the Hive connector requires."""
    text = printed("trino", tables)
    for name, table in TABLES.items():
        created = text.split(f"CREATE TABLE IF NOT EXISTS sluice.{name} (\n")[1].split("\n) WITH")[0]
        columns = [line.split('"')[1] for line in created.splitlines()]
        assert tuple(columns[-len(table.partitions) :]) == table.partitions
        assert len(set(columns)) == len(columns)


def test_a_place_without_tables_is_one_line(tmp_path: Path) -> None:
    """A directory that is not there or has no tables, an invalid schema, and a name that DuckDB takes for a pattern: exit code 2."""
    (tmp_path / "a[b]" / "usage_day" / "date=2026-11-21").mkdir(parents=True)
    nothing = typed("ddl", "--for", "spark", "--at", tmp_path / "no")
    empty = typed("ddl", "--for", "spark", "--at", tmp_path)
    (tmp_path / "a[b]" / "usage_day" / "date=2026-11-21" / "x.parquet").touch()
    pattern = typed("ddl", "--for", "duckdb", "--at", tmp_path / "a[b]")
    schema = typed("ddl", "--for", "spark", "--at", tmp_path, "--schema", "a; DROP")
    for done, words in ((nothing, "no such directory"), (empty, "has no tables"), (pattern, "for a pattern"), (schema, "is no name")):
        assert (done.exit_code, done.stderr.count("\n"), words in done.stderr) == (2, 1, True), done.output


def test_a_url_stands_in_the_statements(tables: Path, bucket: Bucket) -> None:
    """For tables in an object store the statements have its URL, and only the tables there have files."""
    bucket.put(tables)
    text = typed("ddl", "--for", "duckdb", "--at", bucket.url).stdout
    assert text == ddl("duckdb", bucket.url, "sluice", {path.name for path in tables.iterdir()})
    assert f"read_parquet('{bucket.url}/usage_day/*/*.parquet'" in text
