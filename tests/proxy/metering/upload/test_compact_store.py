"""`sluice meter compact URL`: fewer file sets in an object store, with the same verdict, also after interruptions, uploads and `forget`."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pipeline.manifest import find_manifests, problems_of
from pipeline.storage.paths import path_of
from pipeline.validation.local import validate
from proxy.metering.commands.compact import compact_command
from proxy.metering.commands.forget import forget_command
from proxy.metering.compaction.compact import CompactResult, compact
from proxy.metering.forget import forget_user
from proxy.metering.upload.compact import compact_at
from proxy.metering.upload.file_sets import Upload
from proxy.metering.upload.state import state_path
from proxy.metering.upload.store_files import StoreError, StoreFiles
from sluice.object_store import open_object_store
from tests.proxy.metering.compaction.test_compact import LATER_MS, SCENES, buckets, scene, verdict_of
from tests.support.metering.metering_rows import PROXY_ID
from tests.support.metering.object_store import Bucket


def upload(directory: Path, bucket: Bucket) -> int:
    """Run one pass; return the number of uploaded file sets."""
    sizes: list[int] = []
    for place in sorted((directory / "manifests").glob("schema=*/proxy=*")):
        proxy_id = place.name.removeprefix("proxy=")
        assert Upload(directory, proxy_id, StoreFiles(open_object_store(bucket.url)), sizes.append).run() == []
    return len(sizes)


def compact_store(bucket: Bucket, decisions_max: int = 2_000_000) -> CompactResult:
    """Run one call, after every hour has ended."""
    return compact_at(open_object_store(bucket.url), LATER_MS, decisions_max)


def verdict_there(bucket: Bucket) -> dict[str, Any]:
    """Return the verdict on the store; each manifest that readers use has to fit its files."""
    directory = path_of(bucket.url)
    assert [line for one in find_manifests(directory) for line in problems_of(directory, one)] == []
    return verdict_of(directory)


def stale(bucket: Bucket) -> set[str]:
    """Return the files in the store that no manifest names."""
    listed = {entry.path for one in find_manifests(path_of(bucket.url)) for entry in one.files}
    return {name for name in bucket.contents() if name.endswith(".parquet")} - listed


@pytest.mark.parametrize("write", SCENES)
def test_the_verdict_stays(tmp_path: Path, bucket: Bucket, write: Callable[[Path], Path]) -> None:
    """The store has the file sets of `compact` on a disk, with the same verdict and no other file, and a second call changes nothing."""
    source = write(tmp_path / "in")
    before = verdict_of(source)
    upload(source, bucket)
    done = compact_store(bucket)
    here = compact(source, LATER_MS)
    assert done == here
    assert done.after < done.before
    assert verdict_there(bucket) == before
    assert stale(bucket) == set()
    contents = bucket.contents()
    assert compact_store(bucket).after == done.after
    assert bucket.contents() == contents


def test_an_hour_with_one_file_set_is_not_read(tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call reads the manifests of hours with several file sets only, so it costs what is new."""
    upload(scene(tmp_path / "in"), bucket)
    after = compact_store(bucket).after
    monkeypatch.setattr(StoreFiles, "get", lambda _self, path: pytest.fail(f"reads {path}"))
    assert compact_store(bucket).before == after == 2


def test_the_current_hour_and_the_limit(tmp_path: Path, bucket: Bucket) -> None:
    """The current hour stays, and no merged file set has more decisions than the limit."""
    source = scene(tmp_path / "in")
    found = find_manifests(source)
    upload(source, bucket)
    assert compact_at(open_object_store(bucket.url), found[0].first_ts_ms).after == len(found)
    compact_store(bucket, 50)
    after = find_manifests(path_of(bucket.url))
    assert all(one.last_seq - one.first_seq < 50 or not one.merged for one in after)
    assert 2 < len(after) < len(found)


def refusing(monkeypatch: pytest.MonkeyPatch, calls: Iterator[int]) -> None:
    """Let the store refuse to write and delete after some calls."""
    put, delete = StoreFiles.put, StoreFiles.delete

    def count() -> None:
        if next(calls, None) is None:
            raise StoreError("gone")

    def put_some(self: StoreFiles, path: str, data: bytes) -> None:
        count()
        put(self, path, data)

    def delete_some(self: StoreFiles, paths: Any) -> None:
        for path in paths:
            count()
            delete(self, [path])

    monkeypatch.setattr(StoreFiles, "put", put_some)
    monkeypatch.setattr(StoreFiles, "delete", delete_some)


