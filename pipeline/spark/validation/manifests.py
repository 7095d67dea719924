"""Compares files with their manifests on Spark: workers read each file once, and compute its SHA-256. The driver gets the differences."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from metering_format.manifest import Manifest
from pipeline.manifest import Listed, RunKey, damaged, find_manifests, listed_in
from pipeline.removed import removed_runs
from pipeline.session_settings import SessionSettings
from pipeline.spark.hadoop_files import HadoopFiles
from pipeline.spark.remote import all_files, listed_files, removed_at, runs_at, session_of_files
from pipeline.spark.written import url_of
from pipeline.storage.paths import AnyPath, path_of, path_of_messages, text_of
from sluice.object_store import is_url

_ENTRIES: Final = ("at", "path", "sha256", "bytes", "rows", "file_set")


class Compared(NamedTuple):
    """The manifests of a directory, the runs of which retention removed file sets, and a line for each file that differs."""

    manifests: list[Manifest]
    removed: dict[RunKey, int]
    problems: list[str]


def compared(place: str, settings: SessionSettings) -> Compared:
    """Compare all files of a metering directory with their manifests.

    Args:
        place: a path that every machine of the session can read, or URL of a file system that Hadoop supports.
        settings: how Spark starts.

    Raises:
        BadInputError, IncompleteError: there are no manifests, or one cannot be read; or Spark does not start.
    """
    from pipeline.spark.session import session

    if is_url(place):
        with session(settings) as spark:
            root, runs, _ = runs_at(spark, place)
            manifests = [file_set.manifest for file_sets in runs.values() for file_set in file_sets]
            return Compared(manifests, removed_at(spark, place), _all_differences(spark, root, path_of_messages(place), manifests))
    directory = path_of(place)
    manifests = find_manifests(directory)
    with session(settings) as spark:
        root = HadoopFiles(spark, url_of(text_of(directory))).root
        return Compared(manifests, removed_runs(directory), _all_differences(spark, root, directory, manifests))


def _all_differences(spark: Any, root: str, directory: AnyPath, manifests: Sequence[Manifest]) -> list[str]:
    with session_of_files(spark, manifests) as own:
        return _differences(directory, manifests, all_files(own, root))


def check_undamaged_at(spark: Any, place: str, root: str, blamed: Sequence[Manifest]) -> None:
    """Compare the files of file sets that diverge with their manifests, so that damage is not reported as an error of the proxy.

    Args:
        spark: the session.
        place: the directory for messages.
        root: the directory, as `runs_at` returns it.
        blamed: the manifests.

    Raises:
        IncompleteError: a file differs from its manifest.
    """
    with session_of_files(spark, blamed) as own:
        problems = _differences(path_of_messages(place), blamed, listed_files(own, root, listed_in(blamed)))
    if problems:
        raise damaged(problems[0], len(problems))


def _differences(directory: AnyPath, manifests: Sequence[Manifest], files: Any) -> list[str]:
    """Return a line for each file that differs from its manifest, in the order of the manifests.

    Args:
        directory: for messages.
        manifests: what the files are compared with.
        files: a frame with `path` and `content` of the files that are there.
    """
    from pyspark.sql import functions as F

    entries = [(entry.path, entry.sha256, entry.bytes, entry.rows, one.file_set) for one in manifests for entry in one.files]
    if not entries:
        return []
    columns = map(pa.array, (range(len(entries)), *zip(*entries, strict=True)))
    listed = files.sparkSession.createDataFrame(pa.table(dict(zip(_ENTRIES, columns, strict=True))))
    found = files.select("path", F.length("content").alias("size"), F.sha2("content", 256).alias("found"))
    differ = listed.join(found, "path", "left").where("found IS NULL OR found != sha256 OR size != bytes").orderBy("at")
    of_row = ((row, Listed(row["file_set"], row["rows"], row["bytes"])) for row in differ.collect())
    return [listed.problem(directory / row["path"], row["size"]) or listed.changed(directory / row["path"]) for row, listed in of_row]
