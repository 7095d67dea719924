"""Schemas of the roll-up's tables for Spark; none is inferred. `pipeline.rollup.content.columns` has the columns."""

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from pipeline.rollup.content import columns


def _table(schema: pa.Schema) -> StructType:
    table: StructType = from_arrow_schema(schema)
    return table


USAGE_SILVER: Final = _table(columns.USAGE_SILVER)
USAGE: Final = _table(columns.USAGE)
DECISIONS_SILVER: Final = _table(columns.DECISIONS_SILVER)
DECISIONS: Final = _table(columns.DECISIONS)
SERIES: Final = _table(columns.SERIES)
THROTTLE_WINDOWS: Final = _table(columns.THROTTLE_WINDOWS)
HISTOGRAM: Final = _table(columns.HISTOGRAM)
QUARANTINE: Final = _table(columns.QUARANTINE)
ADJUSTMENTS: Final = _table(columns.ADJUSTMENTS)
CHARGES: Final = _table(columns.CHARGES)
CHARGEBACK: Final = _table(columns.CHARGEBACK)
FOCUS: Final = _table(columns.FOCUS)
ESCAPES: Final = _table(columns.ESCAPES)
