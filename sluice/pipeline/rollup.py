"""`rollup`: the tables of usage and throttling as data frames, on the caller's session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pyspark.sql import DataFrame, SparkSession

from pipeline.errors import BadInputError
from pipeline.rollup.coverage import coverage_by_day
from pipeline.rollup.prices import read_prices
from pipeline.rollup.settings import RollupSettings
from pipeline.rollup.tenants import read_tenants
from pipeline.spark.hadoop_files import path_at
from pipeline.spark.rollup.checked import read_all
from pipeline.spark.rollup.frames import Frames

LEVELS: Final = ("minute", "hour", "day")


@dataclass(frozen=True, slots=True)
class Rollup:
    """The tables of a metering directory; the end of the block releases what they cache.

    Attributes:
        tables: data frames by the names that `sluice meter rollup` gives its tables. Spark computes each when it is used.
        coverage: percentage of the rows that should be there, by day.
    """

    tables: Mapping[str, DataFrame]
    coverage: Mapping[str, float]
    _cached: Frames

    def release(self) -> None:
        """Release the cached rows."""
        self._cached.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


def rollup(
    spark: SparkSession,
    source: str | Path,
    *,
    levels: Sequence[str] = ("hour", "day"),
    tenants: str | Path | None = None,
    prices: str | Path | None = None,
    begin: str | None = None,
    end: str | None = None,
) -> Rollup:
    """Aggregate a metering directory as `sluice meter rollup` does, into frames instead of directories: no ledger, no late data.

    All sums are compared with the manifests before it returns.

    Args:
        spark: the caller's session.
        source: the metering directory: a path that the workers see, or a URL of a file system that Hadoop supports.
        levels: a subset of minute, hour and day.
        tenants: CSV file with lines of user,client_id,tenant: a path of this machine, or a URL.
        prices: TOML file with prices of usage, for the tables of charges: a path of this machine, or a URL.
        begin, end: first and last hour in UTC ("2026-11-21 07"), None: no limit. Tables of a day have only these hours.

    Raises:
        BadInputError: a file is invalid.
        IncompleteError: files are missing, or their content differs from the sums in their manifests.
    """
    lines = tuple(read_tenants(path_at(spark, str(tenants)))) if tenants is not None else ()
    costs = read_prices(path_at(spark, str(prices))) if prices is not None else None
    unknown = [level for level in levels if level not in LEVELS]
    if unknown:
        raise BadInputError(f'levels: "{unknown[0]}" is not one of {", ".join(LEVELS)}')
    settings = RollupSettings(str(source), Path(), tuple(levels), lines, begin, end, prices=costs)
    rows = read_all(spark, settings)
    made = Frames(rows)
    return Rollup(made.frames, {date: share.percent for date, share in coverage_by_day(rows.coverage).items()}, made)
