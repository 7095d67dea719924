"""The columns of the tables that the roll-up makes, for every engine. `start` is the start of the minute, hour or day in UTC."""

from typing import Final

import pyarrow as pa

from pipeline.rollup.content.focus import COSTS, QUANTITIES, TEXTS, TIMES

STRING: Final = pa.string()
LONG: Final = pa.int64()
INT: Final = pa.int32()
INTS: Final = pa.list_(INT)
DOUBLE: Final = pa.float64()
BOOLEAN: Final = pa.bool_()
TIMESTAMP: Final = pa.timestamp("us", "UTC")
AMOUNT: Final = pa.decimal128(38, 6)
QUANTITY: Final = pa.decimal128(38, 9)
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS


def _schema(*fields: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema(fields)


PLACE: Final = (("date", STRING), ("hour", STRING), ("stem", STRING))
"""Origin of a row: the hour of its file, and its file set."""

CLIENT: Final = (("tenant", STRING), ("principal", STRING), ("client_id", STRING))
USAGE_COUNTS: Final = (
    "requests",
    "request_bytes",
    "response_bytes",
    "produce_bytes",
    "fetch_bytes",
    "handler_ns",
    "throttled_requests",
    "throttle_ms",
    "waited_requests",
    "waited_ms",
    "connections_opened",
)
"""Columns that can be added over seconds, clients, nodes and days."""

USAGE_SILVER: Final = _schema(
    *PLACE,
    ("problem", STRING),
    ("proxy_id", STRING),
    ("run_id", STRING),
    *CLIENT,
    ("node_id", INT),
    ("node", STRING),
    ("listener", STRING),
    ("api_class", STRING),
    ("second_ms", LONG),
    *((name, LONG) for name in USAGE_COUNTS),
    ("connections_open", LONG),
)
"""One row of `usage` with names in place of numbers. `problem` is the reason for the quarantine; null means that the row counts."""

USAGE: Final = _schema(
    ("start", TIMESTAMP),
    *CLIENT,
    ("api_class", STRING),
    *((name, LONG) for name in USAGE_COUNTS),
    ("connections_open_max", LONG),
    ("seconds_active", LONG),
    ("bytes_per_second_p50", DOUBLE),
    ("bytes_per_second_p95", DOUBLE),
    ("bytes_per_second_p99", DOUBLE),
    ("bytes_per_second_max", LONG),
    ("coverage_percent", DOUBLE),
    ("date", STRING),
    ("hour", STRING),
)
"""Usage of a client in a minute, hour or day. Percentiles are over the seconds in which the client was active."""

GROUP: Final = (
    ("tenant", STRING),
    ("proxy_id", STRING),
    ("quota_type", STRING),
    ("scope", STRING),
    ("node", STRING),
    ("listener", STRING),
    ("tag_user", STRING),
    ("tag_client_id", STRING),
    ("tag_ip", STRING),
    ("tags", STRING),
)
DECISION_COUNTS: Final = ("n", "sum", "throttled_n", "violated_n", "throttle_ms_sum", "applied_ms_sum")

DECISIONS_SILVER: Final = _schema(
    *PLACE,
    ("problem", STRING),
    ("run_id", STRING),
    ("group_ref", INT),
    *GROUP,
    ("num_samples", INT),
    ("group_window_ms", INT),
    ("sample_start_ms", LONG),
    ("last_event_ms", LONG),
    ("begin_ms", LONG),
    ("end_ms", LONG),
    ("first_seq", LONG),
    *((name, LONG) for name in DECISION_COUNTS),
    ("throttle_ms_max", LONG),
    ("bound", DOUBLE),
    ("max_observed", DOUBLE),
    ("dt_ms", INTS),
    ("thr_pos", INTS),
    ("thr_ms", INTS),
    ("applied_ms", INTS),
)
"""One row of `samples`, or one controller mutation, with the names of its group. `begin_ms` to `end_ms` is its part within its hour."""

DECISIONS: Final = _schema(
    ("start", TIMESTAMP),
    *GROUP,
    ("decisions", LONG),
    ("units", LONG),
    ("throttled", LONG),
    ("violated", LONG),
    ("throttle_ms", LONG),
    ("waited", LONG),
    ("waited_ms", LONG),
    ("throttle_ms_max", LONG),
    ("throttle_ms_p50", DOUBLE),
    ("throttle_ms_p95", DOUBLE),
    ("throttle_ms_p99", DOUBLE),
    ("applied_ms", LONG),
    ("seconds_active", LONG),
    ("rate_mean", DOUBLE),
    ("rate_p50", DOUBLE),
    ("rate_p95", DOUBLE),
    ("rate_p99", DOUBLE),
    ("rate_max", DOUBLE),
    ("observed_max", DOUBLE),
    ("bound_mean", DOUBLE),
    ("utilisation_mean_percent", DOUBLE),
    ("utilisation_max_percent", DOUBLE),
    ("coverage_percent", DOUBLE),
    ("date", STRING),
    ("hour", STRING),
)
"""Decisions of a group's sensor. `waited` is the number of throttles that delayed a client, out of `throttled`.

Rates are in units per second (percent for request time) over the seconds with traffic."""

GROUPS_IN_SERIES: Final = 24
"""Groups of an hour in `rate_series`."""

SERIES: Final = _schema(
    *GROUP,
    ("second_ms", LONG),
    ("units", LONG),
    ("bound", DOUBLE),
    ("observed_max", DOUBLE),
    ("throttled", LONG),
    ("throttle_ms", LONG),
    ("date", STRING),
    ("hour", STRING),
)
"""Values per second of the groups that waited longest in an hour; the source of the charts."""

THROTTLE_WINDOWS: Final = _schema(
    *GROUP,
    ("begin_ms", LONG),
    ("end_ms", LONG),
    ("throttled", LONG),
    ("throttle_ms", LONG),
    ("waiting_max", LONG),
    ("applied", BOOLEAN),
    ("date", STRING),
    ("hour", STRING),
)
"""A throttle window: a time in which a client of a group waited. Its length is the time to drain; `waiting_max` clients waited at once.

When `applied` is false, the throttles were decided and not applied."""

HISTOGRAM: Final = _schema(*GROUP, ("applied", BOOLEAN), ("bucket_ms", LONG), ("n", LONG), ("date", STRING), ("hour", STRING))
"""Number of waits by length; `bucket_ms` is the upper limit of the bucket, a power of two."""

QUARANTINE: Final = _schema(
    ("table", STRING),
    ("problem", STRING),
    ("stem", STRING),
    ("row", STRING),
    ("date", STRING),
    ("hour", STRING),
)
"""Quarantined rows as JSON, with the reason."""

ADJUSTMENTS: Final = _schema(
    ("start", TIMESTAMP),
    *CLIENT,
    ("api_class", STRING),
    *((name, LONG) for name in USAGE_COUNTS),
    ("coverage_percent", DOUBLE),
    ("date", STRING),
    ("batch", STRING),
)
"""Late usage of a closed day, to be added to the published rows. `batch` names the late file sets. The coverage includes them."""

CHARGES: Final = _schema(
    ("start", TIMESTAMP),
    *CLIENT,
    ("sku", STRING),
    ("unit", STRING),
    ("units", LONG),
    ("quantity", QUANTITY),
    ("price", AMOUNT),
    ("amount", AMOUNT),
    ("currency", STRING),
    ("correction", STRING),
    ("date", STRING),
)
"""A line item: usage of one client on one day, and its cost. It is not published, since FOCUS has the same content."""

CHARGEBACK: Final = _schema(
    ("start", TIMESTAMP),
    ("tenant", STRING),
    ("sku", STRING),
    ("unit", STRING),
    ("units", LONG),
    ("quantity", QUANTITY),
    ("amount", AMOUNT),
    ("currency", STRING),
    ("correction", STRING),
    ("coverage_percent", DOUBLE),
    ("inputs", STRING),
    ("date", STRING),
)
"""Charges of a tenant for a day. `inputs` is the SHA-256 over the manifests' hashes, which identifies the input."""

FOCUS: Final = _schema(
    *((name, TIMESTAMP) for name in TIMES),
    *((name, AMOUNT) for name in COSTS),
    *((name, QUANTITY) for name in QUANTITIES),
    *((name, STRING) for name in TEXTS),
    ("date", STRING),
)
"""Line items for a FinOps tool."""

ESCAPES: Final = _schema(*CLIENT, ("kind", STRING), ("to_client_id", STRING), ("n", LONG), ("at_ms", LONG), ("date", STRING))
"""Signs that a client avoids its quota: `reconnects` (n new connections soon after waits) or `rotates` (use of another client-id)."""
