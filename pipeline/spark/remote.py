"""Reads a metering directory on any file system that Hadoop supports. Spark reads whole files and passes them to the tasks.

Tasks read files on a local disk in place. Files elsewhere come through Spark's reader, so only Spark needs the address and the credentials.
The cost is one shuffle of each compressed file. Small files share listings, tasks and batches: each by itself would cost far more than its
content.
"""

import contextlib
import hashlib
import heapq
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from metering_format.manifest import Manifest
from metering_format.places import MANIFESTS, REMOVED
from pipeline.errors import BadInputError, IncompleteError
from pipeline.file_set import FileSet, runs_of
from pipeline.manifest import Listed, in_order, listed_in, manifest_of
from pipeline.removed import LEDGERS, removed_of
from pipeline.spark.failures import spark_errors
from pipeline.spark.hadoop_files import hadoop_url, lacks_jar, reason_of
from pipeline.spark.parallelism import FOR_MANY_FILES, TASKS_PER_CORE, parallelism_of
from pipeline.spark.placement import in_tasks

BATCH_BYTES_MAX: Final = 8 * 2**20
"""Highest number of bytes of the files that pass to a task together, if they are several."""
TASK_BYTES_MAX: Final = 16 * 2**20
"""Highest number of bytes that a task holds for several works. A work of more has a task of its own."""
FILE_BYTES: Final = 16 * 2**10
"""What a file counts besides its content where works are divided among tasks: to open it takes as long as to read so much."""
PARTITIONS: Final = "spark.sql.shuffle.partitions"
HELD: Final = "position int, path string, content binary"
"""Columns of the files that tasks get: the number of the task, the path below the directory, and the content."""
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9._=-]+")
MAX_RECORDS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"

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
    try:
        with session_of_files(spark) as own:  # there is a manifest for each file set
            reader = own.read.format("binaryFile").option("recursiveFileLookup", "true").option("pathGlobFilter", "*.json")
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

    wanted = {position: tuple(manifests) for position, manifests in wanted.items()}
    with session_of_files(spark, (one for manifests in wanted.values() for one in manifests)) as own:
        found = rows_at(own, root, wanted, works, result_of, "position int, result binary").collect()
    return {row["position"]: bytes(row["result"]) for row in found}


class _Share(msgspec.Struct, frozen=True):
    """A work of a task, and the files that it needs, by path."""

    position: int
    work: bytes
    files: dict[str, Listed]


def rows_at(spark: Any, root: str, wanted: Mapping[int, Iterable[Manifest]], works: Mapping[int, bytes], do: DoRows, schema: str) -> Any:
    """Return a frame of what `do` returns for each work.

    Args:
        spark: a session of `session_of_files`.
        root: the directory, as `runs_at` returns it.
        wanted: the manifests of each work, whose files it gets.
        works: its second argument for each work. Small works share a task.
        do: runs in the tasks.
        schema: of its rows.

    Raises:
        IncompleteError: a file that a manifest lists is missing, or has another size. A task raises it, if its folder is there.
    """
    if not works:
        return spark.createDataFrame([], schema)
    of_works = {position: tuple(manifests) for position, manifests in wanted.items()}
    entries = {position: [entry for one in manifests for entry in one.files] for position, manifests in of_works.items()}
    sizes = {position: sum(FILE_BYTES + entry.bytes for entry in entries[position]) for position in works}
    tasks = tasks_of(sizes, TASKS_PER_CORE * parallelism_of(spark))
    shares = [[_Share(at, works[at], listed_in(of_works[at])) for at in positions] for positions in tasks]
    needs = [(task, path) for task, own in enumerate(shares) for path in sorted({path for share in own for path in share.files})]
    largest = max((entry.bytes for own in entries.values() for entry in own), default=0)
    listed = {path: one for own in shares for share in own for path, one in share.files.items()}
    held = files_and_works(spark, root, needs, listed, {task: msgspec.msgpack.encode(own) for task, own in enumerate(shares)}, largest)
    return in_tasks(held, len(tasks), "position").mapInArrow(_doing(root, do), schema)


