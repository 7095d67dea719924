"""The sums by second of some file sets, cached during a run, and checked against the manifests."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from pipeline.manifest import listed_in
from pipeline.rollup.content.sums import check_decisions, check_usage
from pipeline.rollup.inputs import Input, hash_by_day
from pipeline.rollup.settings import RollupSettings
from pipeline.spark.failures import reported_in_one_line
from pipeline.spark.parallelism import parallelism_of
from pipeline.spark.placement import in_tasks, packed, work_in_tasks
from pipeline.spark.remote import files_and_works
from pipeline.spark.rollup.building import Building, Wanted, building, files_of
from pipeline.spark.rollup.floors import LONGEST, floor_of
from pipeline.spark.rollup.names import names_of
from pipeline.spark.rollup.pieces import PIECES, SUMS_SHARE, pieces_of_rows
from pipeline.spark.rollup.reading import Part, Reading, reading_copies, reading_here
from pipeline.spark.rollup.shares import File, Spread, parts_of, shares_of
from pipeline.storage.paths import text_of
from sluice.object_store import is_url


class Seconds:
    """Pieces of the sums by second, waits and quarantined rows of some file sets.

    Args:
        spark: the session.
        settings: the settings of the roll-up.
        inputs: the file sets.
        root: their directory, as `inputs_at` returns it.

    Attributes:
        usage_problems: number of quarantined usage rows, by file set.
        decision_problems: number of quarantined decision rows.
        decisions_aside: number of decisions in quarantined rows, by file set.

    Raises:
        BadInputError: a file is not Parquet of the declared schema.
        IncompleteError: a file is missing.
    """

    def __init__(self, spark: SparkSession, settings: RollupSettings, inputs: Sequence[Input], root: str) -> None:
        place = settings.source if is_url(settings.source) else text_of(settings.directory)
        self._spark, self._settings, self._inputs = spark, settings, inputs
        self._hours = tuple(sorted({item.hour for item in inputs}))
        self._shares = shares_of(inputs, parallelism_of(spark))
        with reported_in_one_line():
            self._names = names_of(spark, place, root, inputs, settings.tenants)
            job = Reading(place, self._hours, self._shares, self._names)
            self._pieces = _read(spark, job, parts_of(inputs), root).persist(StorageLevel.DISK_ONLY)
        self._floors: dict[str, int] = {}
        self.usage_problems: dict[str, int] = {}
        self.decision_problems = 0
        self.decisions_aside: dict[str, int] = {}

    def check(self) -> None:
        """Read all file sets, and compare all sums with the manifests.

        Raises:
            BadInputError: a file is invalid.
            IncompleteError: a file is damaged, or a sum differs.
        """
        with reported_in_one_line():
            found = self._pieces.where(f"share = {SUMS_SHARE}").collect()
        sums: dict[str, list[dict[str, Any]]] = {"usage": [], "decisions": []}
        longest: dict[str, list[pa.Table]] = {}
        for piece in pieces_of_rows(found):
            if piece.name == LONGEST:
                longest.setdefault(piece.place, []).append(piece.rows)
            else:
                sums[piece.name].extend(piece.rows.to_pylist())
        self._floors = {place: floor_of(rows) for place, rows in longest.items()}
        self.usage_problems = check_usage(self._inputs, sums["usage"])
        self.decision_problems, self.decisions_aside = check_decisions(self._inputs, sums["decisions"])

    def pieces_of_tables(self, wanted: Wanted, spread: Spread) -> tuple[list[File], DataFrame]:
        """Return the files of some tables, and a frame with their pieces, those of a file in the task that `spread` says."""
        job = Building(
            hours=self._hours,
            hour_coverage={hour: one.percent for hour, one in wanted.coverage.items()},
            day_coverage={date: one.percent for date, one in wanted.days.items()},
            hashes=hash_by_day(self._inputs),
            levels=self._settings.levels,
            prices=self._settings.prices,
            batch=wanted.batch,
            floors=self._floors,
            names=self._names,
            writers={},
        )
        files = files_of(job, wanted.hours, wanted.dates)
        writers = spread(files)
        shared = in_tasks(self._pieces.where(f"share != {SUMS_SHARE}"), self._shares.total, "share")
        made = shared.mapInArrow(building(job._replace(writers=writers)), PIECES)
        return files, in_tasks(made, max(writers.values(), default=0) + 1, "share")

    def release(self) -> None:
        """Release the cached rows."""
        self._pieces.unpersist()


def _read(spark: SparkSession, job: Reading, parts: Sequence[Part], root: str) -> DataFrame:
    works = [packed(part) for part in parts]
    if not is_url(job.place):
        return work_in_tasks(spark, works, reading_here(job), PIECES)
    paths = [(number, entry.path) for number, part in enumerate(parts) for item in part for entry in item.manifest.files]
    largest = max((entry.bytes for part in parts for item in part for entry in item.manifest.files), default=0)
    listed = listed_in(item.manifest for part in parts for item in part)
    files = in_tasks(files_and_works(spark, root, paths, listed, dict(enumerate(works)), largest), max(1, len(parts)), "position")
    return files.mapInArrow(reading_copies(job), PIECES)
