"""Markers and verdicts of many batches are merged, on a local disk and in a store: a call reads few files, whenever one was killed."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from metering_format.manifest import Manifest
from pipeline.errors import BadInputError, IncompleteError
from pipeline.manifest import FoundManifest, find_manifests
from pipeline.spark.stream.folder_output import FolderOutput
from pipeline.storage.paths import AnyPath, StorePath, path_of
from pipeline.stream import ledger
from pipeline.stream.judged import Judged
from pipeline.stream.result import Written
from pipeline.validation.file_set_verdict import FileSetVerdict
from tests.pipeline.validation.test_validation import batches, sensors
from tests.support.metering.memory_store import MemoryStore
from tests.support.metering.metering_directory import write_directory
from tests.support.metering.object_store import Bucket

BATCHES = 23


class EndedEarlyError(BaseException):
    """The process ends here: no code of the stream catches it."""


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of three batches, and of nine."""
    monkeypatch.setattr("pipeline.stream.batch_files.WIDTHS", (3, 9))


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Any manifest."""
    return find_manifests(write_directory(tmp_path_factory.mktemp("run"), batches(file_sets=1, events=5), sensors()))[0]


@pytest.fixture(params=["disk", "memory"])
def out(request: pytest.FixtureRequest, tmp_path: Path) -> AnyPath:
    """An empty directory."""
    if request.param == "disk":
        return tmp_path / "out"
    if request.param == "memory":
        return MemoryStore().at("store/out")
    bucket: Bucket = request.getfixturevalue("bucket")
    return path_of(bucket.url)


def of_batch(manifest: Manifest, batch_id: int) -> FoundManifest:
    own = msgspec.structs.replace(manifest, first_seq=5 * batch_id, last_seq=5 * batch_id + 4)
    return FoundManifest(f"manifests/{own.file_set}.json", own, f"{batch_id:064x}", 1_500)


def publish(out: AnyPath, manifest: Manifest, until: int = BATCHES) -> None:
    """Publish the batches that are missing up to `until`, as one call of the stream."""
    output = FolderOutput(None, out)
    output.check(out / "checkpoint")
    for batch_id in range(max(dict(output.landed()), default=-1) + 1, until):
        publish_one(output, manifest, batch_id)


def publish_one(output: FolderOutput, manifest: Manifest, batch_id: int) -> None:
    found = of_batch(manifest, batch_id)
    judged = Judged(found.manifest, FileSetVerdict(found.manifest.file_set, decisions=batch_id))
    output.publish(batch_id, [found], Written(1, divergences=batch_id % 2), [judged])


def landed(out: AnyPath) -> list[tuple[int, str, int]]:
    """Return the number, the file set and the decisions of each batch, as a new call reads them."""
    output = FolderOutput(None, out)
    output.check(out / "checkpoint")
    found = dict(output.landed())
    judged = [one for _, verdicts in output.judged_so_far() for one in verdicts]
    assert list(output.batches()) == list(found)
    assert [one.manifest for one in judged] == [manifest for file_sets in found.values() for manifest in file_sets.values()]
    assert output.divergences_of(found)[0] == len(found) // 2
    return [(batch_id, one.manifest.file_set, one.verdict.decisions) for batch_id, one in zip(found, judged, strict=True)]


def expected(manifest: Manifest, number: int = BATCHES) -> list[tuple[int, str, int]]:
    return [(batch_id, of_batch(manifest, batch_id).manifest.file_set, batch_id) for batch_id in range(number)]


def names(out: AnyPath, folder: str = ledger.BATCHES) -> list[str]:
    """Return the short names of the files, with those of unfinished writes."""
    place = out / folder
    found = place.sizes() if isinstance(place, StorePath) else os.listdir(place)
    return sorted(name.replace("0000000000", "") for name in found)


MERGED = ["00-08.json.zst", "09-17.json.zst", "18-20.json.zst", "21.json", "22.json"]


@pytest.mark.parametrize("out", ["disk", "memory", "server"], indirect=True)
def test_a_call_reads_few_files(out: AnyPath, manifest: Manifest) -> None:
    """Blocks whose batches all count have one file each, and every batch has the marker and the verdicts that it had."""
    publish(out, manifest)
    assert landed(out) == expected(manifest)
    assert names(out) == names(out, "_judged") == MERGED


def test_an_output_of_an_earlier_version_is_merged_bit_by_bit(out: AnyPath, manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file for each batch is read as it is; each new batch merges some of them."""
    with monkeypatch.context() as patched:
        patched.setattr("pipeline.stream.batch_files.BatchFiles.merge", lambda *_: False)
        publish(out, manifest)
    assert len(names(out)) == BATCHES
    assert landed(out) == expected(manifest)
    monkeypatch.setattr("pipeline.stream.batch_files.FILES_MAX", 7)
    publish(out, manifest, BATCHES + 1)
    assert names(out)[:4] == ["00-02.json.zst", "03-05.json.zst", "06.json", "07.json"]
    assert landed(out) == expected(manifest, BATCHES + 1)
    publish(out, manifest, 30)
    assert names(out) == ["00-08.json.zst", "09-17.json.zst", "18-26.json.zst", "27-29.json.zst"]
    assert landed(out) == expected(manifest, 30)