@pytest.mark.parametrize("calls", range(0, 34, 5))
def test_an_interruption_at_any_step(tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """Whatever was written or removed when it ended, the verdict is the same, and the next call completes it and leaves no file."""
    source = buckets(tmp_path / "in")
    before = verdict_of(source)
    upload(source, bucket)
    with monkeypatch.context() as patched:
        refusing(patched, iter(range(calls)))
        try:
            compact_store(bucket)
        except StoreError:
            assert verdict_there(bucket) == before
    number = len(find_manifests(path_of(bucket.url)))
    done = compact_store(bucket)
    assert (done.before, done.after) == (number, 1)
    assert verdict_there(bucket) == before
    assert stale(bucket) == set()
    assert done.bytes_after == sum(len(data) for name, data in bucket.contents().items() if name.endswith(".parquet"))


def test_uploads_go_on(tmp_path: Path, bucket: Bucket) -> None:
    """File sets that are uploaded later are merged by a later call, and a proxy that uploads all again changes no merged file set."""
    source, late = scene(tmp_path / "in"), tmp_path / "late"
    whole = verdict_of(source)
    late.mkdir()
    for one in find_manifests(source)[-2:]:
        path = next((source / "manifests").rglob(f"{one.file_set}.json"))
        shutil.move(path, late / path.name)
        (late / f"{path.name}.place").write_text(str(path))
    upload(source, bucket)
    assert compact_store(bucket).after == 2
    for place in late.glob("*.place"):
        shutil.move(late / place.name.removesuffix(".place"), place.read_text())
    assert upload(source, bucket) == 2
    assert verdict_there(bucket) == whole
    assert compact_store(bucket).after == 2
    contents = bucket.contents()
    state_path(source, PROXY_ID).unlink()
    upload(source, bucket)
    assert verdict_there(bucket) == whole
    assert compact_store(bucket).after == 2
    assert bucket.contents() == contents


def test_merged_here_and_there(tmp_path: Path, bucket: Bucket) -> None:
    """A file set that was merged here replaces a smaller one that was merged there, with its files."""
    source = scene(tmp_path / "in")
    before = verdict_of(source)
    upload(source, bucket)
    compact_store(bucket, 50)
    compact(source, LATER_MS)
    upload(source, bucket)
    assert verdict_there(bucket) == before
    assert len(find_manifests(path_of(bucket.url))) == 2
    assert stale(bucket) == set()


def test_an_upload_at_the_same_time(tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an upload replaces the manifest that a call has just written, the parts stay, and nothing is lost."""
    source = scene(tmp_path / "in")
    before = verdict_of(source)
    upload(source, bucket)
    texts = {str(path.relative_to(source)): path.read_bytes() for path in source.rglob("*.json")}
    put = StoreFiles.put

    def put_then_upload(self: StoreFiles, path: str, data: bytes) -> None:
        put(self, path, data)
        if path in texts:
            put(self, path, texts[path])

    with monkeypatch.context() as patched:
        patched.setattr(StoreFiles, "put", put_then_upload)
        compact_store(bucket)
    assert verdict_there(bucket) == before
    assert compact_store(bucket).after == 2
    assert verdict_there(bucket) == before


def typed(command: Any, *arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_a_user_is_forgotten_in_merged_file_sets(tmp_path: Path, bucket: Bucket) -> None:
    """After `forget` here an upload replaces no merged file set by its first part; `forget` there removes the name from all files."""
    source = scene(tmp_path / "in")
    decisions = verdict_of(source)["decisions"]
    upload(source, bucket)
    compact_store(bucket)
    forget_user(source, "orders")
    upload(source, bucket)
    assert verdict_there(bucket)["decisions"] == decisions
    assert typed(forget_command, bucket.url, "--user", "orders").exit_code == 0
    compact_store(bucket)
    assert not any(b"orders" in content for content in bucket.contents().values())
    assert verdict_there(bucket)["decisions"] == decisions


def test_the_command(tmp_path: Path, bucket: Bucket) -> None:
    """It prints what `compact` of a directory prints; a damaged file is named by its URL with code 3, a place without files with code 2."""
    source = scene(tmp_path / "in")
    upload(source, bucket)
    first = find_manifests(source)[0]
    damaged = f"metering/{first.files[0].path}"
    whole = bucket.read(damaged)
    bucket.write(damaged, whole[:-1] + b"?")
    done = typed(compact_command, bucket.url)
    assert (done.exit_code, done.stderr.count("\n")) == (3, 1), done.output
    assert f"{bucket.url}/{first.files[0].path}: is missing or differs" in done.stderr
    bucket.write(damaged, whole)
    done = typed(compact_command, bucket.url)
    assert done.exit_code == 0, done.output
    assert "file sets became 2, and " in done.stdout
    nothing = typed(compact_command, f"{bucket.url}/elsewhere")
    assert (nothing.exit_code, nothing.stderr) == (
        2,
        f"sluice: {bucket.url}/elsewhere: not a metering directory; name a directory that a proxy uploads to\n",
    )
    assert validate(path_of(bucket.url)).kinds() == {}


@pytest.mark.parametrize("calls", range(8, 20, 3))
def test_a_user_is_forgotten_after_an_interruption(tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """`forget` there also removes files with the name that an interrupted merge has left."""
    source = scene(tmp_path / "in")
    upload(source, bucket)
    with monkeypatch.context() as patched:
        refusing(patched, iter(range(calls)))
        with pytest.raises(StoreError):
            compact_store(bucket)
    assert typed(forget_command, bucket.url, "--user", "orders").exit_code == 0
    assert not any(b"orders" in content for content in bucket.contents().values())
