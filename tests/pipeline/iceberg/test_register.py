"""`sluice meter register`: metering files are rows of an Iceberg table in place, each once, and only those that manifests list."""

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Transaction

from metering_format.tables import TABLES
from pipeline.commands.register import OF
from proxy.metering.compaction.compact import compact
from proxy.metering.forget import FORGOTTEN, forget_user
from tests.pipeline.support.first_hour import manifests, two_hours
from tests.pipeline.support.iceberg_catalog import FolderCatalog
from tests.support.metering.metering_scene import START_MS
from tests.support.metering.object_store import Bucket

DAY_MS = 86_400_000


@pytest.fixture
def catalog(tmp_path: Path) -> FolderCatalog:
    return FolderCatalog(tmp_path)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return two_hours(tmp_path / "in")


def rows_of(source: Path, table: str) -> list[dict[str, Any]]:
    return [row for path in sorted((source / table).rglob("*.parquet")) for row in pq.read_table(path, partitioning=None).to_pylist()]


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps({name: its for name, its in row.items() if its is not None}, sort_keys=True) for row in rows)


def lines(text: str) -> list[str]:
    return text.splitlines()


def test_each_file_is_registered_once_and_in_place(catalog: FolderCatalog, source: Path) -> None:
    """The table has the rows of all files, and refers to the files themselves. A second run and a late file set add nothing twice."""
    late = manifests(source)[1]
    late.rename(source.parent / "late.json")
    assert (
        "1 file with 44 rows of samples added, 0 files removed, 0 files kept" in catalog.typed("register", source, "--table", "a.b").stdout
    )
    (source.parent / "late.json").rename(late)
    before = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    assert (
        "1 file with 43 rows of samples added, 0 files removed, 1 file kept" in catalog.typed("register", source, "--table", "a.b").stdout
    )
    assert (
        "0 files with 0 rows of samples added, 0 files removed, 2 files kept" in catalog.typed("register", source, "--table", "a.b").stdout
    )
    table = catalog.open().load_table("a.b")
    assert {task.file.file_path for task in table.scan().plan_files()} == {
        f"file://{path}" for path in (source / "samples").rglob("*.parquet")
    }
    assert len(table.snapshots()) == 2, "a run without a change commits nothing"
    assert in_order(catalog.rows("a.b")) == in_order(rows_of(source, "samples"))
    assert {path: path.read_bytes() for path in source.rglob("*") if path.is_file()} == before
    assert table.properties["gc.enabled"] == "false", "maintenance of the table must not delete files of the proxy"


def test_every_metering_table_can_be_registered(catalog: FolderCatalog, source: Path) -> None:
    """Each table of the directory has an Iceberg table with its columns, also without files."""
    assert set(OF) == TABLES.keys()
    for table in OF:
        assert catalog.typed("register", source, "--table", f"raw.{table}", "--of", table).exit_code == 0
        assert catalog.open().load_table(f"raw.{table}").scan().to_arrow().column_names == TABLES[table].names
        assert in_order(catalog.rows(f"raw.{table}")) == in_order(rows_of(source, table))


def test_a_file_set_that_retention_removed_leaves_the_table(catalog: FolderCatalog, source: Path) -> None:
    """The rows of its files are gone after the next run, and those of another directory in the same table stay."""
    other = two_hours(source.with_name("other"))
    for place in (source, other):
        catalog.typed("register", place, "--table", "a.b")
    for entry in json.loads(manifests(source)[0].read_text())["files"]:
        (source / entry["path"]).unlink()
    manifests(source)[0].unlink()
    done = catalog.typed("register", source, "--table", "a.b", "--explain")
    assert "0 files with 0 rows of samples added, 1 file removed, 1 file kept" in done.stdout
    assert lines(done.stdout)[0].startswith(f"removed: file://{source}/samples/")
    assert in_order(catalog.rows("a.b")) == in_order([*rows_of(source, "samples"), *rows_of(other, "samples")])


