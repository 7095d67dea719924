"""The pieces of file sets for a share of the groups are judged as the whole file sets are, and have nothing besides what that takes."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from metering_format.event_kinds import SKIPPED
from metering_format.manifest import Manifest
from metering_format.tables import TABLES
from pipeline.errors import BadInputError
from pipeline.file_set import FileSet, runs_of
from pipeline.manifest import by_run, find_manifests, with_files
from pipeline.replay.findings import Kind
from pipeline.storage.held import held_directory
from pipeline.storage.paths import StorePath
from pipeline.validation.local import validate
from pipeline.validation.rules.workers.group_shares import Share
from pipeline.validation.rules.workers.pieces import moved_groups, pieces_of
from pipeline.validation.workers import Judged, SharedFigures, SharingRuns, sharing_runs, tables_compared
from tests.pipeline.workers.test_fleet_runs import change_own, count_connections, cut_for
from tests.pipeline.workers.test_shared_runs import change, change_amount
from tests.support.fleet.metering_members import Fleet, FleetStep
from tests.support.metering.metering_workers import Step, play

Pieces = dict[str, bytes]
"""The content of each file of a share, by its path."""


def workers(directory: Path) -> None:
    """Three workers, of which one has a wrong amount."""
    dice = random.Random(1)
    play(directory, [Step(at % 3, "record", dice.randrange(3), 500 + at, dice.choice((0, 10, 90))) for at in range(300)], 3)
    change(directory, change_amount)


def without_names(directory: Path) -> None:
    """The same in a trace without names of groups."""
    play(directory, [Step(at % 2, "record", at % 3, 500 + at, 40) for at in range(200)], level="trace")
    for path in (directory / "manifests").rglob("*.json"):
        path.write_text(path.read_text().replace('"names": "plain"', '"names": "none"'))
    assert {manifest.names for manifest in find_manifests(directory)} == {"none"}


def renamed(directory: Path) -> None:
    """Two workers with several file sets, in the first of which the node ids are not known."""
    dice = random.Random(2)
    kinds = ("rotate", "expire", *["record"] * 20)
    play(directory, [Step(at % 2, dice.choice(kinds), dice.randrange(3), 700 + at, dice.choice((0, 40, 900))) for at in range(300)])
    for manifests in by_run(find_manifests(directory)).values():
        assert len(manifests) > 2
        for manifest in manifests[:2]:
            for entry in (entry for entry in manifest.files if entry.table == "dim_group"):
                rows = pq.read_table(directory / entry.path, partitioning=None).to_pylist()
                unknown = [{**row, "node_id": None, "node": "b1"} for row in rows]
                pq.write_table(pa.Table.from_pylist(unknown, schema=TABLES["dim_group"]), directory / entry.path)


def cut_off(directory: Path) -> None:
    """Two members of a fleet that assume usage of several groups, with a unit too many in one of them."""
    cut_for(8_000, directory)
    change_own(directory, 1)


def too_fast(directory: Path) -> None:
    """Two members whose rate together is above the bound of one of three groups, with usage rows."""
    fleet = Fleet(directory)
    fleet.play([FleetStep(at % 2, Step(0, "record", 2 - at % 3, 1_500, 90)) for at in range(1_200)])
    fleet.stop()
    count_connections(directory)


DIRECTORIES = [workers, without_names, renamed, cut_off, too_fast]


def in_pieces(directory: Path, name: str, manifests: list[Manifest], of: int) -> list[Pieces]:
    """Return the pieces of each share."""
    found: list[Pieces] = [{} for _ in range(of)]
    for run in by_run(manifests).values():
        read = [with_files(one, [entry for entry in one.files if entry.table in tables_compared(name, one)]) for one in run]
        file_sets = [FileSet(directory, one) for one in read]
        for file_set, moved in zip(file_sets, moved_groups(file_sets, of), strict=True):
            for piece in pieces_of(file_set, of, moved):
                found[piece.share][piece.path] = piece.content
    return found


def text_of(judged: Judged) -> str:
    """Return everything of a result."""
    found = {"/".join(key): msgspec.to_builtins(findings) for key, findings in judged.findings.items()}
    return repr((found, judged.names, msgspec.json.encode(judged.figures)))


def compared_runs(directory: Path) -> tuple[str, list[Manifest]]:
    """Return the name and the manifests of the runs of a directory that are compared with each other."""
    runs = by_run(find_manifests(directory))
    ((name, keys),) = sharing_runs(runs).items()
    return name, [manifest for key in keys for manifest in runs[key]]


@pytest.mark.parametrize("of", [2, 5])
@pytest.mark.parametrize("make", DIRECTORIES)
def test_the_pieces_of_a_share_are_judged_as_the_whole_files(tmp_path: Path, make: Callable[[Path], None], of: int) -> None:
    """Findings, names and figures of each share are equal, and some share has them."""
    make(tmp_path)
    name, manifests = compared_runs(tmp_path)
    groups = 0
    for number, pieces in enumerate(in_pieces(tmp_path, name, manifests, of)):
        share = Share(number, of)
        whole = SharingRuns(name, runs_of(tmp_path, manifests)).judge(share)
        there = [with_files(one, [entry for entry in one.files if entry.path in pieces]) for one in manifests]
        held = StorePath(held_directory("hdfs://host/metering", pieces))
        assert text_of(SharingRuns(name, runs_of(held, there)).judge(share)) == text_of(whole)
        groups += whole.figures.shared.groups
    assert groups or make is without_names


@pytest.mark.parametrize("make", DIRECTORIES)
def test_each_row_is_in_the_piece_of_one_share(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """The samples and groups of the shares together are those of the files."""
    make(tmp_path)
    name, manifests = compared_runs(tmp_path)
    shares = in_pieces(tmp_path, name, manifests, 3)
    for entry in (entry for one in manifests for entry in one.files if entry.table in ("samples", "dim_group")):
        parts = [pq.read_table(pa.BufferReader(pieces[entry.path])) for pieces in shares if entry.path in pieces]
        assert sum(map(len, parts)) == entry.rows


def several_file_sets(directory: Path) -> None:
    """Two workers that forget groups and rotate."""
    kinds = {14: "rotate", 24: "expire"}
    play(directory, [Step(at % 2, kinds.get(at % 25, "record"), at % 3, 700 + at, 40) for at in range(300)])
    assert all(len(manifests) > 4 for manifests in by_run(find_manifests(directory)).values())


def remove_group(directory: Path, manifest: Manifest, ref: int, table: str) -> None:
    """Remove the rows of a group in one table of a file set."""
    (path,) = (directory / entry.path for entry in manifest.files if entry.table == table)
    rows = pq.read_table(path, partitioning=None)
    pq.write_table(rows.filter(pc.not_equal(rows.column("group_ref"), ref)), path)


def resized(directory: Path) -> None:
    """Adapt the sizes in all manifests."""
    for path in (directory / "manifests").rglob("*.json"):
        manifest = json.loads(path.read_bytes())
        for entry in manifest["files"]:
            entry["bytes"] = (directory / entry["path"]).stat().st_size
        path.write_text(json.dumps(manifest))


def without_some_groups(directory: Path) -> None:
    """The same, and each second file set lacks the name of a group; no file set of the first run names group 0."""
    several_file_sets(directory)
    for at, manifests in enumerate(by_run(find_manifests(directory)).values()):
        for number, manifest in enumerate(manifests):
            refs = FileSet(directory, manifest).read("dim_group").column("group_ref").to_pylist()
            if number % 2:
                remove_group(directory, manifest, refs[-1], "dim_group")
            if at == 0 and 0 in refs:
                remove_group(directory, manifest, 0, "dim_group")


def skipped_of(file_set: FileSet) -> pa.Table:
    """Return the events about usage that was skipped."""
    events = file_set.read("events")
    return events.filter(pc.equal(events.column("kind"), SKIPPED))


@pytest.mark.parametrize("of", [2, 5])
def test_a_row_of_a_group_without_a_name_is_in_one_piece(tmp_path: Path, of: int) -> None:
    """Such a row is in the piece of one share, whether another file set of the run names the group or none does."""
    without_some_groups(tmp_path)
    name, manifests = compared_runs(tmp_path)
    shares = in_pieces(tmp_path, name, manifests, of)
    for manifest in manifests:
        file_set = FileSet(tmp_path, manifest)
        paths = {entry.table: entry.path for entry in manifest.files}
        for table, rows in (("samples", file_set.read("samples")), ("events", skipped_of(file_set))):
            path = paths.get(table)
            parts = [pq.read_table(pa.BufferReader(pieces[path])) for pieces in shares if path in pieces]
            assert sum(map(len, parts)) == len(rows)


@pytest.mark.parametrize("of", [2, 5])
def test_a_row_of_a_group_without_a_name_counts_once(tmp_path: Path, of: int) -> None:
    """The figures of all shares of the groups add up to those of one share."""
    without_some_groups(tmp_path)
    name, manifests = compared_runs(tmp_path)
    runs = SharingRuns(name, runs_of(tmp_path, manifests))
    found = SharedFigures()
    for number in range(of):
        found.merge(runs.judge(Share(number, of)).figures)
    assert found.shared.as_dict() == runs.judge(Share()).figures.shared.as_dict()


def refused(directory: Path, table: str) -> str:
    """Remove the name of a group from a file set that has rows of it, only in `events` or also in `samples`; return the error."""
    its = (one for manifests in by_run(find_manifests(directory)).values() for one in manifests[1:])
    manifest = next(one for one in its if len(skipped_of(FileSet(directory, one))))
    ref = skipped_of(FileSet(directory, manifest)).column("group_ref")[0].as_py()
    for name in ("dim_group", *(("samples",) if table == "events" else ())):
        remove_group(directory, manifest, ref, name)
    resized(directory)
    return f"{manifest.file_set}: rows of group {ref}, which dim_group does not name; the file is incomplete"


@pytest.mark.parametrize("table", ["samples", "events"])
def test_a_row_of_a_group_without_a_name_is_refused(tmp_path: Path, table: str) -> None:
    """The validation ends with the file set and the group, also if only skipped usage of the group is there."""
    several_file_sets(tmp_path)
    with pytest.raises(BadInputError, match=f"^{refused(tmp_path, table)}$"):
        validate(tmp_path)


def test_cases_are_what_they_claim(tmp_path: Path) -> None:
    """Some groups move, usage is assumed, and a rate is too high."""
    for make in DIRECTORIES:
        (tmp_path / make.__name__).mkdir()
        make(tmp_path / make.__name__)
    runs = by_run(find_manifests(tmp_path / "renamed")).values()
    moved = [moved_groups([FileSet(tmp_path / "renamed", one) for one in run], 5) for run in runs]
    assert any(groups for of_run in moved for groups in of_run)
    assert not any(of_run[-1] for of_run in moved)
    assert sum(one.assumed for one in validate(tmp_path / "cut_off").fleets[0].usage)
    assert Kind.RATE in validate(tmp_path / "too_fast").kinds()
