"""The rows of file sets whose sums equal those in the manifests, and how much of each hour and day they are."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from pipeline.removed import removed_runs
from pipeline.rollup.coverage import Coverage, coverage_by_hour, lost_between
from pipeline.rollup.inputs import Hour, Input, each_once, find_inputs
from pipeline.rollup.settings import RollupSettings, chosen_of
from pipeline.spark.remote import removed_at, runs_at
from pipeline.spark.rollup.seconds import Seconds
from pipeline.storage.paths import text_of
from sluice.object_store import is_url


class CheckedRows(NamedTuple):
    """Checked rows.

    Attributes:
        seconds: the sums by second, cached.
        inputs: their file sets.
        coverage: by hour.
    """

    seconds: Seconds
    inputs: Sequence[Input]
    coverage: Mapping[Hour, Coverage]


def read_all(spark: SparkSession, settings: RollupSettings) -> CheckedRows:
    """Read all file sets in the hours of the settings.

    Raises:
        BadInputError: a file is invalid.
        IncompleteError: there is none in these hours, or the content of one differs from its manifest.
    """
    found = inputs_at(spark, settings.source)
    inputs = chosen_of(found.inputs, settings)
    seconds = Seconds(spark, settings, inputs, found.root)
    seconds.check()
    coverage = coverage_by_hour(inputs, seconds.usage_problems, seconds.decisions_aside, lost_between(found.inputs, found.removed))
    return CheckedRows(seconds, inputs, coverage)


class FoundInputs(NamedTuple):
    """All file sets of a directory.

    Attributes:
        root: the directory; for a remote one, in the form in which Spark names its files.
        inputs: the file sets.
        removed: the last decision that retention removed, by run.
    """

    root: str
    inputs: Sequence[Input]
    removed: Mapping[tuple[str, str], int]


def inputs_at(spark: SparkSession, source: str) -> FoundInputs:
    """Return all file sets of a local or remote directory.

    Raises:
        BadInputError, IncompleteError: the directory cannot be used.
    """
    if not is_url(source):
        directory = Path(source.removeprefix("file://"))
        return FoundInputs(text_of(directory), find_inputs(directory), removed_runs(directory))
    found = runs_at(spark, source)
    by_file_set = {(_proxy_of(path), Path(path).stem): (path, sha256) for path, sha256 in found.hashes.items()}
    manifests = [file_set.manifest for file_sets in found.runs.values() for file_set in file_sets]
    named = (
        (f"{source}/{path}", manifest, sha256)
        for manifest in manifests
        for path, sha256 in [by_file_set[manifest.proxy_id, manifest.file_set]]
    )
    return FoundInputs(found.root, each_once(named), removed_at(spark, source))


def _proxy_of(path: str) -> str:
    return next((part.removeprefix("proxy=") for part in path.split("/") if part.startswith("proxy=")), "")
