"""Signs, not proof, of clients that avoid a quota; `pipeline.rollup.content.escape_limits` has the numbers and says why."""

from __future__ import annotations

from typing import Final

from pipeline.duckdb.database import Database
from pipeline.rollup.content.escape_limits import (
    ANONYMOUS,
    BEFORE_MAX,
    OPENED_MIN,
    OVERLAP_MAX_MS,
    RECONNECT_MAX_MS,
    SUCCESSOR_GAP_MAX_MS,
    TIMES_MORE,
)

_CLIENT: Final = "tenant, principal, client_id"


def see_client_seconds(database: Database) -> None:
    """Make the view `client_seconds`: waits and new connections of each client by second, and the function `edits`."""
    database.name_function("edits", edits, ["VARCHAR", "VARCHAR"], "BIGINT")
    database.run(f"""
        CREATE VIEW client_seconds AS
        SELECT date, hour, {_CLIENT}, second_ms, sum(waited_requests) AS throttled, sum(connections_opened) AS opened
        FROM usage_here JOIN hours USING (hour_number) JOIN gold_clients USING (gold_client_number) GROUP BY ALL""")


def escapes() -> str:
    """Return a query for the signs, by day. Throttles that were not applied do not count."""
    columns = f"date, {_CLIENT}, kind, to_client_id, n, at_ms"
    return f"SELECT {columns} FROM ({_reconnects()}) UNION ALL SELECT {columns} FROM ({_rotations()})"


def _reconnects() -> str:
    """Return clients that open connections soon after waits several times as often as at other times, by hour.

    The time without waits counts as at least RECONNECT_MAX_MS. Otherwise the first connections of a client that waits nearly always
    would be a sign.
    """
    return f"""
        WITH seen AS (
            SELECT *, coalesce(second_ms - last_value(CASE WHEN throttled > 0 THEN second_ms END IGNORE NULLS) OVER (
                PARTITION BY date, hour, {_CLIENT} ORDER BY second_ms ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ) <= {RECONNECT_MAX_MS}, false) AS soon
            FROM client_seconds),
        counted AS (
            SELECT date, hour, {_CLIENT}, coalesce(sum(opened) FILTER (soon), 0)::BIGINT AS n, count(*) FILTER (soon) AS soon_s,
                sum(opened) AS opened, count(*) AS seconds, min(second_ms) FILTER (soon AND opened > 0) AS at_ms
            FROM seen GROUP BY ALL)
        SELECT *, 'reconnects' AS kind, NULL::VARCHAR AS to_client_id
        FROM counted
        WHERE n >= {OPENED_MIN} AND n / soon_s >= {TIMES_MORE} * ((opened - n) / greatest(seconds - soon_s, {RECONNECT_MAX_MS // 1_000}))"""


def _rotations() -> str:
    """Return throttled client-ids that fall silent when a new one of the same user begins. Anonymous users need similar client-ids.

    Pairs are found by rank in the order of time. A comparison of all pairs would be quadratic for a principal with thousands of client-ids.
    """
    return f"""
        WITH lives AS (
            SELECT date, {_CLIENT}, min(second_ms) AS first_ms, max(second_ms) AS last_ms,
                max(second_ms) FILTER (throttled > 0) AS wait_ms
            FROM client_seconds GROUP BY ALL),
        silent AS (
            SELECT *, greatest(wait_ms, last_ms - {OVERLAP_MAX_MS}) AS silent_ms
            FROM lives WHERE last_ms - {OVERLAP_MAX_MS} <= wait_ms + {SUCCESSOR_GAP_MAX_MS}),
        old AS (
            SELECT date, {_CLIENT}, wait_ms, row_number() OVER (
                PARTITION BY date, principal ORDER BY silent_ms, wait_ms, client_id NULLS FIRST, tenant NULLS FIRST) AS place
            FROM silent),
        turns AS (
            SELECT date, principal, silent_ms AS ms, 1 AS old, NULL::VARCHAR AS to_client_id FROM silent
            UNION ALL SELECT date, principal, first_ms, 0, client_id FROM lives),
        new AS (
            SELECT * FROM (
                SELECT *, sum(old) OVER (PARTITION BY date, principal ORDER BY ms, old DESC
                    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)::BIGINT AS last
                FROM turns)
            WHERE old = 0 AND last > 0),
        wanted AS (
            SELECT date, principal, to_client_id, ms AS at_ms, unnest(range(greatest(last - {BEFORE_MAX} + 1, 1), last + 1)) AS place
            FROM new)
        SELECT old.date, {_CLIENT}, 'rotates' AS kind, to_client_id, 1::BIGINT AS n, at_ms
        FROM old JOIN wanted USING (date, principal, place)
        WHERE at_ms <= wait_ms + {SUCCESSOR_GAP_MAX_MS} AND client_id != to_client_id
            AND CASE WHEN principal != '{ANONYMOUS}' THEN true
                     WHEN length(client_id) = strlen(client_id) AND length(to_client_id) = strlen(to_client_id)
                         THEN levenshtein(client_id, to_client_id) * 3 <= length(client_id) + 3
                     ELSE edits(client_id, to_client_id) * 3 <= length(client_id) + 3 END"""


def edits(one: str, other: str) -> int:
    """Return the Levenshtein distance in characters; DuckDB's own counts bytes."""
    before = list(range(len(other) + 1))
    for number, letter in enumerate(one, 1):
        row = [number]
        for at, its in enumerate(other, 1):
            row.append(min(row[-1] + 1, before[at] + 1, before[at - 1] + (letter != its)))
        before = row
    return before[-1]
