"""All tables of open days as frames; nothing is read until they are."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.rollup.prices import Prices
from pipeline.spark.rollup.charges import chargeback_of, charges_of, focus_of
from pipeline.spark.rollup.days import price_frame
from pipeline.spark.rollup.decisions import decisions_by_second, decisions_per, histogram_of, series_of, throttle_windows_of, waits_of
from pipeline.spark.rollup.escapes import escapes_of
from pipeline.spark.rollup.frames import Silver
from pipeline.spark.rollup.quarantine import quarantine_of
from pipeline.spark.rollup.usage import start_of, usage_by_second, usage_per


class Tables:
    """The tables of some file sets, by name. Sums by second are cached until the end of the block.

    Args:
        silver: the rows of the file sets, checked.
        levels: a subset of minute, hour and day.
        coverage: (date, hour, coverage_percent); `hour` is null for a whole day.
    """

    def __init__(self, silver: Silver, levels: Sequence[str], coverage: DataFrame) -> None:
        good = silver.decisions.where("problem is null")
        self._usage = usage_by_second(silver.usage.where("problem is null")).persist()
        self._decisions, self._waits = decisions_by_second(good).persist(), waits_of(good).persist()
        self._charges: list[DataFrame] = []
        self.frames: dict[str, DataFrame] = {}
        for level in levels:
            self.frames[f"usage_{level}"] = usage_per(level, self._usage, coverage)
            self.frames[f"decisions_{level}"] = decisions_per(level, self._decisions, self._waits, coverage)
        self.frames["throttle_histogram"] = histogram_of(self._waits)
        self.frames["throttle_stretches"] = throttle_windows_of(self._waits)
        self.frames["rate_series"] = series_of(self._decisions)
        self.frames["escapes"] = escapes_of(self._usage)
        self.frames["quarantine"] = quarantine_of(silver.usage, silver.decisions)

    def add_charges(self, spark: SparkSession, prices: Prices, days: DataFrame) -> None:
        """Add the tables of charges; `days` is (date, coverage_percent, inputs)."""
        usage = self._usage.withColumn("start", start_of("day", F.col("second_ms")))
        charges = charges_of(usage, price_frame(spark, prices), prices.currency, F.lit(None).cast("string")).persist()
        self._charges.append(charges)
        self.frames["chargeback_day"] = chargeback_of(charges, days)
        self.frames["focus_day"] = focus_of(charges)

    def release(self) -> None:
        """Release the cached rows."""
        for frame in (self._usage, self._decisions, self._waits, *self._charges):
            frame.unpersist()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()
