"""The queries of docs/how-to/iceberg.md run, in DuckDB on what pyiceberg reads."""

import re
from pathlib import Path

import duckdb
import pytest

from tests.pipeline.support.build_views import attach
from tests.pipeline.support.first_hour import two_hours
from tests.pipeline.support.iceberg_catalog import FolderCatalog
from tests.support.places import ROOT

TEXT = (ROOT / "docs/how-to/iceberg.md").read_text()


def test_the_queries_of_the_document_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The program prints the tenants, the query on a view the groups that waited, and the one on registered files all decisions."""
    catalog, source = FolderCatalog(tmp_path), two_hours(tmp_path / "in")
    assert catalog.typed("rollup", "--in", source, "--sink", "iceberg").exit_code == 0
    for name, table in (("decisions", "samples"), ("groups", "dim_group")):
        assert catalog.typed("register", source, "--table", f"sluice.{name}", "--of", table).exit_code == 0
    [program] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(program.replace('"lake"', f"'lake', **{catalog.properties!r}"), {})  # noqa: S102 - the document's
    assert "(unassigned)" in capfd.readouterr().out
    of_views, of_files = re.findall(r"```sql\n(.*?)```", TEXT, re.DOTALL)
    with duckdb.connect() as engine:
        attach(engine, catalog.tables())
        assert [row[2] for row in engine.execute(of_views).fetchall()][:2] == ["checkout", "loader"]
        rows = engine.execute(of_files).fetchall()
        assert sum(row[3] for row in rows) == sum(row["n"] for row in catalog.rows("sluice.decisions"))
