"""The tables of a roll-up, made of the sums by second in a database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from pipeline.duckdb import decisions, escapes
from pipeline.duckdb.charges import Charge, UsedInDay, chargeback_rows, focus_rows
from pipeline.duckdb.database import Database
from pipeline.duckdb.throttle_windows import put_throttle_windows, throttle_windows
from pipeline.duckdb.usage import start_of, usage_per, with_coverage
from pipeline.rollup.content import columns
from pipeline.rollup.inputs import Hour
from pipeline.rollup.prices import SKUS


class GoldTable(NamedTuple):
    """How a table is made.

    Attributes:
        query: returns at least the columns of `schema`, of the hours at which the database looks.
        is_daily: it has a file for each day instead of each hour.
    """

    query: str
    schema: pa.Schema
    is_daily: bool


def gold_tables(levels: Iterable[str]) -> dict[str, GoldTable]:
    """Return the tables of open days that are made by queries."""
    found: dict[str, GoldTable] = {}
    for level in levels:
        is_day = level == "day"
        found[f"usage_{level}"] = GoldTable(usage_per(level), columns.USAGE, is_day)
        found[f"decisions_{level}"] = GoldTable(decisions.decisions_per(level), columns.DECISIONS, is_day)
    found["throttle_histogram"] = GoldTable(decisions.histogram(), columns.HISTOGRAM, False)
    found["throttle_stretches"] = GoldTable(throttle_windows(), columns.THROTTLE_WINDOWS, False)
    found["rate_series"] = GoldTable(decisions.series(), columns.SERIES, False)
    found["escapes"] = GoldTable(escapes.escapes(), columns.ESCAPES, True)
    return found


def look_at_hours(database: Database, hours: Iterable[Hour]) -> None:
    """Let the database look at some hours, of which all tables can then be made."""
    database.look_at(hours)
    put_throttle_windows(database)


def adjustments() -> str:
    """Return a query for the late usage of closed days: the columns of ADJUSTMENTS without the batch."""
    sums = ", ".join(f"sum({name})::BIGINT AS {name}" for name in columns.USAGE_COUNTS)
    return f"""
        SELECT * EXCLUDE (gold_client_number)
        FROM (SELECT date, {start_of("day", "hour_ms")} AS start, gold_client_number, api_class, {sums}
              FROM usage_seconds JOIN hours USING (hour_number) GROUP BY date, start, gold_client_number, api_class)
        JOIN gold_clients USING (gold_client_number) {with_coverage("day")}"""


def put_coverage(database: Database, hours: Mapping[Hour, float], days: Mapping[str, float]) -> None:
    """Make the tables of the coverage of hours and days, in percent."""
    place, percent = [("date", pa.string()), ("hour", pa.string())], ("coverage_percent", pa.float64())
    of_hours = [{"date": date, "hour": hour, "coverage_percent": share} for (date, hour), share in hours.items()]
    of_days = [{"date": date, "coverage_percent": share} for date, share in days.items()]
    database.put("hour_coverage", pa.Table.from_pylist(of_hours, schema=pa.schema([*place, percent])))
    database.put("day_coverage", pa.Table.from_pylist(of_days, schema=pa.schema([place[0], percent])))


def used_in_days(database: Database) -> Iterator[UsedInDay]:
    """Yield the usage of each client and day."""
    sums = ", ".join(f"sum({sku.column})::BIGINT" for sku in SKUS)
    query = f"""
        SELECT date, tenant, principal, client_id, {sums}
        FROM usage_seconds JOIN hours USING (hour_number) JOIN gold_clients USING (gold_client_number)
        GROUP BY date, tenant, principal, client_id ORDER BY ALL"""
    for date, tenant, principal, client_id, *units in database.rows(query):
        yield UsedInDay(date, tenant, principal, client_id, units)


def charge_tables(
    charges: Sequence[Charge], days: Mapping[str, float], hashes: Mapping[str, str], batch: str | None
) -> dict[str, tuple[Iterable[Mapping[str, Any]], pa.Schema]]:
    """Return the rows and columns of the tables of charges.

    Args:
        charges: the line items.
        days: coverage of each day, in percent.
        hashes: the hash over each day's manifests.
        batch: name of the late file sets that the charges correct; None: they are those of open days.
    """
    suffix = "day" if batch is None else "adjustment"
    more = {} if batch is None else {"batch": batch}
    return {
        f"chargeback_{suffix}": (({**row, **more} for row in chargeback_rows(charges, days, hashes)), columns.CHARGEBACK),
        f"focus_{suffix}": (({**row, **more} for row in focus_rows(charges)), columns.FOCUS),
    }
