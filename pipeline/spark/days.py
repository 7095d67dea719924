"""Small frames of what the driver knows: coverage by hour and day, what a day was made from, prices."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipeline.rollup.coverage import Coverage, coverage_by_day
from pipeline.rollup.inputs import Hour, Input
from pipeline.rollup.prices import Prices


def coverage_frame(spark: SparkSession, hours: Mapping[Hour, Coverage]) -> DataFrame:
    """Coverage of each hour, and of each day with a null hour."""
    rows: Any = [(date, hour, coverage.percent) for (date, hour), coverage in hours.items()]
    rows += [(date, None, coverage.percent) for date, coverage in coverage_by_day(hours).items()]
    return spark.createDataFrame(rows, "date string, hour string, coverage_percent double")


def day_frame(spark: SparkSession, inputs: Iterable[Input], hours: Mapping[Hour, Coverage]) -> DataFrame:
    """(date, coverage_percent, inputs) of each day; `inputs` is one hash over those of all its manifests."""
    hashes: dict[str, list[str]] = {}
    for item in inputs:
        hashes.setdefault(item.hour[0], []).append(item.sha256)
    days = coverage_by_day(hours)
    rows: Any = [
        (date, days[date].percent if date in days else None, hashlib.sha256("".join(sorted(own)).encode()).hexdigest())
        for date, own in hashes.items()
    ]
    return spark.createDataFrame(rows, "date string, coverage_percent double, inputs string")


def price_frame(spark: SparkSession, prices: Prices) -> DataFrame:
    """(sku, since, tenant, price) of every price."""
    rows: Any = [(price.sku, price.since, price.tenant, price.price) for price in prices.prices]
    return spark.createDataFrame(rows, "sku string, since string, tenant string, price decimal(12,6)")
