"""How Spark reads the files of a URL: what is asked for and nothing else, small ones together, and none that is missing unnoticed."""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import Result

from metering_format.manifest import FileEntry, Manifest
from pipeline.manifest import Listed, find_manifests
from pipeline.spark.remote import BATCH_BYTES_MAX, TASK_BYTES_MAX, listed_files, results_at, rows_at, session_of_files, tasks_of
from pipeline.spark.validation.validate import validate_remote
from pipeline.validation.local import validate
from tests.pipeline.support.counted_rows import of_directory
from tests.pipeline.support.first_hour import CAST
from tests.support.metering.metering_scene import write_scene

Typed = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A metering directory of six file sets."""
    write_scene(tmp_path / "in", 60, clients=CAST, file_set_s=10)
    return tmp_path / "in"


def files_read(frame: Any) -> int:
    """Return the number of files that the readers of a frame, which was collected, have read."""
    nodes, number = [frame._jdf.queryExecution().executedPlan()], 0
    while nodes:
        node = nodes.pop()
        metrics, children = node.metrics(), node.children()
        number += metrics.apply("numFiles").value() if metrics.contains("numFiles") else 0
        nodes.extend(children.apply(at) for at in range(children.size()))
    return number


@contextlib.contextmanager
def tasks_counted(spark: Any) -> Iterator[list[int]]:
    """Yield a list that gets the number of tasks of each stage of a block."""
    context, counts = spark.sparkContext, list[int]()
    context.setJobGroup(group := f"counted-{id(counts)}", "")
    try:
        yield counts
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = (tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds)
    counts += [stage.numTasks for stage in stages if stage is not None]


def test_only_files_that_are_wanted_are_read(spark: Any, lake: str, folder: Path) -> None:
    """Of a folder with many files Spark reads those that a task needs. Files with other names than the proxy's are found, too."""
    paths = [str(path.relative_to(folder)) for path in sorted((folder / "samples").rglob("*.parquet"))]
    strange = f"{Path(paths[0]).parent}/it's 100%.parquet"
    shutil.copy(folder / paths[0], folder / strange)
    for wanted, number in ((paths[2:4], 2), ([paths[2], strange], 7)):
        frame = listed_files(spark, f"{lake}/in", dict.fromkeys(wanted, Listed("a file set", 1, 1)))
        found = {row["path"]: bytes(row["content"]) for row in frame.collect()}
        assert found == {path: (folder / path).read_bytes() for path in wanted}
        assert (len(paths), files_read(frame)) == (6, number)


def test_a_task_gets_the_files_of_its_works(spark: Any, lake: str, folder: Path) -> None:
    """Each work gets its own files, also those that others need, and a work without files runs."""
    manifests = find_manifests(folder)
    wanted = {0: manifests[:2], 1: manifests[1:4], 2: [], 3: manifests}

    def do(work: bytes, files: Mapping[str, bytes]) -> bytes:
        return work + b" ".join(path.encode() + b"=%d" % len(content) for path, content in sorted(files.items()))

    found = results_at(spark, f"{lake}/in", wanted, do, {at: b"%d:" % at for at in wanted})
    for at, own in wanted.items():
        entries = sorted((entry.path, entry.bytes) for one in own for entry in one.files)
        assert found[at] == b"%d:" % at + b" ".join(b"%s=%d" % (path.encode(), size) for path, size in entries)
    assert results_at(spark, f"{lake}/in", {}, do, {}) == {}


def test_a_file_that_is_missing_is_named(typed: Typed, lake: str, folder: Path, tmp_path: Path) -> None:
    """A roll-up ends with its path, whether the driver or a task needs the file, and nothing is published."""
    for table in ("dim_client", "usage"):
        copy = shutil.copytree(folder, tmp_path / f"without-{table}")
        path = max((copy / table).rglob("*.parquet"))
        path.unlink()
        done = typed("rollup", "--in", f"{lake}/{copy.name}", "--out", tmp_path / "out")
        said = [line for line in done.stderr.splitlines() if not line.endswith(" ...")]
        assert (done.exit_code, len(said)) == (3, 1), done.output
        assert f"{path.relative_to(tmp_path)}: is missing" in done.stderr
        assert not any(of_directory(tmp_path / "out").values())


def test_a_file_is_not_a_task(spark: Any, lake: str, tmp_path: Path) -> None:
    """Many small files need far fewer tasks than they are, and the verdict is that of the directory."""
    directory = write_scene(tmp_path / "in", 120, clients=CAST, file_set_s=2)
    with tasks_counted(spark) as counts:
        verdict = validate_remote(spark, f"{lake}/in")
    assert verdict.as_dict(50) == validate(directory).as_dict(50)
    assert 0 < sum(counts) < len(list(directory.rglob("*.parquet"))) / 3, counts


def test_small_files_pass_to_a_task_together(spark: Any, lake: str, folder: Path) -> None:
    """A batch has several small files, but not several that could be large; settings of the session stay."""
    manifests = find_manifests(folder)

    def batches(_: int, __: bytes, files: Mapping[str, bytes]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([pa.array([len(files)], pa.int32())], names=["number"])

    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    large = Manifest(
        **{name: getattr(manifests[0], name) for name in Manifest.__struct_fields__} | {"files": [_entry(BATCH_BYTES_MAX // 2)]}
    )
    for given, most in ((manifests, 100), ([*manifests, large], 2), ([], 1)):
        with session_of_files(spark, given) as own:
            records = int(own.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch"))
            assert records == most or records > most == 100
            [row] = rows_at(own, f"{lake}/in", {0: manifests}, {0: b""}, batches, "number int").collect()
            assert row["number"] == sum(len(one.files) for one in manifests)
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == before


def _entry(size: int) -> FileEntry:
    return FileEntry("samples", "samples/large.parquet", 1, size, "")


def test_tasks_have_equal_shares_and_a_limit() -> None:
    """Works of small files share tasks, a large one has its own, and none is left out or done twice."""
    mib = 2**20
    assert sorted(map(len, tasks_of(dict.fromkeys(range(1_000), 1_000), 4))) == [250] * 4
    assert tasks_of({0: 1, 1: 1}, 4) == [[0], [1]]
    assert tasks_of({}, 4) == []
    sizes = {at: (100 if at == 5 else 3) * mib for at in range(200)}
    tasks = tasks_of(sizes, 4)
    assert [5] in tasks
    assert sorted(at for own in tasks for at in own) == list(sizes)
    assert max(sum(sizes[at] for at in own) for own in tasks if own != [5]) <= TASK_BYTES_MAX
