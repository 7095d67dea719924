"""Limits of a batch of a Python source, which Spark 4.0 does not know: it takes all that is there as one batch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

__all__ = ("ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow")

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
    except ImportError:

        class ReadLimit:
            """A limit."""

        class ReadAllAvailable(ReadLimit):
            """No limit."""

        @dataclass(frozen=True)
        class ReadMaxRows(ReadLimit):
            """The highest number of rows."""

            max_rows: int

        class SupportsTriggerAvailableNow:
            """A reader that is told where a query ends that reads what is there."""