def test_forgotten_names_leave_the_table(catalog: FolderCatalog, source: Path) -> None:
    """`forget` replaces a file; the next run replaces it in the table, by one commit. No metadata had a name."""
    catalog.typed("register", source, "--table", "raw.clients", "--of", "dim_client")
    files = [task.file for task in catalog.open().load_table("raw.clients").scan().plan_files()]
    assert len(files) == 2
    assert not any(file.lower_bounds or file.upper_bounds for file in files)
    forget_user(source, "orders")
    assert (
        "added, 2 files removed, 0 files kept" in catalog.typed("register", source, "--table", "raw.clients", "--of", "dim_client").stdout
    )
    assert {row["principal"] for row in catalog.rows("raw.clients")} == {FORGOTTEN, "lake", "audit"}
    assert len(catalog.rows("raw.clients")) == 6


def test_compacted_files_replace_their_parts(catalog: FolderCatalog, source: Path, tmp_path: Path) -> None:
    """`compact` merges file sets; after the next run the table has the merged file, and each row once."""
    source = one_hour(tmp_path / "hour")
    catalog.typed("register", source, "--table", "a.b")
    before = in_order(catalog.rows("a.b"))
    assert compact(source, START_MS + DAY_MS).after == 1
    assert "1 file with 87 rows of samples added, 2 files removed" in catalog.typed("register", source, "--table", "a.b").stdout
    assert in_order(catalog.rows("a.b")) == before


def one_hour(directory: Path) -> Path:
    """Return a directory whose two file sets are of one hour."""
    directory = two_hours(directory)
    moved = manifests(directory)[1]
    text = moved.read_text()
    for path in directory.rglob("hour=13/*.parquet"):
        path.rename(path.parent.with_name("hour=12") / path.name)
    moved.with_name(moved.name).unlink()
    (moved.parent.with_name("hour=12") / moved.name).write_text(text.replace("hour=13", "hour=12"))
    return directory


def change(source: Path, to: Callable[[pa.Table], pa.Table]) -> None:
    """Write the first file of samples anew, and enter its length and hash into the manifest."""
    path = manifests(source)[0]
    manifest = json.loads(path.read_text())
    entry = next(entry for entry in manifest["files"] if entry["table"] == "samples")
    table = pq.read_table(source / entry["path"], partitioning=None)
    pq.write_table(to(table), source / entry["path"])
    data = (source / entry["path"]).read_bytes()
    entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    path.write_text(json.dumps(manifest))


def with_run(table: pa.Table, run: str) -> pa.Table:
    return table.set_column(0, table.schema.field("run_id"), pa.array([run] * len(table)))


BAD: list[tuple[Callable[[Path], object], int, str]] = [
    (lambda source: next((source / "samples").rglob("*.parquet")).unlink(), 3, "is missing"),
    (lambda source: next((source / "usage").rglob("*.parquet")).write_bytes(b"PAR1"), 3, "4 bytes, manifest"),
    (lambda source: change(source, lambda table: table.drop_columns(["bound"])), 2, "has no column bound"),
    (lambda source: change(source, lambda table: table.set_column(6, "n", table.column("n").cast(pa.int64()))), 2, "column n is int64"),
    (lambda source: change(source, lambda table: table.append_column("more", table.column("n"))), 2, "column more is not one"),
    (lambda source: change(source, lambda table: table.slice(1)), 3, "43 rows, manifest"),
    (lambda source: change(source, lambda table: with_run(table, "another")), 3, "another run_id"),
]


@pytest.mark.parametrize(("spoil", "code", "words"), BAD)
def test_nothing_is_registered_if_a_file_is_wrong(
    catalog: FolderCatalog, source: Path, spoil: Callable[[Path], object], code: int, words: str
) -> None:
    """A file that is missing, cut, of another schema, run or length is one line that names it, and the table stays as it is."""
    spoil(source)
    done = catalog.typed("register", source, "--table", "a.b")
    assert (done.exit_code, len(lines(done.stderr))) == (code, 1), done.output
    assert words in done.stderr
    assert "restore it" in done.stderr or "newer one" in done.stderr or "manifest" in done.stderr
    assert not catalog.open().table_exists("a.b") or catalog.rows("a.b") == []


