"""Reads a metering directory on any file system that Hadoop supports. Spark reads whole files and passes them to the tasks.

Tasks read files on a local disk in place. Files elsewhere come through Spark's reader, so only Spark needs the address and the credentials.
The cost is one shuffle of each compressed file.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from metering_format.manifest import Manifest
from metering_format.places import MANIFESTS, REMOVED
from pipeline.errors import BadInputError, IncompleteError
from pipeline.file_set import FileSet, runs_of
from pipeline.manifest import in_order, manifest_of
from pipeline.removed import LEDGERS, removed_of

ONE_FILE_A_BATCH: Final = "1"
MAX_RECORDS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"

Judge = Callable[[int, Mapping[str, bytes]], bytes]


def runs_at(spark: Any, place: str) -> tuple[dict[tuple[str, str], list[FileSet]], dict[str, str]]:
    """Return all file sets by (proxy_id, run_id), and the SHA-256 of each manifest by its path below `place`.

    Raises:
        BadInputError: the directory does not exist, or a manifest cannot be read.
        IncompleteError: the directory has no manifest.
    """
    from pyspark.errors import PySparkException

    root = _qualified(spark, place)
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true").option("pathGlobFilter", "*.json")
    try:
        rows = reader.load(f"{place.rstrip('/')}/{MANIFESTS}").select("path", "content").collect()
    except PySparkException as error:
        raise BadInputError(
            f"{place}: no manifests can be read there ({str(error).splitlines()[0]}); is it a metering directory?"
        ) from error
    if not rows:
        raise IncompleteError(f"{place}: contains no manifest, so no file set is finished; stop or rotate the proxy")
    found = sorted((_below(root, row["path"]), bytes(row["content"])) for row in rows)
    manifests = in_order(manifest_of(data, f"{place}/{path}") for path, data in found)
    hashes = {path: hashlib.sha256(data).hexdigest() for path, data in found}
    return runs_of(Path(place), manifests), hashes


def removed_at(spark: Any, place: str) -> dict[tuple[str, str], int]:
    """Return the sequence number of the last decision that retention removed, by (proxy_id, run_id)."""
    from pyspark.errors import AnalysisException

    try:
        rows = spark.read.format("binaryFile").load(f"{place.rstrip('/')}/{REMOVED}/{LEDGERS}").select("content").collect()
    except AnalysisException:  # there is no ledger, so nothing was removed
        return {}
    return removed_of(bytes(row["content"]) for row in rows)


def judge_at(spark: Any, place: str, wanted: Mapping[int, Iterable[Manifest]], judge: Judge) -> dict[int, bytes]:
    """Return the result of `judge` for each task, which gets the files of its manifests by path.

    Raises:
        IncompleteError: a file that a manifest lists is missing.
    """
    own = spark.newSession()  # with settings of its own: those of the caller's session stay
    own.conf.set(MAX_RECORDS, ONE_FILE_A_BATCH)
    held = files_at(
        own, place, [(position, entry.path) for position, manifests in wanted.items() for one in manifests for entry in one.files]
    )
    held = held.repartition(max(len(wanted), 1), "position")
    rows = held.mapInArrow(_judging(judge), "position int, verdict binary").collect()
    return {row["position"]: bytes(row["verdict"]) for row in rows}


def files_at(spark: Any, place: str, needs: Sequence[tuple[int, str]]) -> Any:
    """Return a frame of (position, path, content) with the file of each pair of a task's position and a path below `place`.

    Raises:
        IncompleteError: a file is missing.
    """
    from pyspark.sql import functions as F

    root = _qualified(spark, place)
    files = _binary_files(spark, place, [f"{root}/{path}" for path in sorted({path for _, path in needs})])
    named = files.select(F.expr(f"substring(path, {len(root) + 2})").alias("path"), "content")
    tasks = spark.createDataFrame(list(needs), "position int, path string")
    return tasks.join(named, "path").select("position", "path", "content")


def _binary_files(spark: Any, place: str, paths: list[str]) -> Any:
    from pyspark.errors import AnalysisException

    try:
        return spark.read.format("binaryFile").load(paths)
    except AnalysisException as error:
        raise IncompleteError(f"{place}: {str(error).splitlines()[0]}; a manifest lists that file; restore it") from error


def _judging(judge: Judge) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: dict[int, dict[str, bytes]] = {}
        for batch in batches:
            for position, path, content in zip(*(batch.column(name).to_pylist() for name in ("position", "path", "content")), strict=True):
                held.setdefault(position, {})[path] = content
        for position, files in held.items():
            verdict = pa.array([judge(position, files)], pa.binary())
            yield pa.RecordBatch.from_arrays([pa.array([position], pa.int32()), verdict], names=["position", "verdict"])

    return work


def _qualified(spark: Any, place: str) -> str:
    """Return the directory's full name, in the form that Spark uses for its files."""
    path = spark._jvm.org.apache.hadoop.fs.Path(place)
    system = path.getFileSystem(spark._jsc.hadoopConfiguration())
    return str(system.makeQualified(path).toString()).rstrip("/")


def _below(root: str, path: str) -> str:
    return path.removeprefix(root).lstrip("/")