def tasks_of(sizes: Mapping[int, int], count: int) -> list[list[int]]:
    """Divide works among tasks of equal size, as far as possible; return the positions of each task's works.

    Args:
        sizes: number of bytes that each work needs, by its position.
        count: number of tasks. There are more if tasks would get more than TASK_BYTES_MAX on average, and fewer if there are fewer works.
    """
    number = min(len(sizes), max(count, -(-sum(sizes.values()) // TASK_BYTES_MAX)))
    tasks: list[list[int]] = [[] for _ in range(number)]
    held = [(0, task) for task in range(number)]
    for position in sorted(sizes, key=lambda position: -sizes[position]):
        size, task = held[0]
        tasks[task].append(position)
        heapq.heapreplace(held, (size + sizes[position], task))
    return tasks


def files_and_works(
    spark: Any, root: str, needs: Sequence[tuple[int, str]], listed: Mapping[str, Listed], works: Mapping[int, bytes], largest: int
) -> Any:
    """Return a frame of (position, path, content): the file of each pair of a task's position and a path below `root`, and the task's work.

    A file that is missing has no row, so the task has to compare.

    Args:
        spark: the session.
        root: the directory, as `runs_at` returns it.
        needs: the pairs.
        listed: the files of all tasks, by path.
        works: the work of each task, whose row has the path OF_WORK.
        largest: number of bytes of the largest file.

    Raises:
        IncompleteError: a folder is missing.
    """
    from pyspark.sql import functions as F

    tasks = spark.createDataFrame(list(needs), "position int, path string")
    if largest <= BATCH_BYTES_MAX:  # else a join by shuffle and sort, which holds fewer copies of a content at a time
        tasks = F.broadcast(tasks)
    files = listed_files(spark, root, listed).join(tasks, "path").select("position", "path", "content")
    return files.union(spark.createDataFrame([(position, OF_WORK, work) for position, work in works.items()], HELD))


@contextlib.contextmanager
def session_of_files(spark: Any, manifests: Iterable[Manifest] = ()) -> Iterator[Any]:
    """Yield another session that passes files to tasks in batches of at most BATCH_BYTES_MAX. The settings of the caller's session stay.

    Args:
        spark: the caller's session.
        manifests: of all files. Without them each file is a batch.
    """
    largest = max((entry.bytes for one in manifests for entry in one.files), default=BATCH_BYTES_MAX)
    is_of_connect = hasattr(spark, "cloneSession")
    own = spark.cloneSession() if is_of_connect else spark.newSession()  # a clone also has the artifacts of the session
    own.conf.set(MAX_RECORDS, str(max(1, BATCH_BYTES_MAX // max(largest, FILE_BYTES))))
    for key, value in FOR_MANY_FILES.items():
        own.conf.set(key, value)
    own.conf.set(PARTITIONS, spark.conf.get(PARTITIONS))
    try:
        yield own
    finally:
        if is_of_connect:  # classic sessions share all that would be released
            own.client.release_session()
            own.client.close()


def listed_files(spark: Any, root: str, listed: Mapping[str, Listed]) -> Any:
    """Return a frame of `path` below a directory, and `content`, of those of some files that are there.

    Spark lists their folders. To look for each file by itself would take a request for each, and a task.

    Args:
        spark: the session.
        root: the directory, as `runs_at` returns it.
        listed: the files, by path.

    Raises:
        IncompleteError: a folder is missing.
    """
    from pyspark.errors import AnalysisException

    folders, names = ({split[at] for split in map(posixpath.split, listed)} for at in (0, 1))
    if not names:
        return spark.createDataFrame([], "path string, content binary")
    try:
        found = _loaded(spark, root, folders, recursiveFileLookup="true")
    except AnalysisException as error:
        raise _missing_folder(root, listed, error) from error
    # Spark reads no file whose `_metadata` a condition excludes; other characters are encoded there
    name = "_metadata.file_name" if all(map(_PLAIN_NAME.fullmatch, names)) else "substring_index(path, '/', -1)"
    return _held(root, found.where(f"{name} IN ({','.join(map(_quoted, sorted(names)))})"))


def all_files(spark: Any, root: str) -> Any:
    """Return a frame of `path` below a directory, and `content`, of all its Parquet files."""
    return _held(root, _loaded(spark, root, [""], recursiveFileLookup="true", pathGlobFilter="*.parquet"))


def _held(root: str, found: Any) -> Any:
    """Return `path` below a directory, and `content`, of the files of a frame of `binaryFile`."""
    from pyspark.sql import functions as F

    return found.select(F.expr(f"substring(path, {len(root) + 2})").alias("path"), "content")


def _missing_folder(root: str, listed: Mapping[str, Listed], error: Any) -> IncompleteError:
    """Return the error for a folder that Spark does not find. An object store has none without a file."""
    folder = (error.getMessageParameters() or {}).get("path", "").removeprefix(f"{root}/")
    for path, one in listed.items():
        if posixpath.dirname(path) == folder:
            return IncompleteError(one.problem(f"{root}/{path}", None))
    return IncompleteError(f"{root}: {str(error).splitlines()[0]}; a manifest lists files there; restore them")


def binary_files(spark: Any, root: str, paths: Iterable[str]) -> Any:
    """Return a frame of Spark's columns `path` and `content` of files below a directory, each of which Spark looks for.

    Raises:
        IncompleteError: a file is missing.
    """
    from pyspark.errors import AnalysisException

    try:
        return _loaded(spark, root, paths).select("path", "content")
    except AnalysisException as error:
        raise _missing_folder(root, {}, error) from error


def _loaded(spark: Any, root: str, paths: Iterable[str], **options: str) -> Any:
    return spark.read.format("binaryFile").options(**options).load([f"{root}/{path}" for path in sorted(paths)])


def _quoted(text: str) -> str:
    """Return a text as Spark's SQL writes it. A list of columns instead would take a call of the JVM for each."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def check_there(root: str, listed: Mapping[str, Listed], found: Mapping[str, int]) -> None:
    """Compare files below a directory with those that Spark has found, of which each has a size in bytes.

    Raises:
        IncompleteError: one is missing, or has another size.
    """
    for path, one in listed.items():
        problem = one.problem(f"{root}/{path}", found.get(path))
        if problem is not None:
            raise IncompleteError(problem)


def held_of(batches: Iterable[pa.RecordBatch]) -> dict[str, bytes]:
    """Return the content of each file of a task by its path, from rows of HELD."""
    held: dict[str, bytes] = {}
    for batch in batches:
        held.update(zip(*(batch.column(name).to_pylist() for name in ("path", "content")), strict=True))
    return held


def _doing(root: str, do: DoRows) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def do_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = held_of(batches)
        work = held.pop(OF_WORK)
        sizes = {path: len(content) for path, content in held.items()}
        for share in msgspec.msgpack.decode(work, type=list[_Share]):
            check_there(root, share.files, sizes)
            yield from do(share.position, share.work, {path: held[path] for path in share.files})

    return do_all


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
