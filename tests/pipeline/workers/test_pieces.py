"""The pieces of file sets for a share of the groups are judged as the whole file sets are, and have nothing besides what that takes."""

import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metering_format.manifest import Manifest
from metering_format.tables import TABLES
from pipeline.file_set import FileSet, runs_of
from pipeline.manifest import by_run, find_manifests, with_files
from pipeline.replay.findings import Kind
from pipeline.storage.held import held_directory
from pipeline.storage.paths import StorePath
from pipeline.validation.local import validate
from pipeline.validation.rules.workers.group_histories import Share
from pipeline.validation.rules.workers.pieces import GroupShares, moved_groups, pieces_of
from pipeline.validation.workers import Judged, SharingRuns, sharing_runs, tables_compared
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
            for piece in pieces_of(file_set, GroupShares.in_file_set(file_set, of, moved)):
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
