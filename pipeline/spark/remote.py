"""Reads a metering directory on any file system that Hadoop supports. Spark reads whole files and passes them to the tasks.

Tasks read files on a local disk in place. Files elsewhere come through Spark's reader, so only Spark needs the address and the credentials.
The cost is one shuffle of each compressed file.
"""

import contextlib
import hashlib
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from metering_format.manifest import Manifest
from metering_format.places import MANIFESTS, REMOVED
from pipeline.errors import BadInputError, IncompleteError
from pipeline.file_set import FileSet, runs_of
from pipeline.manifest import in_order, manifest_of
from pipeline.removed import LEDGERS, removed_of
from pipeline.spark.failures import spark_errors
from pipeline.spark.hadoop_files import hadoop_url, lacks_jar, reason_of
from pipeline.spark.placement import packed, unpacked
from pipeline.validation.warm_up import Work

ONE_FILE_A_BATCH: Final = "1"
PARTITIONS: Final = "spark.sql.shuffle.partitions"
_HELD: Final = "position int, path string, content binary"
MAX_RECORDS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"

Judge = Callable[[Work, Mapping[str, bytes]], bytes]
"""Gets the manifests of a task, and the content of their files by path."""
Do = Callable[[bytes, Mapping[str, bytes]], bytes]
"""Gets the work of a task, and the content of its files by path."""
DoRows = Callable[[int, bytes, Mapping[str, bytes]], Iterable[pa.RecordBatch]]
"""Gets the position of a task, its work, and the content of its files by path; returns rows."""
OF_WORK: Final = ""
"""In place of a path, with the work of a task as the content."""


class RemoteRuns(NamedTuple):
    """The file sets of a directory.

    Attributes:
        root: the directory in the form in which Spark names its files, without a slash at the end.
        runs: by (proxy_id, run_id).
        hashes: SHA-256 of each manifest, by its path below the directory.
    """

    root: str
    runs: dict[tuple[str, str], list[FileSet]]
    hashes: dict[str, str]


def runs_at(spark: Any, place: str) -> RemoteRuns:
    """Return all file sets of a directory.

    Raises:
        BadInputError: the directory does not exist, or a manifest cannot be read.
        IncompleteError: the directory has no manifest.
    """
    place = hadoop_url(place)
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true").option("pathGlobFilter", "*.json")
    try:
        rows = reader.load(f"{place.rstrip('/')}/{MANIFESTS}").select("path", "content").collect()
    except spark_errors() as error:
        reason = reason_of(spark, place, str(error))
        if lacks_jar(str(error)):
            raise BadInputError(f"{place}: {reason}") from error
        raise BadInputError(f"{place}: no manifests can be read there ({reason}); is it a metering directory?") from error
    if not rows:
        raise IncompleteError(f"{place}: contains no manifest, so no file set is finished; stop or rotate the proxy")
    root = _root_of(place, rows[0]["path"])
    found = sorted((row["path"].removeprefix(f"{root}/"), bytes(row["content"])) for row in rows)
    manifests = in_order(manifest_of(data, f"{place}/{path}") for path, data in found)
    hashes = {path: hashlib.sha256(data).hexdigest() for path, data in found}
    return RemoteRuns(root, runs_of(Path(place), manifests), hashes)


def removed_at(spark: Any, place: str) -> dict[tuple[str, str], int]:
    """Return the sequence number of the last decision that retention removed, by (proxy_id, run_id)."""
    from pyspark.errors import AnalysisException

    try:
        rows = spark.read.format("binaryFile").load(f"{hadoop_url(place).rstrip('/')}/{REMOVED}/{LEDGERS}").select("content").collect()
    except AnalysisException:  # there is no ledger, so nothing was removed
        return {}
    return removed_of(bytes(row["content"]) for row in rows)


def judge_at(spark: Any, root: str, works: Mapping[int, Work], judge: Judge) -> dict[int, bytes]:
    """Return the result of `judge` for each task.

    Args:
        spark: the session.
        root: the directory, as `runs_at` returns it.
        works: the manifests of each task, which no other task gets.
        judge: runs in the tasks.

    Raises:
        IncompleteError: a file that a manifest lists is missing.
    """
    encoded = {position: packed(work) for position, work in works.items()}
    return results_at(spark, root, works, lambda work, files: judge(unpacked(work, Work), files), encoded)


