"""docs/reference/metering-files.md names every column of every table that the pipeline reads or writes."""

import re
from pathlib import Path

import pytest

from metering_format.tables import TABLES
from pipeline.builds import runs
from pipeline.rollup.content import columns

TEXT = (Path(__file__).parents[3] / "docs/reference/metering-files.md").read_text()
PLACE = {"date", "hour", "batch"}


def documented(table: str) -> set[str]:
    [row] = re.findall(rf"^\|[^|]*`{table}`[^|]*\|[^|]*\|([^|]*)\|$", TEXT, re.MULTILINE)
    return set(re.findall(r"`(\w+)`", row))


@pytest.mark.parametrize("table", sorted(TABLES))
def test_what_is_read_is_documented(table: str) -> None:
    """The row of a metering table names exactly its columns, including those of schema version 2."""
    assert documented(table) == set(TABLES[table].names)


def test_what_is_made_is_documented() -> None:
    """The row of a table that a roll-up publishes names exactly its columns."""
    made = {
        "usage_day": columns.USAGE,
        "decisions_hour": columns.DECISIONS,
        "rate_series": columns.SERIES,
        "throttle_stretches": columns.THROTTLE_WINDOWS,
        "throttle_histogram": columns.HISTOGRAM,
        "escapes": columns.ESCAPES,
        "quarantine": columns.QUARANTINE,
        "chargeback_day": columns.CHARGEBACK,
        "focus_day": columns.FOCUS,
        "usage_adjustment": columns.ADJUSTMENTS,
    }
    for table, schema in made.items():
        assert documented(table) == set(schema.names) - PLACE, table


def test_the_table_of_builds_is_documented() -> None:
    """The row of `runs`, which only tables in a catalog have, names exactly its columns."""
    assert documented("runs") == set(runs.SCHEMA.names)
