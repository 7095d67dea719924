"""`sluice meter compact URL`: fewer file sets in an object store, with the same verdict, also after interruptions, uploads and `forget`."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pipeline.manifest import Manifest, find_manifests, problems_of
from pipeline.storage.paths import StoreDirectory, StorePath, path_of
from pipeline.validation.local import validate
from proxy.metering.commands.compact import compact_command
from proxy.metering.commands.forget import forget_command
from proxy.metering.compaction.compact import CompactResult, compact
from proxy.metering.forget import forget_user
from proxy.metering.upload.compact import compact_at
from proxy.metering.upload.file_sets import Upload
from proxy.metering.upload.forget import forget_user_at
from proxy.metering.upload.state import state_path
from proxy.metering.upload.store_files import StoreError, StoreFiles
from sluice.object_store import ObjectStore, open_object_store
from tests.proxy.metering.compaction.test_compact import LATER_MS, SCENES, buckets, scene, verdict_of
from tests.support.metering.memory_store import MemoryStore
from tests.support.metering.metering_rows import PROXY_ID
from tests.support.metering.object_store import Bucket


@pytest.fixture
def store() -> ObjectStore:
    """An empty directory of a store in memory, which fulfils what these tests ask of a store in a small part of a server's time."""
    return MemoryStore().opened("store/metering")


def upload(directory: Path, store: ObjectStore) -> int:
    """Run one pass; return the number of uploaded file sets."""
    sizes: list[int] = []
    for place in sorted((directory / "manifests").glob("schema=*/proxy=*")):
        proxy_id = place.name.removeprefix("proxy=")
        assert Upload(directory, proxy_id, StoreFiles(store), sizes.append).run() == []
    return len(sizes)


def compact_store(store: ObjectStore, decisions_max: int = 2_000_000) -> CompactResult:
    """Run one call, after every hour has ended."""
    return compact_at(store, LATER_MS, decisions_max)


def contents(store: ObjectStore) -> dict[str, bytes]:
    """Return all files by their path below the directory."""
    files = StoreFiles(store)
    return {name: files.get(name) or b"" for name in files.below("")}


def manifests_there(store: ObjectStore) -> list[Manifest]:
    """Return the manifests that readers use."""
    return find_manifests(StorePath(StoreDirectory(store)))


def verdict_there(store: ObjectStore) -> dict[str, Any]:
    """Return the verdict on the files in the store; each manifest that readers use has to fit its files."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        for name, data in contents(store).items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(data)
        assert [line for one in find_manifests(directory) for line in problems_of(directory, one)] == []
        return verdict_of(directory)


def stale(store: ObjectStore) -> set[str]:
    """Return the files in the store that no manifest names."""
    listed = {entry.path for one in manifests_there(store) for entry in one.files}
    return {name for name in contents(store) if name.endswith(".parquet")} - listed


@pytest.mark.parametrize("write", SCENES)
def test_the_verdict_stays(tmp_path: Path, bucket: Bucket, write: Callable[[Path], Path]) -> None:
    """The store has the file sets of `compact` on a disk, with the same verdict and no other file, and a second call changes nothing."""
    source, store = write(tmp_path / "in"), open_object_store(bucket.url)
    before = verdict_of(source)
    upload(source, store)
    done = compact_store(store)
    here = compact(source, LATER_MS)
    assert done == here
    assert done.after < done.before
    assert verdict_of(path_of(bucket.url)) == verdict_there(store) == before
    assert stale(store) == set()
    done_before = contents(store)
    assert compact_store(store).after == done.after
    assert contents(store) == done_before


def test_an_hour_with_one_file_set_is_not_read(tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call reads the manifests of hours with several file sets only, so it costs what is new."""
    upload(scene(tmp_path / "in"), store)
    after = compact_store(store).after
    monkeypatch.setattr(StoreFiles, "get", lambda _self, path: pytest.fail(f"reads {path}"))
    assert compact_store(store).before == after == 2


