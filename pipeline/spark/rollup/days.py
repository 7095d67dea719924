"""Small frames of values that the driver has: coverage by hour and day, hashes of inputs, prices, tenants."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from pipeline.rollup.coverage import Coverage, coverage_by_day
from pipeline.rollup.inputs import Hour, Input, hash_by_day
from pipeline.rollup.prices import Prices
from pipeline.rollup.tenants import TenantLine

_TEXT: Final = pa.string()
_COVERAGE: Final = pa.schema({"date": _TEXT, "hour": _TEXT, "coverage_percent": pa.float64()})
_DAYS: Final = pa.schema({"date": _TEXT, "coverage_percent": pa.float64(), "inputs": _TEXT})
_PRICES: Final = pa.schema({"sku": _TEXT, "since": _TEXT, "tenant": _TEXT, "price": pa.decimal128(12, 6)})
_TENANTS: Final = pa.schema({"position": pa.int32(), "user": _TEXT, "client_id": _TEXT, "tenant": _TEXT})


def known_frame(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: pa.Schema) -> DataFrame:
    """Return the driver's rows as part of the query plan. No Python worker runs for them, and Spark can optimise empty frames away."""
    table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)
    return spark.createDataFrame(table, from_arrow_schema(schema))


def coverage_frame(spark: SparkSession, hours: Mapping[Hour, Coverage]) -> DataFrame:
    """Return the coverage of each hour, and of each day with a null hour."""
    rows = [(date, hour, coverage.percent) for (date, hour), coverage in hours.items()]
    return known_frame(spark, rows, _COVERAGE).unionByName(days_frame(spark, coverage_by_day(hours)))


def days_frame(spark: SparkSession, days: Mapping[str, Coverage]) -> DataFrame:
    """Return the coverage of days only, in the form of `coverage_frame`."""
    return known_frame(spark, ((date, None, coverage.percent) for date, coverage in days.items()), _COVERAGE)


def day_frame(spark: SparkSession, inputs: Iterable[Input], days: Mapping[str, Coverage]) -> DataFrame:
    """Return (date, coverage_percent, inputs) of each day; `inputs` is one hash over all its manifests' hashes."""
    rows = ((date, days[date].percent if date in days else None, sha256) for date, sha256 in hash_by_day(inputs).items())
    return known_frame(spark, rows, _DAYS)


def price_frame(spark: SparkSession, prices: Prices) -> DataFrame:
    """Return (sku, since, tenant, price) of every price."""
    return known_frame(spark, ((price.sku, price.since, price.tenant, price.price) for price in prices.prices), _PRICES)


def tenant_frame(spark: SparkSession, lines: Iterable[TenantLine]) -> DataFrame:
    """Return (position, user, client_id, tenant) of every line of the tenants file."""
    return known_frame(spark, ((line.position, line.user, line.client_id, line.tenant) for line in lines), _TENANTS)
