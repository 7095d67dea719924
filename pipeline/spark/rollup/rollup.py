"""The roll-up on Spark."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.rollup.coverage import Coverage, coverage_by_day
from pipeline.rollup.engine import ReportProgress
from pipeline.rollup.inputs import Hour, Input
from pipeline.rollup.plan import Plan
from pipeline.rollup.publish import STAGING
from pipeline.rollup.run import DAILY, update_tables
from pipeline.rollup.settings import RollupResult, RollupSettings
from pipeline.spark.rollup.adjustments import adjustments_of
from pipeline.spark.rollup.charges import chargeback_of, charges_of, focus_of
from pipeline.spark.rollup.checked import inputs_at, read_silver
from pipeline.spark.rollup.days import coverage_frame, day_frame, days_frame, known_frame, price_frame
from pipeline.spark.rollup.frames import Silver
from pipeline.spark.rollup.tables import Tables
from pipeline.spark.written import write_rows

FILES_AT_ONCE_MAX = 64
_HOUR: Final = pa.schema({"date": pa.string(), "hour": pa.string()})


def roll_up(spark: SparkSession, settings: RollupSettings, report: ReportProgress = lambda _line: None) -> RollupResult:
    """Update the tables; nothing is built when there are no new files.

    Raises:
        BadInputError: a file is invalid.
        IncompleteError: the content of files differs from the sums in their manifests. Nothing is published.
    """
    return update_tables(SparkEngine(spark, settings), settings, report)


class SparkEngine:
    """A `RollupEngine` with a Spark session."""

    def __init__(self, spark: SparkSession, settings: RollupSettings) -> None:
        self._spark, self._settings = spark, settings

    def find(self) -> tuple[Sequence[Input], Mapping[tuple[str, str], int]]:
        """Find the file sets of a local or remote directory."""
        return inputs_at(self._spark, self._settings.source)

    def read(self, inputs: Sequence[Input]) -> "SparkRows":
        """Read and check file sets."""
        return SparkRows(self._spark, self._settings, read_silver(self._spark, self._settings, inputs))


class SparkRows:
    """`RollupRows` that Spark has cached; attributes as those of `Silver`."""

    def __init__(self, spark: SparkSession, settings: RollupSettings, silver: Silver) -> None:
        self._spark, self._settings, self._silver = spark, settings, silver
        self.usage_problems = silver.usage_problems
        self.decision_problems = silver.decision_problems
        self.decisions_aside = silver.decisions_aside

    def put_open(self, plan: Plan, coverage: Mapping[Hour, Coverage], report: ReportProgress) -> dict[str, int]:
        """Write the tables of open days."""
        spark, settings = self._spark, self._settings
        with Tables(self._silver, settings.levels, coverage_frame(spark, coverage)) as tables:
            if settings.prices is not None:
                tables.add_charges(spark, settings.prices, day_frame(spark, plan.inputs, coverage_by_day(coverage)))
            rows = {}
            for table, frame in tables.frames.items():
                report(f"building {table}")
                rows[table] = self._put(table, frame, plan)
        return rows

    def _put(self, table: str, frame: DataFrame, plan: Plan) -> int:
        """Write the partitions of the plan, one sorted file for each. The same input gives the same rows in the same order."""
        is_daily = table in DAILY
        names = ["date"] if is_daily else ["date", "hour"]
        rows = frame.drop("hour") if is_daily else self._of_the_plan(frame, plan)
        order = [name for name in rows.columns if name not in names]
        files = min(len(plan.days if is_daily else plan.hours), FILES_AT_ONCE_MAX)
        by_partition = rows.repartition(files, *names).sortWithinPartitions(*names, *order)
        return write_rows(by_partition, self._settings.out, Path(STAGING, table), *names, compression="zstd")

    def _of_the_plan(self, frame: DataFrame, plan: Plan) -> DataFrame:
        """Drop hours that are in the input only for the tables of their day."""
        if {item.hour for item in plan.inputs} <= set(plan.hours):
            return frame
        wanted = known_frame(self._spark, plan.hours, _HOUR)
        return frame.join(wanted.hint("broadcast"), _HOUR.names, "left_semi")

    def put_late(self, late: Sequence[Input], batch: str, days: Mapping[str, Coverage]) -> dict[str, int]:
        """Write the adjustments of closed days."""
        spark, prices = self._spark, self._settings.prices
        rows = adjustments_of(self._silver.usage.where("problem is null"), batch, days_frame(spark, days)).persist()
        frames = {"usage_adjustment": rows}
        if prices is not None:
            charges = charges_of(rows, price_frame(spark, prices), prices.currency, F.lit(batch))
            frames["chargeback_adjustment"] = chargeback_of(charges, day_frame(spark, late, days)).withColumn("batch", F.lit(batch))
            frames["focus_adjustment"] = focus_of(charges).withColumn("batch", F.lit(batch))
        written = {}
        for table, frame in frames.items():
            one = frame.coalesce(1).sortWithinPartitions("date")
            written[table] = write_rows(one, self._settings.out, Path(STAGING, table), "date", "batch", compression="zstd")
        rows.unpersist()
        return written

    def release(self) -> None:
        """Release the cached rows."""
        self._silver.release()
