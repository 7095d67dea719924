"""The state of a stream of a directory, on a local disk and in an S3 server: a batch reads only what is new."""

import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering_format.manifest import Manifest, manifest_text
from metering_format.places import LEDGER_KIND, REMOVED, ledger_name
from pipeline.completeness import Completeness, completeness_of
from pipeline.errors import BadInputError, IncompleteError
from pipeline.manifest import FoundManifest, RunKey, read_found, read_manifest
from pipeline.removed import removed_runs
from pipeline.storage.paths import AnyPath, StorePath, path_of
from pipeline.stream import ledger
from pipeline.stream.checkpoint import begin_query, planned_of, put_planned, query_of
from pipeline.stream.history import History
from pipeline.stream.judged import Judged, judged_so_far, put_judged
from pipeline.stream.listing import Listed, Listing
from pipeline.stream.result import Written
from pipeline.stream.spooled import SpooledVerdicts
from pipeline.validation.file_set_verdict import FileSetVerdict
from tests.pipeline.validation.test_validation import batches, rewrite, sensors
from tests.support.metering.metering_directory import write_directory
from tests.support.metering.object_store import Bucket


@pytest.fixture(params=["disk", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> AnyPath:
    """An empty directory."""
    if request.param == "disk":
        return tmp_path / "place"
    bucket: Bucket = request.getfixturevalue("bucket")
    return path_of(bucket.url)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Four file sets of one run."""
    return write_directory(tmp_path / "run", batches(file_sets=4, events=5), sensors())


def paths_of(there: Listed) -> list[str]:
    return sorted(there.sizes)


def at(source: Path, number: int) -> Path:
    return sorted((source / "manifests").rglob("*.json"))[number]


def numbers(manifests: Iterable[Manifest]) -> list[int]:
    return [manifest.first_seq for manifest in manifests]


def history_of(source: Path, *landed: int) -> tuple[History, Listed]:
    """Return a history in which some of the file sets have landed, each in a batch of its own."""
    for path in (source / "manifests").rglob("*.json"):
        path.write_bytes(manifest_text(read_manifest(path)))  # the form that a proxy writes
    there = Listing(source).now()
    file_sets = {number: {path: there.read([path])[0].manifest for path in [paths_of(there)[number]]} for number in landed}
    return History(there, file_sets.items()), there


def test_a_batch_counts_when_it_has_its_marker(place: AnyPath, source: Path) -> None:
    """Query, plan, verdicts and markers are what they were when another call reads them; a new output belongs to its checkpoint."""
    out, checkpoint = place / "out", place / "checkpoint"
    assert (query_of(checkpoint), planned_of(checkpoint, 0), dict(ledger.read_markers(out))) == (None, (), {})
    query = begin_query(checkpoint, ledger.name_of(out))
    ledger.check_checkpoint(out, checkpoint)
    ledger.claim(out, query)
    found = Listing(source).now().read(paths_of(Listing(source).now())[:2])
    put_planned(checkpoint, 0, [one.path for one in found])
    assert (begin_query(checkpoint, "another"), planned_of(checkpoint, 0)) == (query, tuple(one.path for one in found))
    assert planned_of(checkpoint, 1) == ()
    put_judged(out, 0, [Judged(one.manifest, FileSetVerdict(one.manifest.file_set)) for one in found])
    assert dict(ledger.read_markers(out)) == {}
    ledger.put_marker(out, 0, found, Written(2, divergences=3))
    markers = dict(ledger.read_markers(out))
    assert {0: {one.path: one.manifest for one in found}} == {number: marker.file_sets() for number, marker in markers.items()}
    assert (markers[0].divergences, markers[0].findings, ledger.reported_before(out)) == (3, [], None)
    assert {0: [one.manifest for one in found]} == {number: [one.manifest for one in judged] for number, judged in judged_so_far(out)}
    ledger.put_reported(out, 3)
    assert ledger.reported_before(out) == 3
    with pytest.raises(BadInputError, match="written with another checkpoint"):
        ledger.check_checkpoint(out, place / "other")
    with pytest.raises(BadInputError, match="has been used for another --out"):
        ledger.check_checkpoint(place / "more", checkpoint)


def test_a_store_is_listed_anew(bucket: Bucket, source: Path) -> None:
    """Only manifests are listed, and those that came since are found."""
    directory = path_of(bucket.url)
    listing = Listing(directory)
    assert listing.now().sizes == {}
    bucket.put(source)
    there = listing.now()
    assert there.sizes == Listing(source).now().sizes
    assert isinstance(there.directory, StorePath)
    assert [one.sha256 for one in there.read(paths_of(there))] == [one.sha256 for one in Listing(source).now().read(paths_of(there))]
    assert sorted(there.new) == paths_of(there)
    bucket.write("metering/manifests/late.json", b"1")
    assert sorted(listing.now().new) == ["manifests/late.json"]
    bucket.files.delete_file(f"{bucket.name}/metering/manifests/late.json")
    there = listing.now()
    assert (len(there.sizes), len(there.new)) == (4, 0)


def settle(source: Path) -> None:
    """Let all folders be so old that their time tells whether they have changed."""
    for place in (source / "manifests", *(path for path in (source / "manifests").rglob("*") if path.is_dir())):
        os.utime(place, (1_700_000_000, 1_700_000_000))


def test_only_directories_that_changed_are_read(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local directory is read again when its time is another one, or so young that it may change within the same tick."""
    read: list[str] = []
    scan, hour, last = os.scandir, at(source, 0).parent, at(source, 3)
    monkeypatch.setattr("pipeline.stream.listing.os.scandir", lambda place: read.append(str(place)) or scan(place))
    listing = Listing(source)
    first = dict(listing.now().sizes)
    assert len(first) == 4
    listing.now()
    assert read.count(str(hour)) == 2
    settle(source)
    assert listing.now().sizes == first
    read.clear()
    there = listing.now()
    assert (there.sizes, list(there.new), read) == (first, [], [])
    last.unlink()
    assert len(listing.now().sizes) == 3
    assert read == [str(hour)]


def test_a_manifest_that_is_removed_meanwhile_hides_no_other_one(source: Path) -> None:
    """A name without a file, as one that retention removes while its folder is read, is left out alone."""
    (at(source, 0).parent / "gone.json").symlink_to("nowhere")
    assert len(Listing(source).now().sizes) == 4


FOLDERS = ("", "a", "a/b", "a/c", "d")
STEPS = st.tuples(st.sampled_from(("put", "put", "put", "remove", "remove folder")), st.sampled_from(FOLDERS), st.integers(0, 2))


@given(calls=st.lists(st.lists(STEPS, max_size=4), max_size=8))
def test_a_listing_has_what_is_there(calls: list[list[tuple[str, str, int]]]) -> None:
    """Whatever came, was written anew or was removed since the last call, with its folder or without: new is what was not there before."""
    with tempfile.TemporaryDirectory() as place:
        root, times, known = Path(place, "manifests"), itertools.count(1_700_000_000), set[str]()
        listing = Listing(Path(place))
        for steps in calls:
            for step, folder, number in steps:
                _change(root / folder, step, number)
            for path in [root, *root.rglob("*")]:
                if path.is_dir() and path.stat().st_mtime > 1_750_000_000:
                    os.utime(path, (now := next(times), now))
            there, files = listing.now(), list(root.rglob("*.json"))
            assert there.sizes == {str(path.relative_to(place)): path.stat().st_size for path in files}
            assert sorted(there.new) == sorted(there.sizes.keys() - known)
            known = set(there.sizes)


def _change(folder: Path, step: str, number: int) -> None:
    path = folder / f"{number}.json"
    if step == "put":
        folder.mkdir(parents=True, exist_ok=True)
        length = path.stat().st_size + 1 if path.exists() else 1
        path.unlink(missing_ok=True)
        path.write_bytes(b"." * length)
    elif step == "remove":
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_batch_reads_the_ledgers_of_its_proxies(source: Path) -> None:
    """What retention removed of other proxies is not read."""
    (source / "removed").mkdir()
    for number, proxy_id in enumerate(("a", "b")):
        ledger_of = {"kind": LEDGER_KIND, "proxy_id": proxy_id, "runs": [{"run_id": "1", "last_seq": number}]}
        (source / REMOVED / ledger_name(proxy_id)).write_text(json.dumps(ledger_of))
    assert removed_runs(source) == {("a", "1"): 0, ("b", "1"): 1}
    assert removed_runs(source, {"b"}) == {("b", "1"): 1}


def test_a_batch_reads_only_its_own_manifests(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier file sets that can affect a new one come from memory, and none of their manifests is read."""
    history, there = history_of(source, 0, 1, 2)
    read: list[str] = []

    def reading(directory: AnyPath, path: AnyPath) -> FoundManifest:
        read.append(str(path))
        return read_found(directory, path)

    monkeypatch.setattr("pipeline.stream.listing.read_found", reading)
    fresh = history.add(there.read(paths_of(there)[3:]))
    history.look_ahead(fresh, there, {})
    assert [numbers(work) for work in history.works(fresh, there)] == [[0, 5, 10, 15]]
    assert read == [str(source / paths_of(there)[3])]
    assert history.new_losses({(fresh[0].proxy_id, fresh[0].run_id)}, {}) == []


def test_few_manifests_stay_whole(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A landed file set stays without its files. Its manifest is read again when it affects another one, and is then what it was."""
    monkeypatch.setattr("pipeline.stream.history.WHOLE_MAX", 2)
    history, there = history_of(source, 0, 1, 2)
    assert [one.files for one in history.present(there)] == [(), (), ()]
    assert len({id(one.settings) for one in history.present(there)}) == 1
    fresh = history.add(there.read(paths_of(there)[3:]))
    assert history.works(fresh, there) == [tuple(one.manifest for one in there.read(paths_of(there)))]
    assert history.whole(history.present(there)[:1], there) == [there.read(paths_of(there)[:1])[0].manifest]


def test_verdicts_are_read_one_run_at_a_time(source: Path) -> None:
    """A run has its file sets in decision order, each with its last verdict."""
    found = Listing(source).now().read(paths_of(Listing(source).now()))
    file_sets = [one.manifest for one in found] + [msgspec.structs.replace(found[0].manifest, run_id="20250101T000000Z-00000001")]
    verdicts = [FileSetVerdict(one.file_set, number, unjudged=number % 2) for number, one in enumerate(file_sets)]
    with SpooledVerdicts() as spooled:
        for one in reversed(list(map(Judged, file_sets, verdicts))):
            spooled.add([one])
        assert [spooled.is_unjudged(one) for one in file_sets] == [False, True, False, True, False]
        spooled.replace(file_sets[1], verdicts[0])
        assert not spooled.is_unjudged(file_sets[1])
        runs = {key: list(run) for key, run in spooled.runs()}
        proxy_id, run_id = file_sets[0].proxy_id, file_sets[0].run_id
        found_runs = {key: ([one.first_seq for one, _ in run], [verdict for _, verdict in run]) for key, run in runs.items()}
        assert found_runs == {
            (proxy_id, run_id): ([0, 5, 10, 15], [verdicts[0], verdicts[0], *verdicts[2:4]]),
            (proxy_id, file_sets[-1].run_id): ([0], verdicts[4:]),
        }
        assert spooled.manifests().keys() == runs.keys()
        assert (file_sets[0] in spooled, msgspec.structs.replace(file_sets[0], part=1) in spooled) == (True, False)


def test_a_file_set_that_lands_later_can_affect_one_before(source: Path) -> None:
    """The file set before a new one is read if it is there; it has not landed with that, and then lands once."""
    history, there = history_of(source, 0)
    third = history.add(there.read(paths_of(there)[2:3]))
    waiting = {Path(path).stem: path for path in paths_of(there)[1:2]}
    history.look_ahead(third, there, waiting)
    assert [numbers(work) for work in history.works(third, there)] == [[0, 5, 10]]
    key = (third[0].proxy_id, third[0].run_id)
    assert "decisions 5 to 9 are in no manifest" in history.new_losses([key], {})[0]
    assert (paths_of(there)[1] in history, numbers(history.present(there))) == (False, [0, 10])
    assert numbers(history.add(there.read(paths_of(there)[1:2]))) == [5]
    assert history.new_losses([key], {}) == []


@pytest.mark.parametrize("removed_seq", [None, 4], ids=["nothing-removed", "removed"])
@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_losses_of_a_run_are_those_of_all_its_file_sets(source: Path, order: tuple[int, ...], removed_seq: int | None) -> None:
    """In whatever order file sets come, each batch names those losses of all that have landed that were not known before."""
    rewrite(at(source, 1), dropped_decisions=2)
    rewrite(at(source, 2), truncated=True)
    history, there = history_of(source)
    before: list[str] = []
    for number in order:
        fresh = history.add(there.read(paths_of(there)[number : number + 1]))
        history.look_ahead(fresh, there, {Path(path).stem: path for path in paths_of(there) if path not in history})
        key, landed = (fresh[0].proxy_id, fresh[0].run_id), history.present(there)
        removed = {} if removed_seq is None else {key: removed_seq}
        now = completeness_of({key: landed}, removed).incomplete
        assert history.new_losses([key], removed) == [line for line in now if line not in before]
        before = now


def test_losses_read_nothing_of_the_earlier_file_sets(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new file set, and a late one, are compared with those beside it, and not the whole run once more."""
    history, there = history_of(source, 0, 1, 3)
    compared: list[list[int]] = []

    def comparing(runs: Mapping[RunKey, Sequence[Manifest]], removed: Mapping[RunKey, int]) -> Completeness:
        compared.extend(numbers(manifests) for manifests in runs.values())
        return completeness_of(runs, removed)

    monkeypatch.setattr("pipeline.stream.history.completeness_of", comparing)
    key = (history.present(there)[0].proxy_id, history.present(there)[0].run_id)
    assert len(history.new_losses([key], {})) == 1
    assert [0] in compared
    compared.clear()
    history.add(there.read(paths_of(there)[2:3]))
    assert history.new_losses([key], {}) == []
    assert compared == [[5], [5, 10], [10], [10, 15]]


def test_a_merged_file_set_is_compared_in_place_of_its_parts(source: Path) -> None:
    """Behind a stream, `compact` merges two file sets that have landed: the run has one of them, and no loss more."""
    rewrite(at(source, 2), dropped_decisions=2)
    history, there = history_of(source, 0, 1, 2)
    key = (history.present(there)[0].proxy_id, history.present(there)[0].run_id)
    assert len(history.new_losses([key], {})) == 1
    rewrite(at(source, 0), merged=[{"file_set": at(source, number).stem, "manifests": []} for number in (0, 1)], last_seq=9)
    at(source, 1).unlink()
    there = Listing(source).now()
    assert numbers(history.present(there)) == [0, 10]
    history.add(there.read(paths_of(there)[2:]))
    assert history.new_losses([key], {}) == []
    assert numbers(history.works(history.present(there), there)[-1]) == [0, 10, 15]


def test_a_manifest_in_two_places_lands_once(source: Path) -> None:
    """A copy has no rows of its own; a different manifest of the same name is an error."""
    history, there = history_of(source, 0, 1, 2)
    copy = source / "manifests" / "copy.json"
    copy.write_bytes(at(source, 3).read_bytes())
    there = Listing(source).now()
    assert numbers(history.add(there.read(paths_of(there)[-2:]))) == [15]
    rewrite(copy, dropped_decisions=1)
    with pytest.raises(BadInputError, match="has another file set of the same name"):
        history.add(Listing(source).now().read(["manifests/copy.json"]))


def test_a_manifest_that_was_written_anew_is_read_again(source: Path) -> None:
    """After `forget` the manifest that counts is the one that is there; those that retention removed affect nothing."""
    history, _ = history_of(source, 0, 1, 2)
    rewrite(at(source, 0), replaces=["0" * 64])
    at(source, 1).unlink()
    there = Listing(source).now()
    assert [one.replaces for one in history.present(there)] == [("0" * 64,), ()]
    assert numbers(history.works(history.present(there), there)[-1]) == [0, 10]


def test_what_was_merged_behind_a_stream_is_named(source: Path) -> None:
    """A file set that was merged with one that had landed, before it landed itself, ends the stream."""
    history, _ = history_of(source, 0)
    rewrite(at(source, 0), merged=[{"file_set": at(source, number).stem, "manifests": []} for number in (0, 1)], last_seq=9)
    at(source, 1).unlink()
    with pytest.raises(IncompleteError, match=r"was merged with .*, which has not landed"):
        history.present(Listing(source).now())
