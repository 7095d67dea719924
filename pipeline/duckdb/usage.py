"""Usage by client: rows with names and problems, sums by second, and the tables of minutes, hours and days."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pipeline.duckdb.database import Database
from pipeline.rollup.content.columns import DAY_MS, HOUR_MS, MINUTE_MS, USAGE_COUNTS
from pipeline.rollup.content.problems import LATE_MS, MISSING_VALUE, NEGATIVE_COUNT, OTHER_SECOND, UNKNOWN_CLIENT
from pipeline.rollup.content.sums import USAGE_SUMS

UNIT_MS: Final = {"minute": MINUTE_MS, "hour": HOUR_MS, "day": DAY_MS}
PERCENTILES: Final = "[0.5, 0.95, 0.99]"


def see_usage(database: Database) -> None:
    """Make the view `usage`: rows of the raw table with the number and the names of their client, and the problem if there is one."""
    values = ("second_ms", "node", "listener", "api_class", *USAGE_COUNTS)
    waited = "waited_requests, throttled_requests", "waited_ms, throttle_ms"
    replaced = ", ".join(f"coalesce({pair}) AS {pair.split(',')[0]}" for pair in waited)  # files of an earlier version do not separate them
    database.run(f"""
        CREATE VIEW usage AS
        SELECT its.* EXCLUDE (second_ms),
            CASE WHEN principal IS NULL THEN '{UNKNOWN_CLIENT}'
                 WHEN {any_null("second_ms", *values[1:])} THEN '{MISSING_VALUE}'
                 WHEN {any_negative(*USAGE_COUNTS, "connections_open")} THEN '{NEGATIVE_COUNT}'
                 WHEN second_ms NOT BETWEEN hour_ms - {LATE_MS} AND hour_ms + {HOUR_MS + LATE_MS}
                     THEN '{OTHER_SECOND}'
            END AS problem,
            {in_hour("second_ms", 1_000)} AS second_ms
        FROM (
            SELECT raw.* REPLACE ({replaced}), gold_client_number, tenant, principal, whole_principal, client_id
            FROM raw_usage AS raw LEFT JOIN clients USING (run_id, client_ref)) AS its""")


def usage_sums() -> str:
    """Return a query for the sums of usage by file set, including quarantined rows, and the number of those."""
    return sums_by("usage", ("stem",), USAGE_SUMS)


def sums_by(view: str, key: Sequence[str], sums: Iterable[str], others: str = "") -> str:
    """Return a query for the sums of the rows of a view, and the number of rows with a problem."""
    added = ", ".join(f"sum({name})::BIGINT AS {name}" for name in sums)
    names = ", ".join(key)
    return f"SELECT {names}, {added}, count(problem) AS problems{others} FROM {view} GROUP BY {names}"


def usage_by_second() -> str:
    """Return a query for sums by hour, client, API class and second, over proxies, nodes and listeners."""
    sums = ", ".join(f"sum({name})::BIGINT AS {name}" for name in USAGE_COUNTS)
    return f"""
        SELECT hour_number, gold_client_number, api_class, second_ms, {sums}, sum(connections_open)::BIGINT AS connections_open,
               sum(produce_bytes + fetch_bytes)::BIGINT AS bytes
        FROM usage WHERE problem IS NULL GROUP BY hour_number, gold_client_number, api_class, second_ms"""


def added_usage(seconds: str) -> str:
    """Return a query for the sums by hour, client, API class and second of a table with several rows for some, as `usage_by_second`."""
    sums = ", ".join(f"sum({name})::BIGINT AS {name}" for name in (*USAGE_COUNTS, "connections_open", "bytes"))
    key = "hour_number, gold_client_number, api_class, second_ms"
    return f"SELECT {key}, {sums} FROM {seconds} GROUP BY {key}"


def usage_per(level: str) -> str:
    """Return a query for the rows of the table of usage by minute, hour or day."""
    sums = ", ".join(f"sum({name})::BIGINT AS {name}" for name in USAGE_COUNTS)
    place = "date" if level == "day" else "date, hour"
    percentiles = ", ".join(f"percentiles[{at}] AS bytes_per_second_p{share}" for at, share in enumerate((50, 95, 99), 1))
    return f"""
        SELECT * EXCLUDE (gold_client_number, percentiles), {percentiles}
        FROM (
            SELECT {place}, {start_of(level, "second_ms")} AS start, gold_client_number, api_class, {sums},
                   max(connections_open) AS connections_open_max, count(*) AS seconds_active, max(bytes) AS bytes_per_second_max,
                   quantile_cont(bytes, {PERCENTILES}) AS percentiles
            FROM usage_here JOIN hours USING (hour_number) GROUP BY {place}, start, gold_client_number, api_class)
        JOIN gold_clients USING (gold_client_number) {with_coverage(level)}"""


def start_of(level: str, milliseconds: str) -> str:
    """Return the start of the minute, hour or day in UTC of a time in ms."""
    return f"epoch_ms({milliseconds} - {milliseconds} % {UNIT_MS[level]})"


def with_coverage(level: str) -> str:
    """Return a join with the coverage of the row's hour or day."""
    return "LEFT JOIN day_coverage USING (date)" if level == "day" else "LEFT JOIN hour_coverage USING (date, hour)"


def in_hour(at_ms: str, unit_ms: int = 1) -> str:
    """Return a time, limited to the hour of the file. Moments just before or after the hour count as part of it."""
    return f"greatest(hour_ms, least(hour_ms + {HOUR_MS - unit_ms}, {at_ms}))"


def any_null(*names: str) -> str:
    """Return whether one of the columns is null."""
    return " OR ".join(f"{name} IS NULL" for name in names)


def any_negative(*names: str) -> str:
    """Return whether one of the columns is below 0."""
    return " OR ".join(f"{name} < 0" for name in names)
