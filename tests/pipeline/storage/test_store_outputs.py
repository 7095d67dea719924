"""Results in an S3 server: the files are those that a local directory gets, also after runs that ended early."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pipeline.rollup.published import report_files
from pipeline.rollup.settings import RollupResult
from pipeline.storage.paths import StoreDirectory
from sluice_cli.meter import meter
from tests.pipeline.support.first_hour import CAST, PRICES, TENANTS, manifests, two_hours
from tests.support.metering.metering_scene import write_scene
from tests.support.metering.object_store import Bucket

Files = dict[str, bytes]


def typed(*arguments: object) -> Result:
    return CliRunner().invoke(meter, [str(argument) for argument in arguments])


def rolled_up(source: Path, out: object, *options: object) -> Result:
    files = ("--tenants", source.parent / "tenants.csv", "--prices", source.parent / "prices.toml")
    return typed("rollup", "--in", source, "--out", out, "--engine", "local", *files, *options)


def tables_in(files: Files) -> Files:
    """Return the tables, without the ledger and the report, which name the directory or a time."""
    return {name: data for name, data in files.items() if name.endswith(".parquet")}


def of_directory(out: Path) -> Files:
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hours, of which the second has no manifest yet, with tenants and prices beside them."""
    folder = tmp_path_factory.mktemp("template")
    (folder / "tenants.csv").write_text(TENANTS)
    (folder / "prices.toml").write_text(PRICES)
    directory = two_hours(folder / "in")
    shutil.move(manifests(directory)[1], folder / "late.json")
    return folder


@pytest.fixture
def source(tmp_path: Path, template: Path) -> Path:
    """A copy of the two hours."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return tmp_path / "in"


def let_come(source: Path) -> None:
    """Put the manifest of the second hour back, as a late one."""
    first = manifests(source)[0]
    place = first.parent.with_name("hour=13") if first.parent.name == "hour=12" else first.parent.with_name("hour=12")
    place.mkdir(exist_ok=True)
    shutil.copy(source.parent / "late.json", place / "late.json")


STEPS: list[tuple[Callable[[Path], None], tuple[str, ...]]] = [
    (lambda _source: None, ("--level", "hour,day")),
    (lambda _source: None, ("--level", "hour")),
    (lambda _source: None, ("--close-through", "2026-11-21")),
    (let_come, ()),
]


def test_a_store_gets_what_a_directory_gets(tmp_path: Path, bucket: Bucket, source: Path) -> None:
    """After each of several runs (other levels, a closed day, late data) the bucket has the files of a local directory."""
    place = f"s3://{bucket.name}/tables"
    for change, options in STEPS:
        change(source)
        here, there = rolled_up(source, tmp_path / "out", *options), rolled_up(source, place, *options)
        assert (there.exit_code, there.stdout) == (here.exit_code, here.stdout), there.output
        found = {name.removeprefix("tables/"): data for name, data in bucket.contents().items()}
        assert tables_in(found) == tables_in(of_directory(tmp_path / "out"))
        assert found.keys() == of_directory(tmp_path / "out").keys()
        for name in ("report.html", "summary.json"):
            assert found[name] == (tmp_path / "out" / name).read_bytes()
    assert "no new file sets" in rolled_up(source, place).stdout
    assert any(name.startswith("usage_adjustment/") for name in found)


@pytest.fixture(scope="module")
def tables_of_steps(tmp_path_factory: pytest.TempPathFactory, template: Path) -> list[Files]:
    """The tables of a local directory after each step."""
    folder, found = tmp_path_factory.mktemp("here"), []
    shutil.copytree(template, folder, dirs_exist_ok=True)
    for change, options in STEPS:
        change(folder / "in")
        rolled_up(folder / "in", folder / "out", *options)
        found.append(tables_in(of_directory(folder / "out")))
    return found


def writes_that_fail(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Let the store refuse after some changes."""
    left = iter(range(after))
    for name in ("write", "remove"):
        real = getattr(StoreDirectory, name)

        def some(self: StoreDirectory, *arguments: object, real: Callable[..., None] = real) -> None:
            if next(left, None) is None:
                raise OSError("gone")
            real(self, *arguments)

        monkeypatch.setattr(StoreDirectory, name, some)