def test_a_file_without_a_manifest_is_not_registered(catalog: FolderCatalog, source: Path) -> None:
    """Neither a copy of a file nor the files of a file set that is not finished are in the table."""
    path = next((source / "samples").rglob("*.parquet"))
    shutil.copy(path, path.with_name("copy.parquet"))
    manifests(source)[1].unlink()
    assert "1 file with 44 rows" in catalog.typed("register", source, "--table", "a.b").stdout


def test_two_at_a_time_add_no_file_twice(catalog: FolderCatalog, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another run commits first, this one ends with exit code 3 and adds nothing; a repetition finds nothing to add."""
    commit = Transaction.commit_transaction

    def overtaken(self: Transaction) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(Transaction, "commit_transaction", commit)
            assert catalog.typed("register", source, "--table", "a.b").exit_code == 0
        return commit(self)

    catalog.typed("register", source, "--table", "a.b")
    catalog.open().load_table("a.b").delete()
    monkeypatch.setattr(Transaction, "commit_transaction", overtaken)
    done = catalog.typed("register", source, "--table", "a.b")
    monkeypatch.undo()
    assert (done.exit_code, "another program has changed the table" in done.stderr) == (3, True), done.output
    assert len(catalog.rows("a.b")) == 87
    assert "0 files with 0 rows of samples added" in catalog.typed("register", source, "--table", "a.b").stdout


def test_files_in_an_object_store_are_registered(catalog: FolderCatalog, source: Path, bucket: Bucket, s3_endpoint: str) -> None:
    """The table has the files of a bucket, and the catalog reads them with its own properties."""
    bucket.put(source)
    store = ("--property", f"s3.endpoint={s3_endpoint}", "--property", "s3.region=eu-west-1")
    assert "2 files with 87 rows" in catalog.typed("register", bucket.url, "--table", "a.b", *store).stdout
    files = [task.file.file_path for task in catalog.open().load_table("a.b").scan().plan_files()]
    assert all(path.startswith(f"{bucket.url}/samples/") for path in files)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--table", "decisions"], "has no namespace"),
        (["--table", "a..b"], "is no name"),
        (["--table", "a.b", "--property", "uri"], "is not KEY=VALUE"),
        (["--table", "a.b", "--property", "uri=sqlite:////nowhere/c.db"], "unable to open database"),
        (["--table", "a.b", "--property", "type=", "--property", "uri=ftp://me:secret@host"], "infer the catalog type from the uri: <uri>"),
        (["--table", "a.b", "--property", "type=ftp"], "not a valid CatalogType"),
    ],
)
def test_a_wrong_option_is_one_line(catalog: FolderCatalog, source: Path, arguments: list[str], words: str) -> None:
    """Each is an error of one line with exit code 2."""
    from click.testing import CliRunner

    from sluice_cli.meter import meter

    done = CliRunner().invoke(meter, ["register", str(source), *catalog.options, *arguments])
    assert (done.exit_code, len(lines(done.stderr)), words in done.stderr) == (2, 1, True), done.output


def test_another_table_and_another_name_are_refused(catalog: FolderCatalog, tmp_path: Path, source: Path) -> None:
    """A table with other columns, and a directory whose name is no path of a URL, are errors that say what to change."""
    catalog.typed("register", source, "--table", "a.b")
    other = catalog.typed("register", source, "--table", "a.b", "--of", "usage")
    strange = catalog.typed("register", two_hours(tmp_path / "a#b"), "--table", "a.b")
    for done, words in ((other, "name another table"), (strange, "rename the directory")):
        assert (done.exit_code, len(lines(done.stderr)), words in done.stderr) == (2, 1, True), done.output


def test_a_missing_pyiceberg_is_named(source: Path, catalog: FolderCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyiceberg the command names the extra and the command that installs it; no other command needs it."""
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    done = catalog.typed("register", source, "--table", "a.b")
    assert done.exit_code == 2
    assert 'the extra `iceberg`), which is not installed; run `pip install "pyiceberg' in done.stderr
