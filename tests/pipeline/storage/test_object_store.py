"""Commands of `sluice meter` on metering files in an S3 server: the result is that of the same files on a local disk."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from sluice_cli.meter import meter
from tests.pipeline.support.first_hour import CAST, PRICES, TENANTS, two_hours
from tests.support.metering.metering_scene import write_scene
from tests.support.metering.object_store import Bucket

QUOTAS = '[[quota]]\nuser = "orders"\nproducer_byte_rate = 20000\n'


def typed(*arguments: object) -> Result:
    return CliRunner().invoke(meter, [str(argument) for argument in arguments])


@pytest.fixture
def source(tmp_path: Path, bucket: Bucket) -> Path:
    """A metering directory of six file sets, of which the bucket has a copy, with a quota file, tenants and prices."""
    local = write_scene(tmp_path / "in", 60, clients=CAST, file_set_s=10)
    bucket.put(local)
    for name, text in (("quotas.toml", QUOTAS), ("tenants.csv", TENANTS), ("prices.toml", PRICES)):
        (tmp_path / name).write_text(text)
        bucket.write(name, text.encode())
    return local


COMMANDS: Sequence[tuple[str, Callable[[str, str], list[str]]]] = [
    ("validate", lambda place, _: ["validate", "--in", place, "--format", "json"]),
    ("validate with digests", lambda place, _: ["validate", "--in", place, "--format", "html"]),
    ("whatif", lambda place, folder: ["whatif", "--in", place, "--quotas", f"{folder}/quotas.toml", "--format", "json"]),
    ("whatif, one group", lambda place, folder: ["whatif", "--in", place, "--quotas", f"{folder}/quotas.toml", "--mode", "closed"]),
    ("recommend", lambda place, _: ["recommend", "--in", place, "--format", "json"]),
    ("neighbours", lambda place, _: ["neighbours", "--in", place, "--format", "json"]),
    ("verify-manifests", lambda place, _: ["verify-manifests", place, "--explain"]),
]


@pytest.mark.parametrize(("_name", "arguments"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_a_url_gives_what_a_path_gives(bucket: Bucket, source: Path, _name: str, arguments: Callable[[str, str], list[str]]) -> None:
    """Every command that reads a directory prints the same for a URL as for a path, with the same exit code."""
    local = typed(*arguments(str(source), str(source.parent)))
    remote = typed(*arguments(bucket.url, f"s3://{bucket.name}"))
    assert remote.exit_code == local.exit_code == 0, remote.output
    assert remote.stdout.replace(bucket.url, str(source)) == local.stdout


def test_inspect_reads_a_file_of_a_url(bucket: Bucket, source: Path) -> None:
    """A manifest and a Parquet file of a bucket are printed as those on the disk are."""
    for pattern in ("manifests/**/*.json", "samples/**/*.parquet"):
        path = next(source.glob(pattern))
        remote = typed("inspect", f"{bucket.url}/{path.relative_to(source)}")
        assert remote.exit_code == 0, remote.output
        assert remote.stdout == typed("inspect", path).stdout


def tables(out: Path) -> dict[str, list[dict[str, Any]]]:
    return {str(path.relative_to(out)): pq.read_table(path, partitioning=None).to_pylist() for path in out.rglob("*.parquet")}


def test_a_roll_up_of_a_url(tmp_path: Path, bucket: Bucket, source: Path) -> None:
    """The tables of a roll-up of a bucket, with tenants and prices of it, are those of the same files on the disk."""
    for place, folder, out in ((str(source), tmp_path, "a"), (bucket.url, f"s3://{bucket.name}", "b")):
        done = typed(
            *("rollup", "--in", place, "--out", tmp_path / out, "--engine", "local", "--level", "minute,hour,day"),
            *("--tenants", f"{folder}/tenants.csv", "--prices", f"{folder}/prices.toml"),
        )
        assert done.exit_code == 0, done.output
    assert tables(tmp_path / "a")
    assert tables(tmp_path / "b") == tables(tmp_path / "a")


def test_only_new_hours_are_copied(tmp_path: Path, bucket: Bucket) -> None:
    """A second roll-up reads the files of new days only: those of a closed day may be in an archive that cannot be read."""
    local = two_hours(tmp_path / "in")
    bucket.put(local)
    assert typed("rollup", "--in", bucket.url, "--out", tmp_path / "out", "--engine", "local").exit_code == 0
    for name in bucket.contents():
        if name.endswith(".parquet"):
            bucket.write(f"metering/{name}", b"?" * len(bucket.read(f"metering/{name}")))
    again = typed("rollup", "--in", bucket.url, "--out", tmp_path / "out", "--engine", "local")
    assert (again.exit_code, "no new file sets" in again.stdout) == (0, True), again.output


def damaged(bucket: Bucket, source: Path) -> str:
    path = str(next((source / "samples").rglob("*.parquet")).relative_to(source))
    content = bytearray(bucket.read(f"metering/{path}"))
    content[len(content) // 2] ^= 1
    bucket.write(f"metering/{path}", bytes(content))
    return path


@pytest.mark.parametrize("options", [["validate", "--format", "html"], ["rollup", "--engine", "local", "--out", "out"]])
def test_a_changed_file_is_named(bucket: Bucket, source: Path, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose bytes differ from its manifest ends the command with exit code 3 and the URL of the file."""
    monkeypatch.chdir(tmp_path)
    path = damaged(bucket, source)
    done = typed(*options, "--in", bucket.url)
    assert done.exit_code == 3, done.output
    assert f"{bucket.url}/{path}: its SHA-256 is not the one in manifest" in done.stderr


@pytest.mark.parametrize("options", [["validate"], ["rollup", "--engine", "local", "--out", "out"], ["recommend"]])
def test_a_missing_file_is_named(bucket: Bucket, source: Path, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that a manifest lists and the bucket does not have ends the command with exit code 3 and the URL of the file."""
    monkeypatch.chdir(tmp_path)
    path = str(next((source / "samples").rglob("*.parquet")).relative_to(source))
    bucket.files.delete_file(f"{bucket.name}/metering/{path}")
    done = typed(*options, "--in", bucket.url)
    assert (done.exit_code, len(done.stderr.splitlines())) == (3, 1), done.output
    assert f"{bucket.url}/{path}: is missing" in done.stderr


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://no-such-bucket/metering", "s3://no-such-bucket/metering: cannot be listed (When listing objects"),
        ("s3://{bucket}/nothing-here", "s3://{bucket}/nothing-here: no such directory; name a directory"),
        ("ftp://host/metering", "ftp://host/metering: not a URL of an object store; write s3://BUCKET/PATH"),
        ("s3:///metering", "not a URL of an object store; write s3://BUCKET/PATH"),
        ("s3://key:secret@{bucket}/nothing?region=eu-west-1", "s3://{bucket}/nothing: "),
    ],
)
@pytest.mark.parametrize("command", [["validate", "--in"], ["verify-manifests"]])
def test_a_url_that_cannot_be_read_is_one_line(bucket: Bucket, command: list[str], url: str, expected: str) -> None:
    """A bucket or directory that is not there, and an invalid URL, are one line with the URL, without the credentials in it."""
    done = typed(*command, url.format(bucket=bucket.name))
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1), done.output
    assert expected.format(bucket=bucket.name) in done.stderr
    assert "secret" not in done.output


def test_a_store_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch, bucket: Bucket, source: Path) -> None:
    """An endpoint where nobody listens is one line with the remedy."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    done = typed("validate", "--in", bucket.url)
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1), done.output
    assert "check the URL, the credentials and the endpoint" in done.stderr
