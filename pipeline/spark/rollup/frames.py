"""The silver rows of some file sets, cached during a run, and checked against the manifests."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession

from pipeline.errors import BadInputError
from pipeline.parquet.checks import check_columns
from pipeline.rollup.content.sums import check_decisions, check_usage
from pipeline.rollup.inputs import Input
from pipeline.rollup.tenants import TenantLine
from pipeline.spark.failures import error_of, is_of_spark_itself, spark_errors
from pipeline.spark.raw import read_raw
from pipeline.spark.rollup.days import tenant_frame
from pipeline.spark.rollup.silver import decisions_silver, usage_silver
from pipeline.spark.rollup.sums import decision_sums, usage_sums
from sluice.object_store import is_url

_FILE: Final = re.compile(r"reading file (?:file:(?://)?)?(\S+\.parquet)")


class Silver:
    """USAGE_SILVER and DECISIONS_SILVER of some file sets, after a comparison of the files' columns with the declared schema.

    For files on another file system, only `check` compares the sums.

    Attributes:
        usage_problems: number of quarantined usage rows, by file set.
        decision_problems: number of quarantined decision rows.
        decisions_aside: number of decisions in quarantined rows, by file set.

    Raises:
        BadInputError: a file is not Parquet of the declared schema.
        IncompleteError: a file is missing.
    """

    def __init__(self, spark: SparkSession, place: str, inputs: Sequence[Input], tenants: Sequence[TenantLine]) -> None:
        self._spark, self._place, self._inputs = spark, place, inputs
        if not is_url(place):
            check_columns(Path(place), (item.manifest for item in inputs))
        mapping = tenant_frame(spark, tenants)
        self.usage = usage_silver(self._raw("usage"), self._raw("dim_client"), mapping).persist()
        self.decisions = decisions_silver(
            self._raw("samples"), self._raw("events"), self._raw("dim_group"), self._raw("dim_client"), mapping
        ).persist()
        self.usage_problems: dict[str, int] = {}
        self.decision_problems = 0
        self.decisions_aside: dict[str, int] = {}

    def _raw(self, table: str) -> DataFrame:
        return read_raw(self._spark, self._place, self._inputs, table)

    def check(self) -> None:
        """Compare all sums with the manifests: first usage, then the larger decisions.

        Raises:
            BadInputError: a file cannot be read.
            IncompleteError: a sum differs.
        """
        self.usage_problems = check_usage(self._inputs, self._collected(usage_sums(self.usage)))
        self.decision_problems, self.decisions_aside = check_decisions(self._inputs, self._collected(decision_sums(self.decisions)))

    def _collected(self, sums: DataFrame) -> list[Row]:
        try:
            return sums.collect()
        except spark_errors() as error:
            if is_of_spark_itself(str(error)):
                raise error_of(str(error)) from error
            raise BadInputError(_unreadable(error, self._place)) from error

    def release(self) -> None:
        """Release the cached rows."""
        self.usage.unpersist()
        self.decisions.unpersist()


def _unreadable(error: BaseException, place: str) -> str:
    """Return a message that names the file, when Spark's error does."""
    named = _FILE.search(str(error))
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    which = f"{named[1]}: not a readable Parquet file" if named else f"{place}: a file cannot be read ({first[:200]})"
    return f"{which}; restore it (`sluice meter verify-manifests {place}` names all)"