def test_large_files_stay(out: AnyPath, manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that would become too long a file are not merged."""
    monkeypatch.setattr("pipeline.stream.batch_files.BYTES_MAX", 1)
    publish(out, manifest)
    assert len(names(out)) == BATCHES
    assert landed(out) == expected(manifest)


def test_a_process_that_is_killed_at_any_step_loses_nothing(tmp_path: Path, manifest: Manifest) -> None:
    """Whichever change of the disk a SIGKILL precedes, a new call reads each batch once, and goes on to the same files."""
    publish(tmp_path / "begun", manifest, 17)
    for step in range(1_000):
        out = shutil.copytree(tmp_path / "begun", tmp_path / str(step))
        was_killed = killed_before(step, lambda out=out: publish(out, manifest, 19))  # type: ignore[misc]
        found = landed(out)
        assert found == expected(manifest, len(found))
        publish(out, manifest)
        assert landed(out) == expected(manifest)
        assert [name for name in names(out) if not name.startswith(".")] == names(out, "_judged") == MERGED
        if not was_killed:
            break
    assert step > 10


def killed_before(step: int, work: Callable[[], None]) -> bool:
    """Do `work` in a process that kills itself before it changes the disk, the first change being 0; return whether it did."""
    child = os.fork()
    if child == 0:
        with pytest.MonkeyPatch.context() as patched:
            steps = iter(range(step))
            for name in ("replace", "unlink", "write_text", "write_bytes"):
                patched.setattr(Path, name, counted(getattr(Path, name), steps, lambda: os.kill(os.getpid(), signal.SIGKILL)))
            try:
                work()
                os._exit(0)
            finally:
                os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status != 0


def counted(real: Callable[..., Any], steps: Iterator[int], end: Callable[[], None]) -> Callable[..., Any]:
    def change(*arguments: Any, **options: Any) -> Any:
        if next(steps, None) is None:
            end()
        return real(*arguments, **options)

    return change


def test_a_store_keeps_each_batch_whenever_a_call_ends(manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever request a call ends before, a new call reads each batch once, and goes on to the same files."""
    begun = MemoryStore()
    publish(begun.at("store/out"), manifest, 8)
    for step in range(1_000):
        store = MemoryStore()
        store.contents |= begun.contents
        out = store.at("store/out")
        with monkeypatch.context() as patched:
            steps = iter(range(step))
            for name in ("write_bytes", "unlink"):
                patched.setattr(StorePath, name, counted(getattr(StorePath, name), steps, ended_early))
            try:
                publish(out, manifest, 9)
                ended = False
            except EndedEarlyError:
                ended = True
        found = landed(out)
        assert found == expected(manifest, len(found))
        publish(out, manifest, 10)
        assert landed(out) == expected(manifest, 10)
        assert names(out) == names(out, "_judged") == ["00-08.json.zst", "09.json"]
        if not ended:
            break
    assert step > 10


def ended_early() -> None:
    raise EndedEarlyError


def test_a_damaged_file_is_named(out: AnyPath, manifest: Manifest) -> None:
    """A file that cannot be read ends the call with one line."""
    publish(out, manifest)
    place = out / ledger.BATCHES / "000000000000-000000000008.json.zst"
    whole = place.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"not compressed"):
        place.write_bytes(damaged)
        with pytest.raises(BadInputError, match=r"000000000008.json.zst: not markers of `sluice meter stream` \("):
            landed(out)


def test_another_stream_is_noticed_by_merged_files_too(out: AnyPath, manifest: Manifest) -> None:
    """A batch that another stream has written and merged is not written again; files that it has merged meanwhile end a call."""
    output, slow = FolderOutput(None, out), FolderOutput(None, out)
    for batch_id in range(2):
        publish_one(output, manifest, batch_id)
    slow.check(out / "checkpoint")
    files = ledger.marker_files(out)
    listed = files._files()
    publish_one(output, manifest, 2)
    assert names(out) == ["00-02.json.zst"]
    for batch_id in (1, 2):
        with pytest.raises(IncompleteError, match=f"another stream has written batch {batch_id} meanwhile"):
            publish_one(slow, manifest, batch_id)
    with pytest.raises(IncompleteError, match="another stream has merged it meanwhile"):
        list(files._lines_of(listed[0]))