@pytest.mark.parametrize("changes", [0, 1, 3, 6, 9])
def test_a_run_that_ended_early_is_repeated(
    bucket: Bucket, source: Path, tables_of_steps: list[Files], monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    """If the store refuses after any number of changes, the next run leaves the tables of a run that was never interrupted."""
    place = f"s3://{bucket.name}/tables"
    for (change, options), tables in zip(STEPS, tables_of_steps, strict=True):
        change(source)
        with monkeypatch.context() as patched:
            writes_that_fail(patched, changes)
            rolled_up(source, place, *options)
        assert rolled_up(source, place, *options).exit_code in (0, 3)
        found = {name.removeprefix("tables/"): data for name, data in bucket.contents().items()}
        assert tables_in(found) == tables


def test_two_at_a_time(bucket: Bucket, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that finds another ledger than at its begin writes nothing, and says so with exit code 3."""
    place = f"s3://{bucket.name}/tables"
    rolled_up(source, place)
    let_come(source)
    from pipeline.duckdb import rollup

    roll_up = rollup.roll_up

    def rolled_up_and_overtaken(*arguments: Any) -> RollupResult:
        result = roll_up(*arguments)
        bucket.write("tables/ledger.json", b"{}")
        return result

    before = bucket.contents()
    monkeypatch.setattr(rollup, "roll_up", rolled_up_and_overtaken)
    done = rolled_up(source, place)
    assert (done.exit_code, "another roll-up has written" in done.stderr) == (3, True), done.output
    assert {**bucket.contents(), "tables/ledger.json": b""} == {**before, "tables/ledger.json": b""}


@pytest.fixture
def files_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the files that are read from stores from now on, by their paths below the directory."""
    names: list[str] = []
    real = StoreDirectory.open

    def opened(self: StoreDirectory, below: str) -> Any:
        names.append(below)
        return real(self, below)

    monkeypatch.setattr(StoreDirectory, "open", opened)
    return names


def tables_of(names: list[str]) -> set[str]:
    return {name.split("/")[0] for name in names if name.endswith(".parquet")}


def test_a_run_reads_what_its_summary_and_report_show(
    bucket: Bucket, source: Path, monkeypatch: pytest.MonkeyPatch, files_read: list[str]
) -> None:
    """Of earlier runs neither the hours of days that have sums of the day are read, nor what the run replaces, nor rows beyond `ROWS_MAX`.

    A run without new files reads the sums only, unless its page is printed.
    """
    place = f"s3://{bucket.name}/tables"
    hour = manifests(source)[0].parent.name
    rolled_up(source, place)
    for name, data in tables_in(bucket.contents()).items():  # a day before, whose metering files retention has removed
        bucket.write(name.replace("2026-11-21", "2026-11-20"), data)
    let_come(source)
    files_read.clear()
    rolled_up(source, place)
    names = [name for name in files_read if name.endswith(".parquet")]
    assert not {"usage_hour", "decisions_hour", "focus_day"} & tables_of(names)
    assert [name for name in names if name.startswith("usage_day")] == ["usage_day/date=2026-11-20/part-0.zstd.parquet"]
    assert {name.split("/")[2] for name in names if name.startswith("rate_series/date=2026-11-21")} == {hour}
    files_read.clear()
    rolled_up(source, place)
    assert tables_of(files_read) == {"usage_day", "decisions_day", "chargeback_day"}
    monkeypatch.setattr(report_files, "ROWS_MAX", 1)
    monkeypatch.setattr("pipeline.storage.read_ahead.FILES_AHEAD", 1)
    files_read.clear()
    assert "Rate against bound" in rolled_up(source, place, "--format", "html").stdout
    read = [name for name in files_read if name.startswith("rate_series")]
    assert read
    assert not any("2026-11-20" in name for name in read)


def test_a_file_that_another_run_removes(bucket: Bucket, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a file is gone that the summary reads, the run writes nothing, and says so with exit code 3."""
    place = f"s3://{bucket.name}/tables"
    rolled_up(source, place, "--level", "hour")
    let_come(source)
    before = bucket.contents()
    real = StoreDirectory.open

    def opened(self: StoreDirectory, below: str) -> Any:
        if below.startswith("usage_hour/"):
            raise FileNotFoundError(2, "is missing", below)
        return real(self, below)

    monkeypatch.setattr(StoreDirectory, "open", opened)
    done = rolled_up(source, place, "--level", "hour")
    assert (done.exit_code, f"{place}: another roll-up has written" in done.stderr) == (3, True), done.output
    assert bucket.contents() == before


def test_errors_name_the_url(bucket: Bucket, source: Path) -> None:
    """A place with other files, and a missing bucket, are one line with the URL; exit code 2."""
    bucket.write("other/file.txt", b"?")
    other = rolled_up(source, f"s3://{bucket.name}/other")
    missing = rolled_up(source, "s3://no-such-bucket/tables")
    for done, words in (
        (other, f"s3://{bucket.name}/other: is not empty and contains no ledger.json"),
        (missing, "s3://no-such-bucket/tables: cannot be listed"),
    ):
        assert (done.exit_code, words in done.stderr, done.stderr.count("\n")) == (2, True, 1), done.output


@pytest.mark.parametrize(
    ("command", "option", "expected"),
    [
        (["validate"], "--out", ["report.html", "verdict.json"]),
        (["whatif", "--quotas", "q.toml"], "--out", ["report.html", "summary.json"]),
        (["neighbours"], "--out", ["report.html", "summary.json"]),
        (["recommend"], "--report", ["report.html", "summary.json"]),
    ],
)
def test_reports_go_to_a_store(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, command: list[str], option: str, expected: list[str]
) -> None:
    """The files of `--out` and `--report` are those of a local directory."""
    monkeypatch.chdir(tmp_path)
    Path("q.toml").write_text('[[quota]]\nuser = "orders"\nproducer_byte_rate = 20000\n')
    write_scene(tmp_path / "in", 30, clients=CAST)
    for out in (bucket.url, tmp_path / "out"):
        assert typed(*command, "--in", "in", option, out).exit_code == 0
    assert sorted(bucket.contents()) == expected
    assert bucket.contents() == of_directory(tmp_path / "out")


def test_a_proposal_goes_to_a_store(tmp_path: Path, bucket: Bucket) -> None:
    """`recommend --out URL` writes the quota file that `whatif --quotas URL` reads."""
    write_scene(tmp_path / "in", 30, clients=CAST)
    file = f"s3://{bucket.name}/quotas.toml"
    assert typed("recommend", "--in", tmp_path / "in", "--out", file).exit_code == 0
    assert typed("whatif", "--in", tmp_path / "in", "--quotas", file).exit_code == 0
