"""File sets of a topic are put together in an S3 server: parts wait there for the batch with their manifest."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from pipeline.errors import IncompleteError
from pipeline.storage.paths import StorePath, path_of
from pipeline.stream.chunks import PARTS, checked_place, land_in_store
from tests.pipeline.storage.test_merged_markers import EndedEarlyError, counted, ended_early
from tests.pipeline.support.metering_topic import Message, in_order
from tests.pipeline.validation.test_validation import batches, sensors
from tests.support.metering.memory_store import MemoryStore
from tests.support.metering.metering_directory import write_directory
from tests.support.metering.object_store import Bucket

FIRST = f"{0:016d}."
"""Part of the names of the first file set."""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two file sets whose files have several parts."""
    monkeypatch.setattr("proxy.metering.topic.PART_BYTES", 5_000)
    return write_directory(tmp_path / "run", batches(file_sets=2, events=5), sensors())


def store(bucket: Bucket) -> StorePath:
    """Return an empty directory of the bucket."""
    place = path_of(f"{bucket.url}/landed")
    assert isinstance(place, StorePath)
    return place


def land(place: StorePath, messages: Iterable[Sequence[Message]]) -> list[str]:
    """Land each batch; return the names of all manifests in order."""
    return [path for batch in messages for path in land_one(place, batch)]


def land_one(place: StorePath, batch: Sequence[Message]) -> list[str]:
    return land_in_store(place, ((*checked_place(path, part), value) for path, part, value in batch))


def batched(messages: Sequence[Message], size: int) -> list[Sequence[Message]]:
    return [messages[first : first + size] for first in range(0, len(messages), size)]


def content(place: StorePath) -> dict[str, bytes]:
    return {name: (place / name).read_now() or b"" for name in place.sizes()}


def files_of(source: Path) -> dict[str, bytes]:
    return {str(path.relative_to(source)): path.read_bytes() for path in source.rglob("*.*") if path.is_file()}


@pytest.mark.parametrize("size", [1, 2, 7, 1_000])
def test_any_cut_gives_the_same_files(bucket: Bucket, source: Path, size: int) -> None:
    """However messages are divided into batches, also when all of them pass twice, the files are those that were sent. No part stays."""
    messages = list(in_order(source))
    place = store(bucket)
    manifests = sorted(name for name in files_of(source) if name.startswith("manifests/"))
    assert land(place, batched(messages, size)) == manifests
    assert content(place) == files_of(source)
    assert land(place, batched(messages, size)) == manifests
    assert content(place) == files_of(source)


def test_parts_wait_in_the_store(bucket: Bucket, source: Path) -> None:
    """Until the manifest comes there is no file but parts; a part that is missing then is named, and comes by another publication."""
    *messages, manifest = [message for message in in_order(source) if FIRST in message[0]]
    place = store(bucket)
    assert land(place, [messages[1:]]) == []
    assert {name.split("/")[0] for name in content(place)} == {PARTS}
    with pytest.raises(IncompleteError, match="arrived incomplete from the topic; publish the file set again"):
        land(place, [[manifest]])
    assert land(place, [[messages[0], manifest]]) == [manifest[0]]
    assert content(place) == {name: data for name, data in files_of(source).items() if FIRST in name}


def test_a_batch_that_was_cut_short_is_repeated(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before whichever change of the store a call ends, its batch lands when it is repeated with the same messages."""
    messages = list(in_order(source))
    cut = len(messages) // 3
    for step in range(1_000):
        place = MemoryStore().at("store/landed")
        ended = False
        for batch in (messages[:cut], messages[cut:]):
            with monkeypatch.context() as patched:
                steps = iter(range(step))
                for name in ("write_bytes", "unlink"):
                    patched.setattr(StorePath, name, counted(getattr(StorePath, name), steps, ended_early))
                try:
                    land_one(place, batch)
                except EndedEarlyError:
                    ended = True
            land_one(place, batch)
        assert content(place) == files_of(source)
        if not ended:
            break
    assert step > 10