def results_at(spark: Any, root: str, wanted: Mapping[int, Iterable[Manifest]], do: Do, works: Mapping[int, bytes]) -> dict[int, bytes]:
    """Return the result of `do` for each task.

    Args:
        spark: the session.
        root: the directory, as `runs_at` returns it.
        wanted: the manifests of each task, whose files it gets.
        do: runs in the tasks.
        works: its first argument for each task, which no other task gets.

    Raises:
        IncompleteError: a file that a manifest lists is missing.
    """

    def result_of(position: int, work: bytes, files: Mapping[str, bytes]) -> Iterator[pa.RecordBatch]:
        result = pa.array([do(work, files)], pa.binary())
        yield pa.RecordBatch.from_arrays([pa.array([position], pa.int32()), result], names=["position", "result"])

    with one_file_a_batch(spark) as own:
        found = rows_at(own, root, wanted, works, result_of, "position int, result binary").collect()
    return {row["position"]: bytes(row["result"]) for row in found}


def rows_at(spark: Any, root: str, wanted: Mapping[int, Iterable[Manifest]], works: Mapping[int, bytes], do: DoRows, schema: str) -> Any:
    """Return a frame of what `do` returns for each task.

    Args:
        spark: a session of `one_file_a_batch`.
        root: the directory, as `runs_at` returns it.
        wanted: the manifests of each task, whose files it gets.
        works: the work of each task, which no other task gets.
        do: runs in the tasks.
        schema: of its rows.

    Raises:
        IncompleteError: a file that a manifest lists is missing.
    """
    needs = [(position, entry.path) for position, manifests in wanted.items() for one in manifests for entry in one.files]
    held = files_and_works(spark, root, needs, works).repartition(max(len(works), 1), "position")
    return held.mapInArrow(_doing(do), schema)


def files_and_works(spark: Any, root: str, needs: Sequence[tuple[int, str]], works: Mapping[int, bytes]) -> Any:
    """Return the frame of `files_at`, and a row with the work of each task.

    Raises:
        IncompleteError: a file is missing.
    """
    rows = [(position, OF_WORK, work) for position, work in works.items()]
    return files_at(spark, root, needs).union(spark.createDataFrame(rows, _HELD))


def files_at(spark: Any, root: str, needs: Sequence[tuple[int, str]]) -> Any:
    """Return a frame of (position, path, content) with the file of each pair of a task's position and a path below `root`.

    `root` is the directory, as `runs_at` returns it.

    Raises:
        IncompleteError: a file is missing.
    """
    from pyspark.sql import functions as F

    files = binary_files(spark, root, {path for _, path in needs})
    named = files.select(F.expr(f"substring(path, {len(root) + 2})").alias("path"), "content")
    tasks = spark.createDataFrame(list(needs), "position int, path string")
    return tasks.join(named, "path").select("position", "path", "content")


@contextlib.contextmanager
def one_file_a_batch(spark: Any) -> Iterator[Any]:
    """Yield another session that passes one file at a time to a task. The settings of the caller's session stay."""
    is_of_connect = hasattr(spark, "cloneSession")
    own = spark.cloneSession() if is_of_connect else spark.newSession()  # a clone also has the artifacts of the session
    own.conf.set(MAX_RECORDS, ONE_FILE_A_BATCH)
    own.conf.set(PARTITIONS, spark.conf.get(PARTITIONS))
    try:
        yield own
    finally:
        if is_of_connect:  # classic sessions share all that would be released
            own.client.release_session()
            own.client.close()


def binary_files(spark: Any, root: str, paths: Iterable[str]) -> Any:
    """Return a frame of Spark's columns `path` and `content` of files below a directory.

    Raises:
        IncompleteError: a file is missing.
    """
    from pyspark.errors import AnalysisException

    try:
        return spark.read.format("binaryFile").load([f"{root}/{path}" for path in sorted(paths)]).select("path", "content")
    except AnalysisException as error:
        raise IncompleteError(f"{root}: {str(error).splitlines()[0]}; a manifest lists that file; restore it") from error


def _doing(do: DoRows) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: dict[int, dict[str, bytes]] = {}
        for batch in batches:
            for position, path, content in zip(*(batch.column(name).to_pylist() for name in ("position", "path", "content")), strict=True):
                held.setdefault(position, {})[path] = content
        for position, files in held.items():
            yield from do(position, files.pop(OF_WORK), files)

    return work


def _root_of(place: str, path: str) -> str:
    """Return the directory in the form in which Spark names its files, such as hdfs://HOST/metering for hdfs:///metering.

    Args:
        place: the directory as it was written.
        path: a file of its manifests, as Spark names it.

    Raises:
        BadInputError: Spark names the file otherwise.
    """
    written = "/" + place.partition("://")[2].partition("/")[2]
    directory = posixpath.normpath(written).rstrip("/")
    before, found, _ = path.partition(f"{directory}/{MANIFESTS}/")
    if not found:
        raise BadInputError(f"{place}: Spark reads {path} there, which is not below it; write the URL as Spark does")
    return before + directory
