"""The roll-up on Spark.

Spark has three steps: tasks read file sets and add up by second, other tasks add up groups and clients and make tables, and others write
files. Between the steps Spark moves compressed Arrow tables, so that it handles some rows for each file set and not some for each decision.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from pipeline.rollup.coverage import Coverage, coverage_by_day
from pipeline.rollup.engine import ReportProgress
from pipeline.rollup.inputs import Hour, Input
from pipeline.rollup.plan import Plan
from pipeline.rollup.run import update_tables
from pipeline.rollup.settings import RollupResult, RollupSettings
from pipeline.spark.rollup.building import Wanted
from pipeline.spark.rollup.checked import inputs_at
from pipeline.spark.rollup.seconds import Seconds
from pipeline.spark.rollup.targets import Files, Target
from pipeline.text import counted


def roll_up(
    spark: SparkSession, settings: RollupSettings, report: ReportProgress = lambda _line: None, target: Target | None = None
) -> RollupResult:
    """Update the tables; nothing is built when there are no new files.

    Args:
        spark: the session.
        settings: the settings of the roll-up.
        report: gets lines about the progress.
        target: where the rows go; None: to files in the output directory.

    Raises:
        BadInputError: a file is invalid.
        IncompleteError: the content of files differs from the sums in their manifests. Nothing is published.
    """
    return update_tables(SparkEngine(spark, settings, target or Files(settings.out)), settings, report)


class SparkEngine:
    """A `RollupEngine` with a Spark session."""

    def __init__(self, spark: SparkSession, settings: RollupSettings, target: Target) -> None:
        self._spark, self._settings, self._target = spark, settings, target
        self._root = ""

    def find(self) -> tuple[Sequence[Input], Mapping[tuple[str, str], int]]:
        """Find the file sets of a local or remote directory."""
        found = inputs_at(self._spark, self._settings.source)
        self._root = found.root
        return found.inputs, found.removed

    def read(self, inputs: Sequence[Input]) -> "SparkRows":
        """Read and check file sets that `find` has found."""
        seconds = Seconds(self._spark, self._settings, inputs, self._root)
        seconds.check()
        return SparkRows(seconds, self._target)


class SparkRows:
    """`RollupRows` that Spark has cached; attributes as those of `Seconds`."""

    def __init__(self, seconds: Seconds, target: Target) -> None:
        self._seconds, self._target = seconds, target
        self.usage_problems = seconds.usage_problems
        self.decision_problems = seconds.decision_problems
        self.decisions_aside = seconds.decisions_aside

    def put_open(self, plan: Plan, coverage: Mapping[Hour, Coverage], report: ReportProgress) -> dict[str, int]:
        """Write the tables of open days."""
        report(f"building the tables of {counted(len(plan.hours), 'hour')} and {counted(len(plan.days), 'day')}")
        return self._put(Wanted(plan.hours, plan.days, coverage, coverage_by_day(coverage)))

    def put_late(self, late: Sequence[Input], batch: str, days: Mapping[str, Coverage]) -> dict[str, int]:
        """Write the adjustments of closed days."""
        return self._put(Wanted((), tuple(sorted({item.hour[0] for item in late})), {}, days, batch))

    def _put(self, wanted: Wanted) -> dict[str, int]:
        return self._target.put(*self._seconds.pieces_of_tables(wanted, self._target.spread))

    def release(self) -> None:
        """Release the cached rows."""
        self._seconds.release()
