"""Small file sets that are judged together have the verdicts that each of them has alone."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import BadInputError, IncompleteError
from pipeline.file_set import FileSet, runs_of
from pipeline.manifest import by_run, find_manifests
from pipeline.parquet.small_files import OPEN_FILE_BYTES, SmallFiles
from pipeline.validation import run_verdicts
from pipeline.validation.file_set_verdict import FileSetVerdict, judge_file_set
from tests.pipeline.validation.test_validation import batches, sensors
from tests.support.metering.metering_directory import write_directory
from tests.support.metering.metering_scene import Client, write_scene

CLIENTS = [Client("orders", "checkout", "produce", 40_000.0, 9_000, 45), Client("bob", "reports", "fetch", 20_000.0, 9_000, 45, 2)]
FILE_SETS = 10


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scene(tmp_path_factory.mktemp("scene") / "in", 6 * FILE_SETS, clients=CLIENTS, file_set_s=6)


def together(directory: Path) -> Iterator[FileSetVerdict]:
    for file_sets in runs_of(directory, find_manifests(directory)).values():
        for _, verdict in run_verdicts.judge_run(file_sets):
            yield verdict


def alone(directory: Path) -> Iterator[FileSetVerdict]:
    for manifests in by_run(find_manifests(directory)).values():
        file_sets = [FileSet(directory, manifest) for manifest in manifests]
        for number, file_set in enumerate(file_sets):
            yield judge_file_set(file_set, file_sets[:number])


def outcome(verdicts: Iterator[FileSetVerdict]) -> list[Any] | str:
    """Return all verdicts as plain data, or the error."""
    try:
        return [msgspec.to_builtins(verdict, str_keys=True) for verdict in verdicts]
    except (BadInputError, IncompleteError) as error:
        return f"{type(error).__name__}: {error}"
    except (LookupError, ValueError) as error:  # content that no proxy writes
        return repr(error)


def test_what_is_right_is_judged_together(scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right file sets are replayed in one piece, and the verdict of each is the one that it has alone, rates and conditions included."""
    pieces = []
    judge_together = run_verdicts.judge_together

    def counted(*file_sets: Any, **more: Any) -> list[FileSetVerdict] | None:
        pieces.append(verdicts := judge_together(*file_sets, **more))
        return verdicts

    monkeypatch.setattr(run_verdicts, "judge_together", counted)
    for source in (scene, write_directory(tmp_path, batches(file_sets=8, events=40), sensors(), bound_changes=[(3, 0, 1_000.0)])):
        pieces.clear()
        verdicts = outcome(together(source))
        assert [len(piece or ()) for piece in pieces] == [len(verdicts)]
        assert verdicts == outcome(alone(source))


def a_value(rows: list[dict[str, Any]], dice: random.Random) -> None:
    row = dice.choice(rows)
    name = dice.choice([name for name, value in row.items() if isinstance(value, int | float | list) and value != []])
    if isinstance(row[name], list):
        row[name][dice.randrange(len(row[name]))] += dice.choice([1, -1, 1_000])
    else:
        row[name] += dice.choice([1, -1, 1_000])


def a_row_less(rows: list[dict[str, Any]], dice: random.Random) -> None:
    del rows[dice.randrange(len(rows))]


def a_row_twice(rows: list[dict[str, Any]], dice: random.Random) -> None:
    rows.append(dice.choice(rows))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("change", [a_value, a_row_less, a_row_twice])
def test_a_change_of_a_file_is_found_as_alone(
    scene: Path, tmp_path: Path, change: Callable[[list[dict[str, Any]], random.Random], None], seed: int
) -> None:
    """Whatever changes in one file, the verdicts, the divergences with their evidence, or the error are as alone."""
    dice = random.Random(seed)
    source = Path(shutil.copytree(scene, tmp_path / "in"))
    table = dice.choice(["samples", "samples", "states", "dim_bound", "dim_group"])
    path = dice.choice(sorted((source / table).rglob("*.parquet")))
    file = pq.ParquetFile(path).read()
    rows = file.to_pylist()
    change(rows, dice)
    pq.write_table(pa.Table.from_pylist(rows, schema=file.schema), path)
    assert outcome(together(source)) == outcome(alone(source))


@pytest.mark.parametrize("name", ["first_seq", "last_seq", "first_ts_ms", "last_ts_ms", "dropped_decisions", "missing"])
def test_a_change_of_a_manifest_is_found_as_alone(scene: Path, tmp_path: Path, name: str) -> None:
    """A manifest with another number or time, or without its file set, has the same effect on the verdicts as alone."""
    source = Path(shutil.copytree(scene, tmp_path / "in"))
    path = sorted((source / "manifests").rglob("*.json"))[4]
    manifest = json.loads(path.read_text())
    if name == "missing":
        path.unlink()
    else:
        path.write_text(json.dumps(manifest | {name: manifest.get(name, 0) + 1}))
    found = outcome(together(source))
    assert found == outcome(alone(source))
    assert found != outcome(alone(scene))


def test_a_small_file_is_opened_once(scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The validator opens each small file once, equal ones together once, however many of its rules read it."""
    opened = []
    parquet_file = pq.ParquetFile

    def noted(source: Any, **options: Any) -> pq.ParquetFile:
        opened.append(bytes(source.getvalue()) if hasattr(source, "getvalue") else source.read_buffer().to_pybytes())
        source.seek(0)
        return parquet_file(source, **options)

    monkeypatch.setattr(pq, "ParquetFile", noted)
    assert len(list(together(scene))) == FILE_SETS
    tables = {path.read_bytes() for path in scene.rglob("*.parquet") if path.relative_to(scene).parts[0] in ("samples", "states")}
    assert [opened.count(content) for content in tables] == [1] * 2 * FILE_SETS
    assert len(opened) <= len(list(scene.rglob("*.parquet")))


def test_small_files_are_kept_up_to_a_number_of_bytes(scene: Path) -> None:
    """Files that were used longest ago are forgotten, so that the memory is bounded, and are read again when they are needed."""
    manifests = find_manifests(scene)
    small = SmallFiles(bytes_max=3 * OPEN_FILE_BYTES)
    file_sets = [FileSet(scene, manifest, None, small) for manifest in manifests]
    for _ in range(2):
        for file_set, plain in zip(file_sets, (FileSet(scene, manifest) for manifest in manifests), strict=True):
            for table in ("samples", "states", "dim_group"):
                assert file_set.read(table).equals(plain.read(table))
                assert small.bytes <= 3 * OPEN_FILE_BYTES