def test_the_current_hour_and_the_limit(tmp_path: Path, store: ObjectStore) -> None:
    """The current hour stays, and no merged file set has more decisions than the limit."""
    source = scene(tmp_path / "in")
    found = find_manifests(source)
    upload(source, store)
    assert compact_at(store, found[0].first_ts_ms).after == len(found)
    compact_store(store, 50)
    after = manifests_there(store)
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
def test_an_interruption_at_any_step(tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """Whatever was written or removed when it ended, the verdict is the same, and the next call completes it and leaves no file."""
    source = buckets(tmp_path / "in")
    before = verdict_of(source)
    upload(source, store)
    with monkeypatch.context() as patched:
        refusing(patched, iter(range(calls)))
        try:
            compact_store(store)
        except StoreError:
            assert verdict_there(store) == before
    number = len(manifests_there(store))
    done = compact_store(store)
    assert (done.before, done.after) == (number, 1)
    assert verdict_there(store) == before
    assert stale(store) == set()
    assert done.bytes_after == sum(len(data) for name, data in contents(store).items() if name.endswith(".parquet"))


def test_uploads_go_on(tmp_path: Path, store: ObjectStore) -> None:
    """File sets that are uploaded later are merged by a later call, and a proxy that uploads all again changes no merged file set."""
    source, late = scene(tmp_path / "in"), tmp_path / "late"
    whole = verdict_of(source)
    late.mkdir()
    for one in find_manifests(source)[-2:]:
        path = next((source / "manifests").rglob(f"{one.file_set}.json"))
        shutil.move(path, late / path.name)
        (late / f"{path.name}.place").write_text(str(path))
    upload(source, store)
    assert compact_store(store).after == 2
    for place in late.glob("*.place"):
        shutil.move(late / place.name.removesuffix(".place"), place.read_text())
    assert upload(source, store) == 2
    assert verdict_there(store) == whole
    assert compact_store(store).after == 2
    done_before = contents(store)
    state_path(source, PROXY_ID).unlink()
    upload(source, store)
    assert verdict_there(store) == whole
    assert compact_store(store).after == 2
    assert contents(store) == done_before


def test_merged_here_and_there(tmp_path: Path, store: ObjectStore) -> None:
    """A file set that was merged here replaces a smaller one that was merged there, with its files."""
    source = scene(tmp_path / "in")
    before = verdict_of(source)
    upload(source, store)
    compact_store(store, 50)
    compact(source, LATER_MS)
    upload(source, store)
    assert verdict_there(store) == before
    assert len(manifests_there(store)) == 2
    assert stale(store) == set()


def test_an_upload_at_the_same_time(tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an upload replaces the manifest that a call has just written, the parts stay, and nothing is lost."""
    source = scene(tmp_path / "in")
    before = verdict_of(source)
    upload(source, store)
    texts = {str(path.relative_to(source)): path.read_bytes() for path in source.rglob("*.json")}
    put = StoreFiles.put

    def put_then_upload(self: StoreFiles, path: str, data: bytes) -> None:
        put(self, path, data)
        if path in texts:
            put(self, path, texts[path])

    with monkeypatch.context() as patched:
        patched.setattr(StoreFiles, "put", put_then_upload)
        compact_store(store)
    assert verdict_there(store) == before
    assert compact_store(store).after == 2
    assert verdict_there(store) == before


def typed(command: Any, *arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_a_user_is_forgotten_in_merged_file_sets(tmp_path: Path, bucket: Bucket) -> None:
    """After `forget` here an upload replaces no merged file set by its first part; `forget` there removes the name from all files."""
    source, store = scene(tmp_path / "in"), open_object_store(bucket.url)
    decisions = verdict_of(source)["decisions"]
    upload(source, store)
    compact_store(store)
    forget_user(source, "orders")
    upload(source, store)
    assert verdict_there(store)["decisions"] == decisions
    assert typed(forget_command, bucket.url, "--user", "orders").exit_code == 0
    compact_store(store)
    assert not any(b"orders" in content for content in contents(store).values())
    assert verdict_there(store)["decisions"] == decisions


def test_the_command(tmp_path: Path, bucket: Bucket) -> None:
    """It prints what `compact` of a directory prints; a damaged file is named by its URL with code 3, a place without files with code 2."""
    source = scene(tmp_path / "in")
    upload(source, open_object_store(bucket.url))
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
def test_a_user_is_forgotten_after_an_interruption(tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """`forget` there also removes files with the name that an interrupted merge has left."""
    source = scene(tmp_path / "in")
    upload(source, store)
    with monkeypatch.context() as patched:
        refusing(patched, iter(range(calls)))
        with pytest.raises(StoreError):
            compact_store(store)
    forget_user_at(store, "orders")
    assert not any(b"orders" in content for content in contents(store).values())
